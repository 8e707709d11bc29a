// Settings: settings.def's table, read once per runtime from the environment and the arguments of mu_init.
//
// The only file that reads the environment; variables of other systems (TF_CONFIG, SLURM_…) go through
// mu__environment. This file only stores a setting's value; the layer that uses it interprets it.
#include "base/private.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

typedef enum kind { KIND_TEXT, KIND_INT, KIND_REAL, KIND_BOOL } kind;

struct row {
    const char *variable, *unit, *sentence;
    kind kind;
    const char *text;
    int64_t integer, low, high;
    double real, real_low, real_high;
};

static const struct row rows[MU_N_SETTINGS] = {
#define MU_SETTING_TEXT(id, name, initial, meaning) \
    [MU_SETTING_##id] = {.variable = (name), .unit = "", .sentence = (meaning), .kind = KIND_TEXT, .text = (initial)},
#define MU_SETTING_INT(id, name, of, initial, lowest, highest, meaning) \
    [MU_SETTING_##id] = {.variable = (name),                            \
                         .unit = (of),                                  \
                         .sentence = (meaning),                         \
                         .kind = KIND_INT,                              \
                         .integer = (initial),                          \
                         .low = (lowest),                               \
                         .high = (highest)},
#define MU_SETTING_REAL(id, name, of, initial, lowest, highest, meaning) \
    [MU_SETTING_##id] = {.variable = (name),                             \
                         .unit = (of),                                   \
                         .sentence = (meaning),                          \
                         .kind = KIND_REAL,                              \
                         .real = (initial),                              \
                         .real_low = (lowest),                           \
                         .real_high = (highest)},
#define MU_SETTING_BOOL(id, name, initial, meaning) \
    [MU_SETTING_##id] = {.variable = (name),        \
                         .unit = "",                \
                         .sentence = (meaning),     \
                         .kind = KIND_BOOL,         \
                         .integer = (initial),      \
                         .low = 0,                  \
                         .high = 1},
#include "base/settings.def"
#undef MU_SETTING_TEXT
#undef MU_SETTING_INT
#undef MU_SETTING_REAL
#undef MU_SETTING_BOOL
};

// In the order of mu_log_level.
static const char *const log_levels[] = {"error", "warning", "info", "debug"};

// The allowed values of a text setting, if they are a closed list.
static const struct choice {
    mu_setting setting;
    const char *words[5];
    const char *sentence;
} choices[] = {
    {MU_SETTING_LOG, {"error", "warning", "info", "debug"}, "error, warning, info or debug"},
    {MU_SETTING_ISA, {"avx512", "avx2", "base"}, "avx512, avx2 or base"},
    {MU_SETTING_XLA_PRECISION, {"default", "high", "highest"}, "default, high or highest"},
};

char *const *mu__environment_list(void) { return environ; }

const char *mu__environment(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

// ---- Reading ------------------------------------------------------------------------------------

static bool parse_bool(const char *text, int64_t *out)
{
    static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"0", "false", "no", "off"};
    for (size_t i = 0; i < MU_COUNT(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool parse_int(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    *out = value;
    return errno == 0 && end != text && *end == '\0';
}

// The program's locale may use a decimal comma; settings always use a point.
static bool parse_real(const char *text, double *out)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t own = plain != (locale_t)0 ? uselocale(plain) : (locale_t)0;
    char *end;
    *out = strtod(text, &end);
    if (plain != (locale_t)0) {
        uselocale(own);
        freelocale(plain);
    }
    return end != text && *end == '\0' && isfinite(*out);
}

static mu_status set_int(mu_setting_value *value, const struct row *row, const char *name, int64_t number)
{
    if (number < row->low || number > row->high)
        return mu__error(MU_INVALID_ARGUMENT, "%s is %lld; it must be from %lld to %lld %s (%s)", name,
                         (long long)number, (long long)row->low, (long long)row->high, row->unit, row->sentence);
    value->integer = number;
    return MU_OK;
}

static mu_status set_text(mu_setting_value *value, mu_setting setting, const char *name, const char *text)
{
    for (size_t i = 0; i < MU_COUNT(choices); i++) {
        if (choices[i].setting != setting)
            continue;
        size_t word = 0;
        while (choices[i].words[word] != NULL && strcasecmp(text, choices[i].words[word]) != 0)
            word++;
        if (choices[i].words[word] == NULL)
            return mu__error(MU_INVALID_ARGUMENT, "%s is \"%.100s\"; it must be %s (%s)", name, text,
                             choices[i].sentence, rows[setting].sentence);
        text = choices[i].words[word];
    }
    char *copy = mu__strdup(text);
    if (copy == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mu__free(value->text);
    value->text = copy;
    return MU_OK;
}

static mu_status set_from_text(mu_setting_value *value, mu_setting setting, const char *text)
{
    const struct row *row = &rows[setting];
    int64_t number = 0;
    double real = 0;
    switch (row->kind) {
    case KIND_TEXT: return set_text(value, setting, row->variable, text);
    case KIND_INT:
        if (!parse_int(text, &number))
            break;
        return set_int(value, row, row->variable, number);
    case KIND_REAL:
        if (!parse_real(text, &real) || real < row->real_low || real > row->real_high)
            return mu__error(MU_INVALID_ARGUMENT, "%s is \"%.100s\"; it must be a number from %g to %g %s (%s)",
                             row->variable, text, row->real_low, row->real_high, row->unit, row->sentence);
        value->real = real;
        return MU_OK;
    case KIND_BOOL:
        if (!parse_bool(text, &number))
            return mu__error(MU_INVALID_ARGUMENT, "%s is \"%.100s\"; it must be 1 or 0 (%s)", row->variable, text,
                             row->sentence);
        value->integer = number;
        return MU_OK;
    }
    return mu__error(MU_INVALID_ARGUMENT, "%s is \"%.100s\"; it must be a whole number from %lld to %lld %s (%s)",
                     row->variable, text, (long long)row->low, (long long)row->high, row->unit, row->sentence);
}

static mu_status read_one(mu_setting_value *value, mu_setting setting)
{
    const struct row *row = &rows[setting];
    value->integer = row->integer;
    value->real = row->real;
    value->origin = "default";
    const char *text = mu__environment(row->variable);
    if (text != NULL) {
        value->origin = "environment";
        return set_from_text(value, setting, text);
    }
    if (row->text == NULL)
        return MU_OK;
    return set_text(value, setting, row->variable, row->text);
}

static mu_status read_args(mu_settings *out, const mu_runtime_args *args)
{
    const struct {
        mu_setting setting;
        const char *name;
        int value;
    } given[] = {{MU_SETTING_THREADS, "mu_init: .threads", args->threads},
                 {MU_SETTING_CPU_DEVICES, "mu_init: .cpu_devices", args->cpu_devices}};
    for (size_t i = 0; i < MU_COUNT(given); i++) {
        mu_setting_value *value = &out->values[given[i].setting];
        if (given[i].value == 0)
            continue;
        MU_TRY(set_int(value, &rows[given[i].setting], given[i].name, given[i].value));
        value->origin = "mu_init";
    }
    if (args->log == NULL)
        return MU_OK;
    out->values[MU_SETTING_LOG].origin = "mu_init";
    return set_text(&out->values[MU_SETTING_LOG], MU_SETTING_LOG, "mu_init: .log", args->log);
}

mu_status mu__settings_read(mu_settings *out, const mu_runtime_args *args)
{
    for (int setting = 0; setting < MU_N_SETTINGS; setting++)
        MU_TRY(read_one(&out->values[setting], (mu_setting)setting));
    return read_args(out, args);
}

void mu__settings_free(mu_settings *settings)
{
    for (int setting = 0; setting < MU_N_SETTINGS; setting++)
        mu__free(settings->values[setting].text);
    *settings = (mu_settings){0};
}

mu_log_level mu__settings_log_level(const mu_settings *settings)
{
    for (int level = 0; level < (int)MU_COUNT(log_levels); level++)
        if (strcmp(settings->values[MU_SETTING_LOG].text, log_levels[level]) == 0)
            return (mu_log_level)level;
    return MU_LOG_WARNING;
}

// ---- Unknown names ------------------------------------------------------------------------------

enum { LONGEST_NAME = 63 };

// Levenshtein distance, one row of the table at a time.
static int distance(const char *a, size_t a_length, const char *b)
{
    int costs[LONGEST_NAME + 1];
    const size_t b_length = MU_MIN(strlen(b), (size_t)LONGEST_NAME);
    for (size_t j = 0; j <= b_length; j++)
        costs[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int diagonal = costs[0];
        costs[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            const int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = costs[j];
            costs[j] = MU_MIN(replaced, MU_MIN(costs[j], costs[j - 1]) + 1);
        }
    }
    return costs[b_length];
}

// Variables of the scripts that build and compare, not of the library.
static const char *const script_names[] = {"MUSTER_PYTHON_ENV", "MUSTER_LIBRARY"};

static bool is_script_name(const char *name, size_t length)
{
    for (size_t i = 0; i < MU_COUNT(script_names); i++)
        if (strlen(script_names[i]) == length && strncmp(name, script_names[i], length) == 0)
            return true;
    return false;
}

static void check_name(const char *name, size_t length)
{
    const char *nearest = "";
    int least = LONGEST_NAME + 1;
    const size_t compared = MU_MIN(length, (size_t)LONGEST_NAME);
    for (int setting = 0; setting < MU_N_SETTINGS; setting++) {
        const int edits = distance(name, compared, rows[setting].variable);
        if (edits >= least)
            continue;
        least = edits;
        nearest = rows[setting].variable;
    }
    if (least > 0)
        mu__log(MU_LOG_WARNING, "%.*s is not a setting and does nothing; the nearest is %s (`muster config` lists all)",
                (int)compared, name, nearest);
}

void mu__settings_unknown(void)
{
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
        const char *equals = strchr(*variable, '=');
        if (equals != NULL && strncmp(*variable, "MUSTER_", 7) == 0 &&
            !is_script_name(*variable, (size_t)(equals - *variable)))
            check_name(*variable, (size_t)(equals - *variable));
    }
}

// ---- Asking -------------------------------------------------------------------------------------

// The runtime is NULL only after a failed start: then the table's defaults are returned.
static const mu_setting_value *value_of(mu_setting setting)
{
    const mu_runtime *runtime = mu__runtime();
    return runtime != NULL ? &runtime->settings.values[setting] : NULL;
}

const char *mu__setting_text(mu_setting setting)
{
    const mu_setting_value *value = value_of(setting);
    return value != NULL ? value->text : rows[setting].text;
}

int64_t mu__setting_int(mu_setting setting)
{
    const mu_setting_value *value = value_of(setting);
    return value != NULL ? value->integer : rows[setting].integer;
}

double mu__setting_real(mu_setting setting)
{
    const mu_setting_value *value = value_of(setting);
    return value != NULL ? value->real : rows[setting].real;
}

bool mu__setting_bool(mu_setting setting) { return mu__setting_int(setting) != 0; }

void mu__settings_print(FILE *out)
{
    for (int setting = 0; setting < MU_N_SETTINGS; setting++) {
        const struct row *row = &rows[setting];
        const mu_setting_value *value = value_of((mu_setting)setting);
        const char *text = value != NULL ? value->text : row->text;
        if (setting == MU_SETTING_CLUSTER_KEY && text != NULL)
            text = "(not shown)";
        char number[64] = "";
        if (row->kind == KIND_TEXT)
            snprintf(number, sizeof number, "%s", text != NULL ? "" : "(not set)");
        else if (row->kind == KIND_REAL)
            snprintf(number, sizeof number, "%g", mu__setting_real((mu_setting)setting));
        else
            snprintf(number, sizeof number, "%lld", (long long)mu__setting_int((mu_setting)setting));
        char shown[256];
        snprintf(shown, sizeof shown, "%s%s%s%s", row->kind == KIND_TEXT && text != NULL ? text : "", number,
                 row->unit[0] != '\0' ? " " : "", row->unit);
        mu__printable(shown, false);
        fprintf(out, "%-20s %-22s %-12s %s\n", row->variable, shown, value != NULL ? value->origin : "default",
                row->sentence);
    }
}
