// Which algorithm runs for which size: parses a policy such as "allreduce:0-16k:slots,16k-:direct" and selects.
//
// All ranks must select the same algorithm, so the choice depends only on the problem and the policy. Parsing is
// strict: a misspelt name is an error that lists the allowed ones. Independent of how algorithms work.
#include "comm/comm.h"

#include <ctype.h>

enum { WORD_BYTES = 32 };

static const struct {
    const char *word;
    mu_collective_kind kind;
} kinds[] = {
    {"allreduce", MU_KIND_ALL_REDUCE}, {"allgather", MU_KIND_ALL_GATHER},         {"broadcast", MU_KIND_BROADCAST},
    {"alltoall", MU_KIND_ALL_TO_ALL},  {"reducescatter", MU_KIND_REDUCE_SCATTER}, {"permute", MU_KIND_PERMUTE},
};

// ---- Parsing ------------------------------------------------------------------------------------

// Reads a word of letters, digits and _ at *at; "" if there is none or it is too long.
static void read_word(const char **at, char word[WORD_BYTES])
{
    size_t n = 0;
    while (isalnum((unsigned char)(*at)[n]) || (*at)[n] == '_')
        n++;
    word[0] = '\0';
    if (n >= WORD_BYTES)
        return;
    memcpy(word, *at, n);
    word[n] = '\0';
    *at += n;
}

// Reads digits and an optional k, m or g; -1 if there are none or the number is too large.
static int64_t read_bytes(const char **at)
{
    int64_t value = 0;
    const char *p = *at;
    for (; isdigit((unsigned char)*p); p++) {
        if (value > INT64_MAX / 1024 / 1024 / 1024 / 16)
            return -1;
        value = value * 10 + (*p - '0');
    }
    if (p == *at)
        return -1;
    const int shift = *p == 'k' ? 10 : *p == 'm' ? 20 : *p == 'g' ? 30 : 0;
    *at = shift != 0 ? p + 1 : p;
    return value << shift;
}

static bool accept_sign(const char **at, char c)
{
    if (**at != c)
        return false;
    ++*at;
    return true;
}

static mu_status complain(const char *text, const char *at, const char *wanted)
{
    return mu__error(MU_INVALID_ARGUMENT,
                     "The collective policy \"%s\" cannot be read at \"%.32s\": expected %s, as in "
                     "\"allreduce:0-16k:slots,16k-:direct;broadcast:tree\".",
                     text, at, wanted);
}

static mu_status complain_name(const char *text, const char *word, mu_collective_kind kind)
{
    char names[200] = "";
    size_t n = 0;
    const mu_algorithm *algorithm;
    for (int i = 0; (algorithm = mu__algorithm_at(i)) != NULL; i++)
        if (algorithm->kind == kind && n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n == 0 ? "" : ", ", algorithm->name);
    return mu__error(MU_INVALID_ARGUMENT,
                     "The collective policy \"%s\" names the algorithm \"%s\", which %s does not have: it has %s.",
                     text, word, mu__kind_name(kind), names);
}

// Grammar: [low-[high]:]name
static mu_status read_rule(const char *text, const char **at, mu_collective_kind kind, mu_policy *out)
{
    mu_policy_rule rule = {.low = 0, .high = INT64_MAX};
    char word[WORD_BYTES];
    if (isdigit((unsigned char)**at)) {
        const char *begin = *at;
        rule.low = read_bytes(at);
        if (rule.low < 0 || !accept_sign(at, '-'))
            return complain(text, begin, "a range of bytes");
        if (isdigit((unsigned char)**at))
            rule.high = read_bytes(at);
        if (rule.high <= rule.low || !accept_sign(at, ':'))
            return complain(text, begin, "a range of bytes and ':'");
    }
    const char *name = *at;
    read_word(at, word);
    if (word[0] == '\0')
        return complain(text, name, "the name of an algorithm");
    rule.algorithm = mu__algorithm(kind, word);
    if (rule.algorithm == NULL)
        return complain_name(text, word, kind);
    if (out->n == MU_MAX_RULES)
        return mu__error(MU_INVALID_ARGUMENT, "The collective policy \"%s\" has more than %d rules.", text,
                         MU_MAX_RULES);
    out->rules[out->n++] = rule;
    return MU_OK;
}

static mu_status read_rules(const char *text, const char **at, mu_collective_kind kind, mu_policy *out)
{
    if (!accept_sign(at, ':'))
        return complain(text, *at, "':' and an algorithm");
    do
        MU_TRY(read_rule(text, at, kind, out));
    while (accept_sign(at, ','));
    return MU_OK;
}

static mu_status read_operation(const char *text, const char **at, mu_policy *out)
{
    char word[WORD_BYTES];
    const char *begin = *at;
    read_word(at, word);
    for (size_t i = 0; i < MU_COUNT(kinds); i++)
        if (strcmp(kinds[i].word, word) == 0)
            return read_rules(text, at, kinds[i].kind, out);
    return complain(text, begin, "allreduce, allgather, broadcast, alltoall, reducescatter or permute");
}

mu_status mu__policy_parse(const char *text, mu_policy *out)
{
    const char *at = text;
    *out = (mu_policy){0};
    do
        MU_TRY(read_operation(text, &at, out));
    while (accept_sign(&at, ';'));
    return *at == '\0' ? MU_OK : complain(text, at, "',' or ';' or the end");
}

// ---- Selection ----------------------------------------------------------------------------------

// Within a kind the table is in order of preference; only small messages fit into windows.
static const mu_algorithm *first_that_fits(const mu_problem *problem, unsigned means)
{
    const mu_algorithm *algorithm;
    for (int i = 0; (algorithm = mu__algorithm_at(i)) != NULL; i++)
        if (algorithm->kind == problem->kind && mu__algorithm_fits(algorithm, problem, means))
            return algorithm;
    return NULL;
}

const mu_algorithm *mu__policy_select(const mu_policy *policy, const mu_problem *problem, unsigned means)
{
    int64_t largest = problem->count;
    for (int i = 0; problem->counts != NULL && i < problem->ranks; i++)
        largest = MU_MAX(largest, problem->counts[i]);
    const int64_t bytes = largest * (int64_t)problem->element;
    for (int i = 0; i < policy->n; i++) {
        const mu_policy_rule *rule = &policy->rules[i];
        if (rule->algorithm->kind == problem->kind && bytes >= rule->low && bytes < rule->high)
            return mu__algorithm_fits(rule->algorithm, problem, means) ? rule->algorithm
                                                                       : first_that_fits(problem, means);
    }
    return first_that_fits(problem, means);
}

// ---- Policies of the public options -------------------------------------------------------------

const char *mu_communication_name(mu_communication communication)
{
    static const char *const names[] = {"AUTO", "RING", "NCCL", "MPI", "UCX"};
    return (unsigned)communication < MU_COUNT(names) ? names[communication] : "unknown";
}

// The default policies by placement of the ranks. Between hosts the cost per message dominates up to larger sizes, so
// windows are used for larger messages there; the same holds on one host with more ranks than cores, where a barrier is
// expensive.
static const char *const automatic[] = {
    [MU_PLACED_TOGETHER] = "allreduce:0-2k:slots,2k-:direct;allgather:0-4k:slots,4k-:direct;"
                           "broadcast:0-4k:slots,4k-:direct;permute:0-4k:slots,4k-:direct",
    [MU_PLACED_CROWDED] = "allreduce:0-8k:slots,8k-:direct;allgather:0-4k:slots,4k-:direct;"
                          "broadcast:0-4k:slots,4k-:direct;permute:0-4k:slots,4k-:direct",
    [MU_PLACED_APART] = "allreduce:0-32k:slots,32k-:pairwise;allgather:0-4k:slots,4k-:ring;"
                        "broadcast:0-4k:slots,4k-:tree;alltoall:pairwise;reducescatter:pairwise;"
                        "permute:pairwise",
    [MU_PLACED_MIXED] = "allreduce:0-32k:slots,32k-:hierarchical;allgather:0-4k:slots,4k-:hierarchical;"
                        "broadcast:0-4k:slots,4k-:hierarchical;alltoall:hierarchical;reducescatter:hierarchical;"
                        "permute:hierarchical",
};

static const char *const notified[] = {
    [MU_PLACED_TOGETHER] = "allreduce:ring;allgather:ring;broadcast:tree;reducescatter:ring",
    [MU_PLACED_CROWDED] = "allreduce:ring;allgather:ring;broadcast:tree;reducescatter:ring",
    [MU_PLACED_APART] = "allreduce:ring;allgather:ring;broadcast:tree;reducescatter:ring",
    [MU_PLACED_MIXED] = ("allreduce:hierarchical_ring;allgather:hierarchical;broadcast:hierarchical;"
                         "reducescatter:hierarchical"),
};

static const char in_order_mixed[] =
    "allreduce:0-32k:slots,32k-:chain;allgather:0-4k:slots,4k-:hierarchical;"
    "broadcast:0-4k:slots,4k-:hierarchical;alltoall:hierarchical;reducescatter:chain;permute:hierarchical";

// An option that CPU devices cannot use is reported once; TensorFlow falls back to the ring too.
static void warn_of_nccl(void)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        mu__log(MU_LOG_WARNING, "the communication hint NCCL is for GPU devices that XLA drives, and these replicas "
                                "are on CPUs: they use the ring (with .deterministic, what AUTO chooses); leave the "
                                "hint out, or give MU_COMM_AUTO, to have the fastest way chosen");
}

const char *mu__policy_of(mu_communication communication, mu_placing placing, bool in_rank_order)
{
    switch (communication) {
    case MU_COMM_AUTO:
    case MU_COMM_MPI:
    case MU_COMM_UCX: return in_rank_order && placing == MU_PLACED_MIXED ? in_order_mixed : automatic[placing];
    case MU_COMM_RING:
        if (!in_rank_order)
            return notified[placing];
        mu__error(MU_INVALID_ARGUMENT, "The communication RING adds in an order that depends on where the replicas "
                                       "are, and deterministic asks for one that does not; choose MU_COMM_AUTO.");
        return NULL;
    case MU_COMM_NCCL:
        warn_of_nccl();
        return mu__policy_of(in_rank_order ? MU_COMM_AUTO : MU_COMM_RING, placing, in_rank_order);
    }
    mu__error(MU_INVALID_ARGUMENT, "The communication number %d is unknown; choose MU_COMM_AUTO.", (int)communication);
    return NULL;
}

mu_status mu__policy_check_order(const mu_policy *policy)
{
    for (int i = 0; i < policy->n; i++)
        if (!policy->rules[i].algorithm->rank_order)
            return mu__error(MU_INVALID_ARGUMENT,
                             "The algorithm \"%s\" of %s adds in an order that depends on where the replicas are, and "
                             "deterministic asks for one that does not; choose another, or leave `algorithms` out.",
                             policy->rules[i].algorithm->name, mu__kind_name(policy->rules[i].algorithm->kind));
    return MU_OK;
}
