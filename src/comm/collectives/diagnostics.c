// Messages of groups: which operation a rank is in, where two ranks differ, who is missing and what it is doing.
//
// Ranks of several processes are named with their process. Does not depend on how operations are executed.
#include "comm/collectives/group.h"

#include <stdarg.h>

const char *mu__kind_name(mu_collective_kind kind)
{
    static const char *const names[] = {"all_reduce",     "all_gather", "broadcast",         "all_to_all",
                                        "reduce_scatter", "barrier",    "collective_permute"};
    return (unsigned)kind < MU_COUNT(names) ? names[kind] : "unknown";
}

const char *mu__reduction_name(int32_t reduction)
{
    static const char *const names[] = {"sum", "mean", "min", "max"};
    return (unsigned)reduction < MU_COUNT(names) ? names[reduction] : "unknown";
}

// ---- Shapes and arguments of an operation -------------------------------------------------------

// Appends like snprintf; cuts what does not fit.
MU_PRINTF(3, 4) static int append(char text[MU_TEXT_BYTES], int at, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text + at, (size_t)(MU_TEXT_BYTES - at), format, arguments);
    va_end(arguments);
    return MU_MIN(at + MU_MAX(n, 0), MU_TEXT_BYTES - 1);
}

static int append_operand(const mu_signature *signature, char text[MU_TEXT_BYTES], int at)
{
    char form[MU_FORM_TEXT];
    if (signature->same.form != 0)
        at = append(text, at, ", %s", mu__form_text(&signature->form, form));
    if (signature->same.form == 0 || signature->form.n_tensors != 1)
        at = append(text, at, ", %lld elements of %s", (long long)signature->count,
                    mu_dtype_name((mu_dtype)signature->same.dtype));
    return at;
}

bool mu__signature_can_be(const mu_signature *signature)
{
    return signature->window >= 0 && (size_t)signature->window <= MU_WINDOW_BYTES && signature->form.n_words >= 0 &&
           signature->form.n_words <= MU_FORM_WORDS && signature->form.n_tensors >= 0 &&
           memchr(signature->same.name, '\0', sizeof signature->same.name) != NULL;
}

const char *mu__signature_text(const mu_signature *signature, char text[MU_TEXT_BYTES])
{
    const mu_collective_kind kind = (mu_collective_kind)signature->same.kind;
    int n = append(text, 0, "%s \"%.*s\" (run %lld, op %lld", mu__kind_name(kind), MU_SIGNATURE_NAME,
                   signature->same.name, (long long)signature->same.run, (long long)signature->same.number);
    if (kind != MU_KIND_BARRIER)
        n = append_operand(signature, text, n);
    if (kind == MU_KIND_ALL_REDUCE || kind == MU_KIND_REDUCE_SCATTER)
        n = append(text, n, ", %s", mu__reduction_name(signature->same.reduction));
    if (kind == MU_KIND_BROADCAST)
        n = append(text, n, ", from rank %d", signature->same.root);
    append(text, n, ")");
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
    return text;
}

mu_signature *mu__signature_of(const member *m, int rank)
{
    return m->awaited != 0 ? mu__work_signature(m, rank) : m->group->transport->signature(&m->channel, rank);
}

int mu__n_local(const mu_group *group) { return group->joined.topology.n_local; }

const char *mu__rank_text(const mu_group *group, int rank, char text[MU_RANK_BYTES])
{
    if (group->joined.mesh == NULL)
        snprintf(text, MU_RANK_BYTES, "rank %d", rank);
    else
        snprintf(text, MU_RANK_BYTES, "rank %d of %s", rank,
                 mu__mesh_name(group->joined.mesh, rank / mu__n_local(group)));
    return text;
}

// How two signatures differ. Codes as in TensorFlow: another operation or type under the same name is INTERNAL, though
// the caller's error as another shape is. Other names or numbers are the caller's error too: the replicas run different
// programs.
typedef enum difference { OTHER_PROGRAM, OTHER_OPERATION, OTHER_SHAPE, OTHER_ARGUMENT, OTHER_PAIRS } difference;

static const struct remedy {
    mu_status code;
    const char *text;
} remedies[] = {
    [OTHER_PROGRAM] = {MU_INVALID_ARGUMENT, "Every replica must run the same collectives in the same order with the "
                                            "same names; look for what only some of them do."},
    [OTHER_OPERATION] =
        {MU_INTERNAL,
         "Every replica must run the same collectives in the same order with the same operations and types."},
    [OTHER_SHAPE] = {MU_INVALID_ARGUMENT, "Every replica must bring the same shapes, and the same axis to a gather or "
                                          "scatter; compare how they compute this tensor."},
    [OTHER_ARGUMENT] =
        {MU_INVALID_ARGUMENT,
         "Every replica must run the same collectives in the same order with the same counts and roots."},
    [OTHER_PAIRS] = {MU_INVALID_ARGUMENT, "Every replica must give a collective_permute the same pairs."},
};

// The name of a collective_permute is the text of its pairs.
static difference compare(const mu_signature *a, const mu_signature *b)
{
    const bool permute = a->same.kind == MU_KIND_PERMUTE && b->same.kind == MU_KIND_PERMUTE;
    if (permute && a->same.run == b->same.run && a->same.number == b->same.number && a->same.root != b->same.root)
        return OTHER_PAIRS;
    if (a->same.run != b->same.run || a->same.number != b->same.number ||
        memcmp(a->same.name, b->same.name, sizeof a->same.name) != 0)
        return OTHER_PROGRAM;
    // The form of what is scattered leaves out the size along its axis, which shows in the count.
    const bool scatter = a->same.kind == MU_KIND_REDUCE_SCATTER || a->same.kind == MU_KIND_ALL_TO_ALL;
    const bool sizes = scatter && a->same.count != b->same.count;
    const bool shapes = a->same.form != 0 && b->same.form != 0 && (a->same.form != b->same.form || sizes);
    if (a->same.kind != b->same.kind || a->same.reduction != b->same.reduction || a->same.dtype != b->same.dtype ||
        (shapes && a->form.dtype != b->form.dtype))
        return OTHER_OPERATION;
    return shapes ? OTHER_SHAPE : OTHER_ARGUMENT;
}

static mu_status complain(const member *m, int rank_a, const mu_signature *a, int rank_b, const mu_signature *b)
{
    char text_a[MU_TEXT_BYTES], text_b[MU_TEXT_BYTES], part[MU_FORM_TEXT], who_a[MU_RANK_BYTES], who_b[MU_RANK_BYTES];
    const difference how = compare(a, b);
    const bool recorded = mu__pending();
    const mu_status status =
        mu__error(remedies[how].code, "The ranks of group \"%s\" do not agree: %s is in %s, %s in %s.%s %s",
                  m->group->name, mu__rank_text(m->group, rank_a, who_a), mu__signature_text(a, text_a),
                  mu__rank_text(m->group, rank_b, who_b), mu__signature_text(b, text_b),
                  how == OTHER_SHAPE ? mu__form_part(&a->form, &b->form, part) : "", remedies[how].text);
    if (!recorded)
        mu__error_of_caller();
    return status;
}

mu_status mu__complain_mismatch(const member *m, int rank)
{
    return complain(m, 0, mu__signature_of(m, 0), rank, mu__signature_of(m, rank));
}

mu_status mu__complain_passed(const member *m, int rank, const mu_signature *theirs)
{
    return complain(m, m->channel.rank, mu__signature_of(m, m->channel.rank), rank, theirs);
}

void mu__complain_of_peer(const member *m, mu_status status, const char *what)
{
    char peer[MU_RANK_BYTES];
    mu__rank_text(m->group, MU_MAX(m->channel.waiting_for, 0), peer);
    if (status == MU_UNAVAILABLE)
        mu__error(status,
                  "The connection of rank %d of group \"%s\" to %s ended in %s; the processes or the network between "
                  "them failed.",
                  m->channel.rank, m->group->name, peer, what);
    else if (status == MU_DATA_LOSS)
        mu__error(status,
                  "Rank %d of group \"%s\" received invalid data from %s in %s; the memory there or the network is "
                  "faulty, or the data was changed on the way (MUSTER_ENCRYPT=1 detects that).",
                  m->channel.rank, m->group->name, peer, what);
    else
        mu__error(status,
                  "Rank %d of group \"%s\" received a message of the wrong size or out of order from %s in %s; all "
                  "ranks must have the same policy, and nobody may change data between them.",
                  m->channel.rank, m->group->name, peer, what);
}

// Writes "Rank 1" or "Ranks 1, 3": the ranks that did not arrive; in a group of several processes also the process of
// the first one.
static bool is_missing(const member *m, int rank)
{
    const mu_channel *channel = &m->channel;
    return m->awaited != 0 && channel->waiting_for < 0 ? !mu__work_has_come(m, rank)
                                                       : !m->group->transport->has_come(channel, rank);
}

const char *mu__missing_text(const member *m, char text[MU_TEXT_BYTES])
{
    int missing[MU_MAX_RANKS], n = 0;
    for (int rank = 0; rank < m->channel.ranks; rank++)
        if (is_missing(m, rank))
            missing[n++] = rank;
    int at = snprintf(text, MU_TEXT_BYTES, n == 0 ? "The last rank" : n == 1 ? "Rank" : "Ranks");
    for (int i = 0; i < n && at < MU_TEXT_BYTES - 8; i++)
        at += snprintf(text + at, (size_t)(MU_TEXT_BYTES - at), "%s%d", i == 0 ? " " : ", ", missing[i]);
    if (n > 0 && m->group->joined.mesh != NULL && at < MU_TEXT_BYTES) {
        char doing[MU_TEXT_BYTES / 2];
        const int process = missing[0] / mu__n_local(m->group);
        mu__mesh_peer_doing(m->group->joined.mesh, process, doing, sizeof doing);
        snprintf(text + at, (size_t)(MU_TEXT_BYTES - at), " (%s%s%s)", mu__mesh_name(m->group->joined.mesh, process),
                 doing[0] != '\0' ? ", which " : "", doing);
    }
    return text;
}

bool mu__process_is_late(const void *arg, int process)
{
    const member *m = arg;
    const int n = mu__n_local(m->group);
    for (int rank = process * n; rank < (process + 1) * n; rank++)
        if (is_missing(m, rank))
            return true;
    return false;
}
