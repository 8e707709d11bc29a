// What a program needs of a device's memory: refused before it runs, where the plugin knows both, and explained by the
// largest values when it does not fit.
#include "engine/pjrt/pjrt_plan.h"

enum { NAMED = 5, WORDS = 160 };

typedef struct sized {
    size_t bytes;
    const mu_node *node;
    const mu_spec *spec;
} sized;

// Keeps the largest ones, in order.
static void keep_largest(sized *largest, sized one)
{
    for (int i = 0; i < NAMED; i++)
        if (one.bytes > largest[i].bytes) {
            const sized smaller = largest[i];
            largest[i] = one;
            one = smaller;
        }
}

static void look_at(const mu_pjrt_plan *plan, const mu_pjrt_programs *p, sized *largest)
{
    for (size_t n = 0; n < plan->graph->nodes.n; n++) {
        const mu_node *node = plan->graph->nodes.items[n];
        for (int i = 0; i < node->n_out; i++) {
            const mu_spec *spec = &p->specs[p->cut.first[node->id] + i];
            if (mu__shape_known(&spec->shape) && spec->dtype != MU_DTYPE_DEFAULT)
                keep_largest(largest, (sized){.bytes = mu__spec_bytes(spec), .node = node, .spec = spec});
        }
    }
}

// "float32[128, 1024] of matmul (dense_1, train.c:42)", or of a variable or argument by its name.
static void describe(const sized *s, char text[WORDS])
{
    char shape[MU_SHAPE_TEXT];
    const mu_site site = mu__node_site(s->node);
    int n = snprintf(text, WORDS, "%.1f MB: %s%s of %s", (double)s->bytes / 1e6, mu_dtype_name(s->spec->dtype),
                     mu__shape_text(&s->spec->shape, shape), s->node->op == &mu_op_input ? "" : s->node->op->name);
    if (n < WORDS && s->node->op == &mu_op_input)
        snprintf(text + n, (size_t)(WORDS - n), "'%s'", s->node->name ? s->node->name : "an argument");
    else if (n < WORDS && site.file)
        snprintf(text + n, (size_t)(WORDS - n), " (%s%s%s:%d)", site.layer ? site.layer : "", site.layer ? ", " : "",
                 site.file, site.line);
}

void mu__pjrt_name_largest(const mu_pjrt_plan *plan, const mu_pjrt_programs *p)
{
    sized largest[NAMED] = {{0}};
    char words[NAMED * (WORDS + 2)] = "", one[WORDS];
    look_at(plan, p, largest);
    for (int i = 0; i < NAMED && largest[i].bytes > 0; i++) {
        describe(&largest[i], one);
        snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? "; " : "", one);
    }
    mu__error_context("the largest values of '%s' are %s", plan->graph->name, words);
}

// What a compiled program needs, as far as the plugin says so.
static bool memory_of(const mu_pjrt_plan *plan, pj_loaded *loaded, pj_program_memory_args *need)
{
    const pj_api *api = plan->client->api;
    mu_error_value ignored;
    pj_loaded_executable_args inner = PJ_ARGS(pj_loaded_executable_args, .loaded = loaded);
    mu_status status = mu__pjrt_call(api, PJ_LOADED_GET_EXECUTABLE, &inner, plan->graph->name);
    if (status == MU_OK) {
        *need = PJ_ARGS(pj_program_memory_args, .executable = inner.executable);
        status = mu__pjrt_call(api, PJ_EXECUTABLE_MEMORY_STATS, need, plan->graph->name);
        pj_executable_args end = PJ_ARGS(pj_executable_args, .executable = inner.executable);
        mu__pjrt_destroy(api, PJ_EXECUTABLE_DESTROY, &end);
    }
    if (status != MU_OK)
        mu__error_move(&ignored); // not every plugin can tell
    return status == MU_OK;
}

mu_status mu__pjrt_check_memory(const mu_pjrt_plan *plan, const mu_pjrt_programs *p, pj_loaded *loaded)
{
    const mu_device *device = p->span.devices ? p->span.devices[0] : &plan->client->devices[0];
    const int64_t there_is = mu__pjrt_memory_bytes(device);
    pj_program_memory_args part;
    if ((there_is <= 0 && !mu__log_enabled(MU_LOG_DEBUG)) || !memory_of(plan, loaded, &part))
        return MU_OK;
    const int64_t need = part.arguments + part.outputs + part.temporaries - part.aliased;
    mu__log(MU_LOG_DEBUG,
            "'%s' needs %.1f MB on each device: arguments %.1f, results %.1f, of which %.1f are arguments, and "
            "temporaries %.1f",
            plan->graph->name, (double)need / 1e6, (double)part.arguments / 1e6, (double)part.outputs / 1e6,
            (double)part.aliased / 1e6, (double)part.temporaries / 1e6);
    if (need <= there_is || there_is <= 0)
        return MU_OK;
    const mu_status status = mu__error(MU_RESOURCE_EXHAUSTED,
                                       "'%s' needs %.1f MB of memory on each device, and %s has %.1f MB; use smaller "
                                       "batches, more devices, or mu_recompute_grad",
                                       plan->graph->name, (double)need / 1e6, device->name, (double)there_is / 1e6);
    mu__pjrt_name_largest(plan, p);
    return status;
}
