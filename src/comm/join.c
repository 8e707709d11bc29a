// How processes of a mesh form a group: which are on which host, shared memory there, streams between hosts.
//
// Every decision depends only on data that all processes have exchanged, so all decide the same. A host whose processes
// cannot share memory is treated as several hosts. Independent of collectives.
#include "comm/collectives/group.h"

#include "kernels/kernels.h"

#include <sched.h>

enum { WHAT_BYTES = 128, REASON_BYTES = 200, MAX_RANKS = 256 };

typedef mu_card process_info;

// Whether this process could attach to its host's memory.
typedef struct outcome {
    int32_t failed;
    char reason[REASON_BYTES];
} outcome;

typedef struct joiner {
    mu_mesh *mesh;
    const char *name;
    const mu_communication_options *options;
    int me, n, n_local;
    process_info *infos; // [n]
    int32_t *first;      // [n + 1] first process of each host
    int hosts, host;
    mu_joining joining;
    int tag; // of the group's streams on joining.network
} joiner;

static mu_status exchange(const joiner *j, const char *what, const void *data, size_t bytes, void *all)
{
    char text[WHAT_BYTES];
    mu_blocks blocks = {0};
    snprintf(text, sizeof text, "%s of group \"%.60s\"", what, j->name);
    MU_TRY(mu__mesh_exchange(j->mesh, text, data, bytes, &blocks));
    mu_status status = MU_OK;
    for (int i = 0; i < j->n && status == MU_OK; i++) {
        if (blocks.bytes[i] != bytes)
            status = mu__error(MU_DATA_LOSS,
                               "%s sends %zu bytes for the %s, but %zu are expected; all processes must run the same "
                               "version of Muster.",
                               mu__mesh_name(j->mesh, i), blocks.bytes[i], text, bytes);
        else
            memcpy((char *)all + (size_t)i * bytes, blocks.data[i], bytes);
    }
    mu__blocks_free(&blocks);
    return status;
}

// ---- Members ------------------------------------------------------------------------------------

static uint32_t hash_text(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; text != NULL && *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static int32_t leader_here(const joiner *j, bool shares)
{
    for (int i = 0; shares && i < j->me; i++)
        if (mu__mesh_same_host(j->mesh, i))
            return i;
    return j->me;
}

// Terminates a text of fixed length and replaces control characters, so that it is safe to print.
static void clean_text(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7F)
            *text = '?';
}

// Numbers that are only compared may have any value.
bool mu__card_clean(mu_card *card, int processes)
{
    clean_text(card->isa, sizeof card->isa);
    return card->leader >= 0 && card->leader < processes && card->implementation >= 0 &&
           card->implementation <= INT8_MAX;
}

static mu_status exchange_infos(joiner *j)
{
    const bool shares = mu__setting_bool(MU_SETTING_SHARED_MEMORY);
    process_info own = {.n_local = j->n_local,
                        .leader = leader_here(j, shares),
                        .implementation = (int32_t)j->options->implementation,
                        .deterministic = j->options->deterministic,
                        .shares = shares,
                        .policy = hash_text(j->options->algorithms)};
    snprintf(own.isa, sizeof own.isa, "%s", mu__kernels()->isa);
    (void)sched_getaffinity(0, sizeof own.cpus, &own.cpus); // empty if the system does not say
    MU_TRY(exchange(j, "members", &own, sizeof own, j->infos));
    for (int i = 0; i < j->n; i++)
        if (!mu__card_clean(&j->infos[i], j->n))
            return mu__error(MU_DATA_LOSS,
                             "What %s reports to group \"%s\" is not valid (it is on the host of process %d of %d, "
                             "with communication %d); its memory or the network is faulty.",
                             mu__mesh_name(j->mesh, i), j->name, j->infos[i].leader, j->n, j->infos[i].implementation);
    return MU_OK;
}

static mu_status complain_difference(const joiner *j, int other, const char *what, const char *mine, const char *theirs)
{
    return mu__error(MU_INVALID_ARGUMENT,
                     "The processes of group \"%s\" do not agree: %s has %s %s, %s has %s. Give all the same.", j->name,
                     mu__mesh_name(j->mesh, 0), what, mine, mu__mesh_name(j->mesh, other), theirs);
}

static mu_status check_info(const joiner *j, int i)
{
    const process_info *a = &j->infos[0], *b = &j->infos[i];
    char mine[32], theirs[32];
    snprintf(mine, sizeof mine, "%d", a->n_local);
    snprintf(theirs, sizeof theirs, "%d", b->n_local);
    if (a->n_local != b->n_local)
        return complain_difference(j, i, "replicas:", mine, theirs);
    if (a->implementation != b->implementation)
        return complain_difference(j, i, "the communication",
                                   mu_communication_name((mu_communication)a->implementation),
                                   mu_communication_name((mu_communication)b->implementation));
    if (a->deterministic != b->deterministic)
        return complain_difference(j, i, "deterministic", a->deterministic ? "on" : "off",
                                   b->deterministic ? "on" : "off");
    if (a->shares != b->shares)
        return complain_difference(j, i, "MUSTER_SHARED_MEMORY", a->shares ? "on" : "off", b->shares ? "on" : "off");
    if (a->policy != b->policy)
        return complain_difference(j, i, "algorithms", "of its own", "others");
    if (a->deterministic && memcmp(a->isa, b->isa, sizeof a->isa) != 0)
        return complain_difference(j, i, "the instruction set", a->isa, b->isa);
    return MU_OK;
}

static mu_status check_infos(const joiner *j)
{
    for (int i = 1; i < j->n; i++)
        MU_TRY(check_info(j, i));
    if (j->n_local < 1 || j->n > MAX_RANKS / j->n_local)
        return mu__error(MU_INVALID_ARGUMENT,
                         "Group \"%s\" cannot have %d replicas in each of %d processes; expected 1 to %d in all.",
                         j->name, j->n_local, j->n, MAX_RANKS);
    return MU_OK;
}

// Waiting ranks yield at once if this machine has fewer cores than ranks.
static bool is_crowded(const joiner *j)
{
    cpu_set_t all;
    int ranks = 0;
    CPU_ZERO(&all);
    for (int i = 0; i < j->n; i++)
        if (i == j->me || mu__mesh_same_host(j->mesh, i)) {
            CPU_OR(&all, &all, &j->infos[i].cpus);
            ranks += j->n_local;
        }
    return ranks > CPU_COUNT(&all);
}

// A host is a run of consecutive processes with the same leader.
static void number_hosts(joiner *j)
{
    j->hosts = 0;
    for (int i = 0; i < j->n; i++) {
        if (i == 0 || j->infos[i].leader != j->infos[i - 1].leader)
            j->first[j->hosts++] = i;
        if (i == j->me)
            j->host = j->hosts - 1;
    }
    j->first[j->hosts] = j->n;
}

// ---- Memory of a host ---------------------------------------------------------------------------

static mu_status fill_topology(joiner *j)
{
    int *first = mu__calloc((size_t)j->hosts + 1, sizeof *first);
    if (first == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (int host = 0; host <= j->hosts; host++)
        first[host] = j->first[host] * j->n_local;
    mu__free(j->joining.first);
    j->joining.first = first;
    j->joining.topology = (mu_topology){.ranks = j->n * j->n_local,
                                        .first_local = j->me * j->n_local,
                                        .n_local = j->n_local,
                                        .hosts = j->hosts,
                                        .host = j->host,
                                        .first = first,
                                        .staged = j->hosts < j->n};
    return MU_OK;
}

// Attaches to the memory of this host, which its first process made; reports the result in `out`.
static void attach(joiner *j, const char *address, outcome *out)
{
    mu_topology *at = &j->joining.topology;
    const int here = at->first[at->host + 1] - at->first[at->host];
    const size_t bytes = mu__shm_bytes(at);
    if (at->segment == NULL && address[0] != '\0')
        at->segment = mu__segment_find(address, bytes, here);
    if (at->segment != NULL)
        at->memory = mu__segment_memory(at->segment, &at->bytes);
    else
        out->failed = 1;
    const mu_error error = mu_error_take();
    if (out->failed)
        snprintf(out->reason, sizeof out->reason, "%.*s", REASON_BYTES - 1, error.message);
}

// All processes exchange their results; a host on which one failed is split into several. `apart`: some were split.
static mu_status share_outcome(joiner *j, const outcome *own, bool *apart)
{
    outcome *all = mu__calloc((size_t)j->n, sizeof *all);
    mu_status status = all != NULL ? exchange(j, "shared memory", own, sizeof *own, all) : MU_RESOURCE_EXHAUSTED;
    *apart = false;
    for (int host = 0; host < j->hosts && status == MU_OK; host++)
        for (int i = j->first[host]; i < j->first[host + 1]; i++) {
            if (!all[i].failed)
                continue;
            clean_text(all[i].reason, sizeof all[i].reason);
            if (host == j->host && j->me == j->first[host])
                mu__log(MU_LOG_WARNING,
                        "%s cannot share memory with the processes of its host, so they use TCP instead: %s",
                        mu__mesh_name(j->mesh, i), all[i].reason);
            *apart = true;
            for (int k = j->first[host]; k < j->first[host + 1]; k++)
                j->infos[k].leader = k;
            break;
        }
    mu__free(all);
    return status;
}

static mu_status share_memory(joiner *j)
{
    const bool alone = j->first[j->host + 1] - j->first[j->host] == 1, leads = j->me == j->first[j->host];
    mu_topology *at = &j->joining.topology;
    char(*addresses)[MU_SEGMENT_ADDRESS] = mu__calloc((size_t)j->n, sizeof *addresses);
    char own[MU_SEGMENT_ADDRESS] = "";
    outcome out = {0};
    bool apart = false;
    mu_status status = addresses != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && leads && !alone)
        at->segment = mu__segment_new(mu__shm_bytes(at), at->first[at->host + 1] - at->first[at->host], own);
    mu_error_value why = {0};
    mu__error_move(&why);
    if (status == MU_OK)
        status = exchange(j, "places", own, sizeof own, addresses);
    if (status == MU_OK && !alone) {
        (void)mu__error_raise(&why);
        clean_text(addresses[j->first[j->host]], sizeof *addresses);
        attach(j, addresses[j->first[j->host]], &out);
    }
    mu__free(addresses);
    if (status == MU_OK)
        status = share_outcome(j, &out, &apart);
    if (status != MU_OK || !apart)
        return status;
    mu_segment *segment = at->segment;
    number_hosts(j);
    MU_TRY(fill_topology(j));
    if (j->first[j->host + 1] - j->first[j->host] > 1) {
        at->segment = segment;
        at->memory = mu__segment_memory(segment, &at->bytes);
    } else {
        mu_release(segment);
    }
    return MU_OK;
}

// ---- Streams between hosts ----------------------------------------------------------------------

static void close_streams(mu_stream **streams, int n)
{
    for (int i = 0; i < n; i++)
        if (streams[i] != NULL)
            mu__stream_close(streams[i]);
}

// Opens the network that the options select, if there is more than one host. All processes call it.
static mu_status open_network(joiner *j)
{
    const mu_communication asked = j->options->implementation;
    const char *module = asked == MU_COMM_MPI ? "mpi" : asked == MU_COMM_UCX ? "ucx" : NULL;
    if (module == NULL || j->hosts == 1)
        return MU_OK;
    j->joining.network = mu__network_open(j->mesh, module, j->options->mpi_communicator);
    if (j->joining.network == NULL)
        return mu_error_code();
    j->tag = mu__network_next_tag(j->joining.network);
    return MU_OK;
}

static mu_stream *stream_to(const joiner *j, int host, const char *name)
{
    return j->joining.network != NULL ? mu__network_stream(j->joining.network, j->first[host], j->tag)
                                      : mu__mesh_stream(j->mesh, j->first[host], name);
}

// Every process connects to hosts in the same order, the lowest first, which prevents deadlock.
static mu_status build_interhost(joiner *j)
{
    char name[WHAT_BYTES];
    if (j->hosts == 1 || j->me != j->first[j->host])
        return MU_OK;
    mu_stream **streams = mu__calloc((size_t)j->hosts, sizeof *streams);
    mu_status status = streams != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    snprintf(name, sizeof name, "group %.60s", j->name);
    for (int host = 0; host < j->hosts && status == MU_OK; host++)
        if (host != j->host && (streams[host] = stream_to(j, host, name)) == NULL)
            status = mu_error_code();
    if (status == MU_OK && (j->joining.topology.interhost = mu__interhost_new(&j->joining.topology, streams)) == NULL)
        status = MU_RESOURCE_EXHAUSTED;
    if (status != MU_OK && streams != NULL)
        close_streams(streams, j->hosts);
    mu__free(streams);
    return status;
}

// ---- Joining ------------------------------------------------------------------------------------

static mu_placing placing_of(const joiner *j)
{
    if (j->hosts == 1)
        return j->joining.crowded ? MU_PLACED_CROWDED : MU_PLACED_TOGETHER;
    return j->hosts == j->n * j->n_local ? MU_PLACED_APART : MU_PLACED_MIXED;
}

static mu_status choose_policy(joiner *j)
{
    const mu_communication_options *options = j->options;
    const char *own = mu__policy_of(options->implementation, placing_of(j), options->deterministic);
    mu_policy policy;
    if (own == NULL)
        return mu_error_code();
    j->joining.policy = options->algorithms != NULL ? options->algorithms : own;
    MU_TRY(mu__policy_parse(j->joining.policy, &policy));
    return options->deterministic ? mu__policy_check_order(&policy) : MU_OK;
}

const char *mu__group_price(const mu_group *group, char text[MU_PRICE_BYTES])
{
    const mu_topology *at = &group->joined.topology;
    if (at->hosts <= 1 || at->hosts == at->ranks)
        snprintf(text, MU_PRICE_BYTES, "costs nothing here, sums are in rank order anyway");
    else
        snprintf(text, MU_PRICE_BYTES,
                 "sums go from host to host and back: %d steps for each chunk instead of 2, with as many bytes per "
                 "host as before (float16 and bfloat16: 1.5 times as many), and only one rank per host adds",
                 2 * (at->hosts - 1));
    return text;
}

static mu_status join(joiner *j)
{
    j->infos = mu__calloc((size_t)j->n, sizeof *j->infos);
    j->first = mu__calloc((size_t)j->n + 1, sizeof *j->first);
    if (j->infos == NULL || j->first == NULL)
        return MU_RESOURCE_EXHAUSTED;
    MU_TRY(exchange_infos(j));
    MU_TRY(check_infos(j));
    j->joining.crowded = is_crowded(j);
    number_hosts(j);
    MU_TRY(fill_topology(j));
    MU_TRY(choose_policy(j));
    if (j->hosts < j->n)
        MU_TRY(share_memory(j));
    MU_TRY(choose_policy(j));
    MU_TRY(open_network(j));
    MU_TRY(build_interhost(j));
    j->joining.transport = j->hosts == 1 ? &mu__transport_shm : &mu__transport_interhost;
    j->joining.timeout =
        j->options->timeout_seconds > 0 ? j->options->timeout_seconds : mu__setting_real(MU_SETTING_TIMEOUT);
    j->joining.mesh = mu_retain(j->mesh);
    return MU_OK;
}

mu_group *mu__group_join(mu_mesh *mesh, int n_local, const char *name, const mu_communication_options *options)
{
    static const mu_communication_options defaults;
    if (mu__pending())
        return NULL;
    joiner j = {.mesh = mesh,
                .name = name,
                .options = options != NULL ? options : &defaults,
                .me = mu__mesh_rank(mesh),
                .n = mu__mesh_ranks(mesh),
                .n_local = n_local};
    const mu_status status = join(&j);
    mu__free(j.infos);
    mu__free(j.first);
    if (status == MU_OK)
        return mu__group_open(name, &j.joining);
    mu__interhost_free(j.joining.topology.interhost);
    mu_release(j.joining.topology.segment);
    mu_release(j.joining.network);
    mu__free(j.joining.first);
    return NULL;
}
