// What groups say: which operation a rank is in, where two ranks differ, who is missing and what it does instead.
//
// Ranks of several processes are named with their process. Knows nothing of how anything is carried out.
#include "comm/group.h"

const char *mu__kind_name(mu_collective_kind kind)
{
    static const char *const names[] = {"all_reduce", "all_gather",     "broadcast",
                                        "all_to_all", "reduce_scatter", "barrier"};
    return (unsigned)kind < MU_COUNT(names) ? names[kind] : "unknown";
}

static const char *reduction_name(int32_t reduction)
{
    static const char *const names[] = {"sum", "mean", "min", "max"};
    return (unsigned)reduction < MU_COUNT(names) ? names[reduction] : "unknown";
}

const char *mu__ticket_text(const mu_ticket *ticket, char text[MU_TEXT_BYTES])
{
    const mu_collective_kind kind = (mu_collective_kind)ticket->same.kind;
    int n = snprintf(text, MU_TEXT_BYTES, "%s \"%.*s\" (run %lld, op %lld", mu__kind_name(kind), MU_TICKET_NAME,
                     ticket->same.name, (long long)ticket->same.run, (long long)ticket->same.number);
    if (kind != MU_KIND_BARRIER)
        n += snprintf(text + n, (size_t)(MU_TEXT_BYTES - n), ", %lld elements of %s", (long long)ticket->count,
                      mu_dtype_name((mu_dtype)ticket->same.dtype));
    if (kind == MU_KIND_ALL_REDUCE || kind == MU_KIND_REDUCE_SCATTER)
        n += snprintf(text + n, (size_t)(MU_TEXT_BYTES - n), ", %s", reduction_name(ticket->same.reduction));
    if (kind == MU_KIND_BROADCAST)
        n += snprintf(text + n, (size_t)(MU_TEXT_BYTES - n), ", from rank %d", ticket->same.root);
    snprintf(text + n, (size_t)(MU_TEXT_BYTES - n), ")");
    return text;
}

mu_ticket *mu__ticket_of(const member *m, int rank)
{
    return m->awaited != 0 ? mu__board_ticket(m, rank) : m->group->transport->ticket(&m->port, rank);
}

int mu__n_local(const mu_group *group) { return group->joined.seating.n_local; }

// "rank 3", and in a group of several processes whose it is.
enum { RANK_BYTES = 96 };
static const char *rank_text(const mu_group *group, int rank, char text[RANK_BYTES])
{
    if (group->joined.mesh == NULL)
        snprintf(text, RANK_BYTES, "rank %d", rank);
    else
        snprintf(text, RANK_BYTES, "rank %d of %s", rank, mu__mesh_name(group->joined.mesh, rank / mu__n_local(group)));
    return text;
}

// Only counts and roots are the caller's arguments; anything else says that the ranks run different programs.
mu_status mu__complain_mismatch(const member *m, int rank)
{
    const mu_ticket *a = mu__ticket_of(m, 0), *b = mu__ticket_of(m, rank);
    char text_a[MU_TEXT_BYTES], text_b[MU_TEXT_BYTES], rank_a[RANK_BYTES], rank_b[RANK_BYTES];
    mu_ticket like_a = *b;
    like_a.same.count = a->same.count;
    like_a.same.root = a->same.root;
    const bool arguments = memcmp(&like_a.same, &a->same, sizeof a->same) == 0;
    return mu__error(arguments ? MU_INVALID_ARGUMENT : MU_INTERNAL,
                     "The ranks of group \"%s\" do not agree: %s is in %s, %s in %s. Every replica must run the same "
                     "collectives in the same order with the same %s.",
                     m->group->name, rank_text(m->group, 0, rank_a), mu__ticket_text(a, text_a),
                     rank_text(m->group, rank, rank_b), mu__ticket_text(b, text_b),
                     arguments ? "counts and roots" : "names and types");
}

mu_status mu__complain_passed(const member *m, int rank, const mu_ticket *theirs)
{
    char text_a[MU_TEXT_BYTES], text_b[MU_TEXT_BYTES], rank_a[RANK_BYTES], rank_b[RANK_BYTES];
    return mu__error(MU_INTERNAL,
                     "The ranks of group \"%s\" do not agree: %s is in %s, %s in %s. Every replica must run the same "
                     "collectives in the same order with the same names and types.",
                     m->group->name, rank_text(m->group, m->port.rank, rank_a),
                     mu__ticket_text(mu__ticket_of(m, m->port.rank), text_a), rank_text(m->group, rank, rank_b),
                     mu__ticket_text(theirs, text_b));
}

// "Rank 1" or "Ranks 1, 3": those that this rank waited for in vain; in a group of several processes also whose the
// first of them is.
static bool is_missing(const member *m, int rank)
{
    const mu_port *port = &m->port;
    return m->awaited != 0 && port->waiting_for < 0 ? !mu__board_has_come(m, rank)
                                                    : !m->group->transport->has_come(port, rank);
}

const char *mu__missing_text(const member *m, char text[MU_TEXT_BYTES])
{
    int missing[MU_MAX_RANKS], n = 0;
    for (int rank = 0; rank < m->port.ranks; rank++)
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
