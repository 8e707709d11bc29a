// Stores: what the parameter servers keep, with a copy of each on another server.
//
// Store k is what parameter server k is given to keep: the variables placed on it, and what other parts add (store_part
// below). Without copies a store is in one process for good, and nothing here is used. With copies each store has a
// primary, which answers, and a copy, which the primary keeps up to date by sending it every request that changes
// something, in order; an update is acknowledged when the copy has it. The coordinator alone decides who is what
// (placement.c); each decision has a higher epoch than all before it, and every request and answer carries one. Clients
// number their requests, so that one sent again to whoever is primary now is applied once (seen.c, store_client.c).
//
// docs/decisions/0040 has the reasons. All is made of steps that reach the world only through mu_system, so that it
// runs in the simulator too: threads of the library only repeat the steps.
#ifndef MU_SRC_RPC_STORE_H
#define MU_SRC_RPC_STORE_H

#include "base/planted.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"

#include <pthread.h>

enum { MU_MOST_STORES = 4096 };

// The primary relies on its copy's answers for this part of the heartbeat after it has asked; the copy, and the
// coordinator, keep what they promised for a little longer, because clocks differ.
#define MU_LEASE      0.5
#define MU_LEASE_KEPT 0.65

// ---- Wire form (docs/rpc.md) --------------------------------------------------------------------

// Coordinators give epochs and numbers of cuts, each above those that any server knows. They ignore a server with
// numbers above MU_STATE_MOST, so what they give stays far below this limit.
#define MU_MOST_EPOCH ((int64_t)1 << 62)
static inline bool mu__epoch_valid(int64_t epoch) { return epoch >= 0 && epoch <= MU_MOST_EPOCH; }

// Numbers of a request "muster.store.call", and of its answer.
enum {
    MU_ASK_STORE,
    MU_ASK_EPOCH,
    MU_ASK_CUT,
    MU_ASK_CLIENT,
    MU_ASK_REQUEST,
    MU_ASK_OLDEST,
    MU_ASK_KNOWN,
    MU_ASK_KNOWN_EPOCH,
    MU_N_ASK
};
enum { MU_ANSWER_EPOCH, MU_ANSWER_CUT, MU_ANSWER_CODE, MU_ANSWER_SEQUENCE, MU_N_ANSWER };
enum { MU_NOT_PRIMARY = -1 }; // in the place of a status code: ask another server

// Numbers of an order "muster.store.lead".
typedef enum mu_order {
    MU_ORDER_EMPTY,    // become primary of a new, empty store
    MU_ORDER_PROMOTE,  // become primary with what you have as a copy
    MU_ORDER_CONTINUE, // stay primary, with another copy or none
    MU_ORDER_RESTORE,  // become primary with what the snapshot has
    MU_ORDER_LOST      // tell clients that nobody has it
} mu_order;
enum {
    MU_LEAD_STORE,
    MU_LEAD_EPOCH,
    MU_LEAD_ORDER,
    MU_LEAD_FROM_EPOCH,
    MU_LEAD_PROCESS,
    MU_LEAD_COPY_PROCESS,
    MU_LEAD_CUT,
    MU_N_LEAD
};

// Numbers of a message from a primary to its copy, "muster.store.copy", and what one is about.
typedef enum mu_copied { MU_COPIED_BEGIN, MU_COPIED_RESOURCE, MU_COPIED_SEEN, MU_COPIED_RECORDS } mu_copied;
enum {
    MU_COPY_STORE,
    MU_COPY_EPOCH,
    MU_COPY_PROCESS,
    MU_COPY_KIND,
    MU_COPY_POSITION,
    MU_COPY_SEQUENCE,
    MU_COPY_COMPLETE,
    MU_COPY_CUT,
    MU_N_COPY
};
// Numbers of a record: a request that changed something. One that failed has the method "". One whose arguments were
// staged at the copy has a number more, and no arguments.
enum {
    MU_RECORD_SEQUENCE,
    MU_RECORD_CLIENT,
    MU_RECORD_REQUEST,
    MU_RECORD_OLDEST,
    MU_N_RECORD,
    MU_RECORD_STAGED = MU_N_RECORD,
    MU_N_RECORD_STAGED
};
// Numbers of "muster.store.ahead", which stages arguments of a large change at the copy under a number. `oldest` is the
// lowest number that the primary still uses. Number 0 comes with nothing, and only says which that is.
enum { MU_STAGE_NOTHING = 0 };
enum { MU_STAGE_STORE, MU_STAGE_EPOCH, MU_STAGE_PROCESS, MU_STAGE_NUMBER, MU_STAGE_OLDEST, MU_N_STAGE };

// A row of "muster.store.state". One with MU_ROW_EARLIER in the place of a role is about an earlier time that the store
// went back to a snapshot: its epoch, the snapshot's sequence number as applied, and how many updates it lost.
enum {
    MU_STATE_STORE,
    MU_STATE_ROLE,
    MU_STATE_EPOCH,
    MU_STATE_APPLIED,
    MU_STATE_COPIED,
    MU_STATE_COMPLETE,
    MU_STATE_LOST,
    MU_STATE_CUT,
    MU_STATE_STUCK,
    MU_N_STATE
};
enum { MU_ROW_EARLIER = 3 };

// mu__numbers_value makes a vector of int64; mu__numbers_of reads one of exactly n. Errors: INVALID_ARGUMENT.
mu_value *mu__numbers_value(const int64_t *numbers, int n);
mu_status mu__numbers_of(const mu_value *value, int64_t *numbers, int n);

// mu__state_rows finds the rows in what a server answers to "muster.store.state" (borrowed) and returns their number.
// It is 0 if the answer is something else, or if a row has an epoch, a cut or a count of lost updates that is negative
// or above MU_STATE_MOST: the coordinator counts on from there, and adds up those of all stores.
#define MU_STATE_MOST ((int64_t)1 << 48)
// mu__cut_valid tells whether a client believes that there is a cut of this number, which it sends on.
static inline bool mu__cut_valid(int64_t cut) { return cut >= 0 && cut <= MU_STATE_MOST; }
int64_t mu__state_rows(const mu_value *answer, const int64_t **rows);

// ---- Requests seen (seen.c) ---------------------------------------------------------------------

// The requests of each client that changed something and whose answers the client may not have yet. A client says with
// each request which is the oldest that it waits for: older ones are forgotten, and refused if they come late.
typedef struct mu_seen_request {
    int64_t number, sequence; // sequence 0: it was done, and its answer is no longer kept
    mu_value *answer;         // retained; NULL: nothing
    size_t bytes, n_elements; // of the answer
} mu_seen_request;

typedef struct mu_seen_client {
    int64_t client, oldest;
    uint64_t used; // when, in calls of mu__seen_find
    int64_t used_ns;
    size_t n_answers;
    struct {
        mu_seen_request *items;
        size_t n, capacity;
    } requests;
} mu_seen_client;

typedef struct mu_seen {
    uint64_t calls;
    size_t n_requests;
    size_t bytes, n_elements; // of all answers
    bool warned;              // that answers are dropped which clients may still ask for
    int64_t look_ns;          // when answers of silent clients are looked for next
    struct {
        mu_seen_client *items;
        size_t n, capacity;
    } clients;
} mu_seen;

typedef enum mu_seen_state { MU_SEEN_NEW, MU_SEEN_DONE, MU_SEEN_LATE } mu_seen_state;

// mu__seen_find says what is known of a request, which is `out` if it is done, and forgets what the client has.
// mu__seen_add makes room for one that is about to change something, so that mu__seen_done, which notes its answer,
// cannot fail. Where answers have more than MU_SEEN_BYTES, it drops those of clients that were silent for longer than
// MUSTER_TIMEOUT; the requests stay. Where they have more than 1 GiB, or 262144 elements of lists, it drops answers
// until they have not, whenever they were given: first those of the client that was silent for longest. With 262144
// requests or 8192 clients, it forgets the client that was silent for longest, never the one that asks, and its
// requests with it. Errors: RESOURCE_EXHAUSTED.
#define MU_SEEN_BYTES ((size_t)64 << 20)
mu_seen_state mu__seen_find(mu_seen *seen, int64_t client, int64_t number, int64_t oldest, const mu_seen_request **out);
mu_status mu__seen_add(mu_seen *seen, int64_t client, int64_t oldest);
void mu__seen_done(mu_seen *seen, int64_t client, int64_t number, int64_t sequence, mu_value *answer);
void mu__seen_clear(mu_seen *seen);
// mu__seen_value is the table as a value, for a copy or a snapshot; mu__seen_load reads it. Errors: DATA_LOSS.
mu_value *mu__seen_value(const mu_seen *seen);
mu_status mu__seen_load(mu_seen *seen, const mu_value *value);

// ---- Times that a store went back to a snapshot (restores.c) -------------------------------------

// A client tells a store which of its changes it knows of: the last sequence number that it has seen, and the epoch of
// that. Which of them are lost is decided by the first time after that epoch that the store went back, not by the last.
// Updates that two clients know of are counted once: each time has the most that any client has lost by it. The
// coordinator has the list, as it decides all of them, and gives it to whoever leads the store. (docs/decisions/0148)
typedef struct mu_restore {
    int64_t epoch;    // of the order to go back
    int64_t sequence; // of the snapshot
    int64_t lost;     // at least so many changes that clients had seen are not in it
} mu_restore;

enum { MU_MOST_RESTORES = 64 };
typedef struct mu_restores {
    int64_t forgotten; // epoch of the last one that had no place in the list; 0: none
    int n;
    mu_restore items[MU_MOST_RESTORES]; // in the order of their epochs
} mu_restores;

// mu__restores_add adds one of a higher epoch, in place of the oldest if there are too many. mu__restores_find returns
// the one of an epoch (NULL: none, no error).
// mu__restores_count counts what a client lost which has seen the change `known` in an epoch. It counts nothing if that
// is older than one that was forgotten, since it may be counted there. mu__restores_take replaces the list, and keeps
// what was counted for those that are in both.
void mu__restores_add(mu_restores *restores, int64_t epoch, int64_t sequence);
mu_restore *mu__restores_find(mu_restores *restores, int64_t epoch);
void mu__restores_count(mu_restores *restores, int64_t known, int64_t known_epoch);
void mu__restores_take(mu_restores *restores, const mu_restores *given);
// mu__restores_value is the list as a value, without what was lost; mu__restores_of reads one whose times are all
// before an epoch. Errors: INVALID_ARGUMENT.
mu_value *mu__restores_value(const mu_restores *restores);
mu_status mu__restores_of(const mu_value *value, int64_t epoch, mu_restores *out);

// ---- One store in one process (store.c) ---------------------------------------------------------

typedef enum mu_store_role { MU_STORE_NONE, MU_STORE_COPY, MU_STORE_PRIMARY } mu_store_role;

// A call whose answer waits until the copy has all that the answer shows.
typedef struct mu_waiting {
    struct mu_waiting *next;
    mu_server_call *call;
    int64_t sequence, since_ns;
    int64_t code;
    mu_value *body; // retained; NULL: nothing
} mu_waiting;

// Something on its way to the copy.
typedef struct mu_outbound {
    mu_copied kind;
    int64_t sequence;
    mu_value *value; // retained
    size_t bytes;    // of the value in a message
} mu_outbound;

// The arguments of a large change, which came before it.
typedef struct mu_staged_arguments {
    int64_t number;
    mu_value *value; // retained
    size_t bytes;
} mu_staged_arguments;

typedef struct mu_stores mu_stores;
struct mu_blocked;
struct mu_staging;
typedef struct mu_store {
    mu_object object;
    mu_stores *stores;
    int number;
    mu_store_role role;
    bool gone;                  // nobody has it any more
    int64_t epoch;              // of its role: no message of an earlier one counts
    void *parts[MU_MOST_PARTS]; // owned
    pthread_mutex_t changing;   // held while a request changes something: changes have one order
    bool has_lock;
    int64_t begun, applied; // sequence numbers of the last change that has begun, and that is done
    mu_seen seen;
    mu_waiting *first_waiting, *last_waiting;
    struct mu_blocked *first_blocked; // requests that wait for others' changes, in the order of their arrival
    int64_t blocked_ns;               // when all of them are tried next; 0: now

    // As a primary.
    mu_rpc_client *copy; // retained; NULL: it has none
    uint64_t copy_process;
    int64_t copied;               // the copy has all up to here
    bool complete;                // the transfer has ended: answers wait for the copy (as a copy: this process has all)
    int64_t complete_at;          // sequence number since which they do
    bool completion_acknowledged; // the copy knows that it has all
    bool parted;                  // the copy lacks a change: nothing is answered until the coordinator gives an order
    bool replaced;                // likewise, because the copy was ordered to take over
    bool goes_back;               // the coordinator may give it to another server, as a snapshot has it
    struct {
        mu_outbound *items;
        size_t n, capacity, first;
        size_t bytes;    // of those from `first` on
        size_t taken;    // bytes that the copy has acknowledged since it was made
        size_t recorded; // bytes of the changes since then
    } outbound;
    bool transferred;                      // the copy has the state that the transfer began with
    bool logged_slow;                      // the log has said that the copy slows updates down
    mu_rpc_result *sending;                // owned
    size_t n_sending;                      // of `outbound` in it
    int64_t position;                      // of the next message (as a copy: of the next one from the primary)
    int64_t sending_to, sent_ns, retry_ns; // the last sequence number in it; when
    size_t sending_bytes;                  // of `outbound` in it
    bool sending_large;                    // in parts, which show whether the copy is there
    size_t sent_bytes;                     // of a large one: the most that any attempt to send it has sent
    int64_t part_ns;                       // when that was last seen to become more
    int64_t heard_ns;                      // when the copy last answered, took a part of a large message, or was made
    bool sending_completion;               // it says that the copy has all
    bool again;                            // the last message was not answered
    int64_t lease_ns;                      // until when the copy's word holds,
    unsigned lease_link, sent_link;   // and through which connection, by mu__client_ended; of the message being sent
    struct mu_staging *first_staging; // large changes whose arguments the copy gets before them (store_staging.c)
    int64_t n_staged;                 // so far
    int64_t dropped_staged;           // the last of them that the copy may keep although no change uses it; 0: none

    // As a copy.
    int64_t led_epoch;       // the last in which another server leads it, as the coordinator says; 0: none
    uint64_t primary_client; // the primary's connection
    int64_t promised_ns;     // not promoted before
    bool promoting;          // it is to be, from then on
    struct {
        mu_staged_arguments *items;
        size_t n, capacity, bytes;
        int64_t oldest;   // those below are no longer used
        char name[16];    // of the holder: the store's number
        mu_holder holder; // of the bytes
    } staged;

    // Snapshots (snapshot.c).
    int64_t cut;                        // the last cut that this store has made
    mu_value *captured, *captured_seen; // of that cut, until it is written; retained
    int64_t captured_at;                // its sequence number
    mu_restores restores;               // while it is primary
    char not_back[500]; // why this server could not take it back to a snapshot, as clients hear; "": it can
} mu_store;

// All that follow are called with the lock of the stores held, unless they say otherwise.
mu_store *mu__store_new(mu_stores *stores, int number);
// mu__store_ready makes the parts that are not there. The caller holds `changing`, not the lock.
mu_status mu__store_ready(mu_store *store);
// mu__store_drop makes a store know nothing: no role, no contents. mu__store_step_down does so because of an epoch.
void mu__store_drop(mu_store *store);
void mu__store_step_down(mu_store *store, int64_t epoch);
mu_status mu__store_wait(mu_store *store, mu_server_call *call, int64_t sequence, int64_t code, mu_value *body);
// mu__store_settled tells whether an answer that shows changes up to `sequence` may be given now.
bool mu__store_settled(const mu_store *store, int64_t sequence, int64_t now);
// mu__store_release_waiting answers what need not wait any longer.
void mu__store_release_waiting(mu_store *store, int64_t now);
// mu__store_epoch is the last epoch that this process has heard of, of this store.
int64_t mu__store_epoch(const mu_store *store);
// mu__store_led_ns is until when this process may answer as the store's primary.
int64_t mu__store_led_ns(const mu_store *store);
mu_value *mu__store_answer(const mu_store *store, int64_t code, mu_value *body);
// mu__store_state writes the store's rows, after each other, and returns how many: at most MU_MOST_STATE_ROWS.
enum { MU_MOST_STATE_ROWS = 1 + MU_MOST_RESTORES };
int mu__store_state(const mu_store *store, int64_t *rows);
int64_t mu__store_step(mu_store *store, int64_t now);
// mu__store_capture returns everything that the store keeps as a list of [part, name, value], of the pool.
// mu__store_load reads one such row. The caller holds `changing`, not the lock, so the store may be dropped meanwhile.
// Errors: ABORTED if it was.
mu_value *mu__store_capture(mu_store *store);
mu_status mu__store_load(mu_store *store, const mu_value *row);
#define MU_CONCERNS_ALL UINT64_MAX // a change of several things: whoever waits looks
// A request as it runs on this thread.
typedef struct mu_change {
    mu_store *store;
    int64_t ask[MU_N_ASK];
    bool begun, seen;                 // seen: it was done before
    bool repeated;                    // its primary has done it, and this process has the copy
    bool torn;                        // it failed, and has changed something
    uint64_t concerns;                // hash of the name of what others may wait for; 0: nothing; or MU_CONCERNS_ALL
    bool waits;                       // it failed because others' changes must come first
    char *waits_for;                  // the name of what they change; owned
    const struct mu_blocked *blocked; // its place among those that wait; NULL: it has none yet
    int64_t since_ns, until_ns;       // when the request first came; when it no longer waits
    mu_value *arguments;              // borrowed; NULL: none
    bool large;                       // it waits until the copy has its arguments
    int64_t staged;                   // the number under which the copy gets them; 0: none
    int64_t sequence;
    int64_t seen_sequence;
    mu_value *seen_answer; // retained
} mu_change;
// mu__store_run runs a method of a part, which is looked up by name, without the lock. After it mu__store_changed, with
// the lock held, gives up the place of a change that has begun, and tells the copy. `answer` NULL without an error is a
// result too.
mu_value *mu__store_run(mu_change *change, const char *method, mu_value *arguments);
void mu__store_changed(mu_change *change, const char *method, mu_value *arguments, mu_value *answer, bool failed);

// mu__store_finish gives up the place of a request that mu__store_run has run, and answers it, with the lock held: the
// answer is returned, or comes later (NULL). `call`: it was deferred; NULL: it runs on this thread.
mu_value *mu__store_finish(mu_change *change, mu_server_call *call, const char *method, mu_value *arguments,
                           mu_value *value);
mu_value *mu__store_refusal(const mu_stores *stores, const mu_store *store, int64_t code);

// ---- Requests that wait for others' changes (store_blocked.c) -----------------------------------

// mu__blocked_add keeps a request that waits, whose call was deferred; with the lock held. mu__blocked_is_next tells
// whether no earlier one waits for the same name. mu__blocked_concerns makes those due that wait for a name, by its
// hash, or all of them (MU_CONCERNS_ALL), also with the lock held. mu__blocked_run runs those that are due, without the
// lock, on one thread at a time, and returns when it is due again.
mu_status mu__blocked_add(mu_store *store, mu_server_call *call, mu_change *change, const char *method,
                          mu_value *arguments);
bool mu__blocked_is_next(const mu_store *store, const struct mu_blocked *blocked, const char *name);
void mu__blocked_concerns(mu_store *store, uint64_t name);
uint64_t mu__blocked_hash(const char *name); // never 0
// mu__blocked_due makes the request due whose arguments are staged under a number; mu__blocked_is_due tells whether
// any is; with the lock held.
void mu__blocked_due(mu_store *store, int64_t staged);
bool mu__blocked_is_due(const mu_store *store);
int64_t mu__blocked_run(mu_store *store);
void mu__blocked_free(mu_store *store);

// ---- The copy (store_copy.c) --------------------------------------------------------------------

// What changes may come during a transfer before their answers wait for the copy, and how little must wait for the copy
// to make it complete.
#define MU_COPY_FREE_BYTES ((size_t)16 << 20)
// mu__copying_begin makes the primary send its copy everything, from a state that `captured` has. mu__copying_record
// adds a change. mu__copying_step sends what waits, and takes the copy's answer; it returns when it is due again.
// mu__copying_keeps_up tells whether the copy has taken enough, during a transfer, that changes may be acknowledged.
mu_status mu__copying_begin(mu_store *store, const mu_value *captured, const mu_value *seen);
mu_status mu__copying_record(mu_store *store, int64_t sequence, mu_value *record);
int64_t mu__copying_step(mu_store *store, int64_t now);
bool mu__copying_keeps_up(const mu_store *store);
void mu__copying_end(mu_store *store);
// mu__copying_take takes a primary's message, as the copy. Without the lock.
mu_value *mu__copying_take(mu_stores *stores, mu_value *arguments);

// ---- Large changes (store_staging.c) ------------------------------------------------------------

// From how many bytes of arguments on a change is staged, and how many bytes a copy keeps of such changes before
// they have their place (or one of any size), if its budget has room for them.
#ifdef MU_PLANT_DEFECTS
extern size_t mu__large_change;
#define MU_LARGE_CHANGE mu__large_change
#else
#define MU_LARGE_CHANGE ((size_t)4 << 20)
#endif
#define MU_STAGED_BYTES ((size_t)64 << 20)
// With the lock held, as the primary. mu__staging_wait tells whether a request with these arguments must wait before it
// changes something, because the copy does not have them; it begins to send them if need be, under *number (0: they
// have none yet). mu__staging_record notes the change that was made with them; false: the copy does not have them.
// mu__staging_drop gives up what no change was made with, which the copy hears of. mu__staging_step sends and takes
// answers; mu__staging_copied forgets what the copy has repeated. mu__staging_bytes counts what it has not.
bool mu__staging_wait(mu_store *store, int64_t *number, mu_value *arguments);
bool mu__staging_record(mu_store *store, int64_t number, int64_t sequence);
void mu__staging_drop(mu_store *store, int64_t number);
void mu__staging_step(mu_store *store);
void mu__staging_copied(mu_store *store);
size_t mu__staging_bytes(const mu_store *store);
// As the copy, without the lock. mu__staging_take takes "muster.store.ahead". Errors: INVALID_ARGUMENT; its answer has
// RESOURCE_EXHAUSTED if there is no room: the change is then sent in its place. mu__staging_received returns what came
// under a number, once, of the pool. Errors: DATA_LOSS.
mu_value *mu__staging_take(mu_stores *stores, mu_value *arguments);
mu_value *mu__staging_received(mu_store *store, int64_t number);
// mu__staging_end forgets everything, with the lock held: the store is no copy any more, or has another one.
void mu__staging_end(mu_store *store);

// ---- Orders to lead (store_lead.c) --------------------------------------------------------------

// An order, and what comes with it.
typedef struct mu_lead {
    int64_t numbers[MU_N_LEAD];
    char *copy, *folder;  // the copy's address; the folder of snapshots; "": none
    bool has_restores;    // coordinators of earlier releases give none
    mu_restores restores; // the times before this order that the store went back
} mu_lead;
// mu__store_take_lead follows an order. Without the lock. Errors: ABORTED for an order that came late;
// FAILED_PRECONDITION if the store is not what the order takes it for; UNAVAILABLE while the primary before it may
// still answer; those of a snapshot.
mu_status mu__store_take_lead(mu_store *store, const mu_lead *lead);

// ---- Snapshots (snapshot.c) ---------------------------------------------------------------------

// A cut is one state of every store such that no store has a change that some client made after it had seen an answer
// given after another store's cut: requests and answers carry the number of the last cut that their sender knows, and a
// store makes its cut before the first change that comes with a higher number (Lai and Yang, "On Distributed
// Snapshots", Information Processing Letters 25, 1987).
//
// mu__snapshot_before makes the cut if the store has not; the caller holds `changing`, not the lock. mu__snapshot_write
// writes what the cut has to a file of the folder; mu__snapshot_read makes it the contents of an empty store. Both
// return the sequence number of the cut, -1 on error. mu__snapshot_delete_before deletes the store's files of earlier
// cuts than one that all stores have written.
void mu__snapshot_before(mu_store *store, int64_t cut);
int64_t mu__snapshot_write(mu_store *store, int64_t cut, const char *folder);
int64_t mu__snapshot_read(mu_store *store, int64_t cut, const char *folder);
void mu__snapshot_delete_before(const mu_store *store, int64_t cut, const char *folder);

// ---- All stores of a process (stores.c) ---------------------------------------------------------

struct mu_stores {
    mu_object object;
    mu_rpc_server *server; // borrowed: it owns this
    pthread_mutex_t lock;
    mu_monitor wake; // wakes the threads; its lock is taken last
    bool has_lock, ending;
    // A thread keeps the leases and the copies, and never waits for a change; another runs the requests that waited.
    struct mu_stores_thread {
        mu_stores *stores;
        int64_t (*step)(mu_stores *stores); // does what is due, and returns when it is due again
        bool woken;
        mu_worker *worker;
    } threads[2];
    mu_kept *kept; // retained
    double heartbeat;
    int64_t cut;                    // the highest cut that this process knows of
    int64_t polls[2], polled_ns[2]; // the coordinator's last questions, and when they were answered
    int64_t lease_ns;               // until when the coordinator replaces no primary without a copy
    struct {
        mu_store **items;
        size_t n, capacity;
    } stores;
    struct {
        mu_rpc_client **items;
        size_t n, capacity;
    } ended; // owned; of copies that were taken away, to be released without the lock
};

// mu__stores_step does what is due and returns when it is due again. Takes the lock. Only where no threads do it.
int64_t mu__stores_step(mu_stores *stores);
mu_stores *mu__stores_of(mu_rpc_server *server);
void mu__stores_wake(mu_stores *stores);
mu_store *mu__store_find(mu_stores *stores, int64_t number); // NULL: none, no error
mu_store *mu__store_make(mu_stores *stores, int64_t number);
uint64_t mu__stores_process(const mu_stores *stores);

// ---- The client's part (store_client.c) ---------------------------------------------------------

// What a process knows of all stores: who was their primary, and its own numbers. An object.
typedef struct mu_store_client mu_store_client;
typedef struct mu_store_request mu_store_request;

// mu__store_client_new makes one for the servers in the order of the cluster; store k is at first at server k. The
// clients are retained; calls on server k's variables then go through it (mu__remote_call). Owned by the caller.
mu_store_client *mu__store_client_new(int n, mu_rpc_client *const *servers);
mu_rpc_client *const *mu__store_client_servers(const mu_store_client *client, int *n);
// mu__store_client_hear tells it the number of a cut that the coordinator has begun: its requests have this number
// then, as after an answer with it; it ignores numbers that cannot be. mu__store_client_cut is the highest that it
// knows.
void mu__store_client_hear(mu_store_client *client, int64_t cut);
int64_t mu__store_client_cut(mu_store_client *client);

// mu__store_request_new begins a request on a store, which has so many seconds (0: MUSTER_TIMEOUT);
// mu__store_request_step continues it and tells whether it has
// ended; mu__store_request_due is when to call that again, MU_FOREVER: when a result is there. mu__store_request_value
// returns the result of one that has ended, of the pool, or raises its error. mu__store_request_free also gives it up.
mu_store_request *mu__store_request_new(mu_store_client *client, int store, const char *method, mu_value *arguments,
                                        double seconds);
bool mu__store_request_step(mu_store_request *request);
int64_t mu__store_request_due(const mu_store_request *request);
mu_value *mu__store_request_value(mu_store_request *request);
void mu__store_request_free(mu_store_request *request);

// ---- The coordinator's part (placement.c) -------------------------------------------------------

typedef struct mu_placement mu_placement;

typedef struct mu_placement_options {
    int n;                         // servers, and stores
    mu_rpc_client *const *servers; // retained
    mu_store_client *client;       // of the coordinator, which hears of each cut when it begins; retained; NULL: none
    int replicas;                  // copies of each store: 0 or 1
    double snapshot_seconds;       // between cuts; 0: none
    const char *folder;            // of snapshots, as servers see it
    double heartbeat;
} mu_placement_options;

// mu__placement_new begins to place stores on servers. mu__placement_step does what is due and returns when it is due
// again. mu__placement_ready tells whether every store has a primary, and every copy is complete. An object.
mu_placement *mu__placement_new(const mu_placement_options *options);
int64_t mu__placement_step(mu_placement *placement);
bool mu__placement_ready(const mu_placement *placement);
void mu__placement_on_change(mu_placement *placement, void (*changed)(void *arg), void *arg);

typedef struct mu_placement_numbers {
    int64_t failovers, restores, snapshots, failed_snapshots;
    int64_t updates_lost; // changes that clients had seen and no server has any more; at least so many
    int behind;           // stores whose copy is not complete
    int lost;             // stores that nobody has
} mu_placement_numbers;
mu_placement_numbers mu__placement_numbers(const mu_placement *placement);

#endif
