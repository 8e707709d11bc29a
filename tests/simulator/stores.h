// A simulated cluster of parameter servers: the shipped servers, clients and coordinator (store.h) in one thread,
// in the world of world.h, with a checker that knows every update.
//
// Each store has one variable, a vector with an element for each update, one embedding table, with a row for each, and
// one accumulator of such vectors. An update is made on one of the three. It adds 1 to its element or row, or applies a
// gradient with a 1 there, so a reading, or the sum that a take returns, says how often it was applied.
#ifndef MU_TESTS_STORES_H
#define MU_TESTS_STORES_H

#include "seeds.h"
#include "world.h"

#include "rpc/stores/store.h"

enum { MOST_SERVERS = 4, MOST_WORKERS = 4, MOST_UPDATES = 240, MOST_PROCESSES = 64, MOST_BACK = 400, PORT = 7000 };

// What happens to the cluster besides delays; a run has several, one after the other.
typedef enum fault {
    FAULT_KILL,    // a server's process dies, and starts again
    FAULT_STOP,    // a server is stopped for a while
    FAULT_CUT,     // a host is cut off from another one or from all, one way or both ways, for a while
    FAULT_WORKER,  // a worker's process dies; another one comes
    FAULT_DISK,    // the disks are full for a while
    FAULT_ADOPTED, // a server dies, and another process has its address at once
    N_FAULTS,
    // In some configurations only:
    FAULT_PAIR,        // two servers die together
    FAULT_SKEW,        // a server hears late of a cut, and when that is written another one dies
    FAULT_COORDINATOR, // the coordinator dies, and another takes over
    FAULT_BREAK,       // a server's connections break again and again, and then it dies
    FAULT_DIVIDE,      // a store's server and a worker that reads are cut off from all others
    FAULT_DIVIDE_PAIR  // likewise with the server that has its copy, and all others go back to a snapshot
} fault;

// What an update or a reading is about.
typedef enum subject { ON_VARIABLE, ON_TABLE, ON_ACCUMULATOR, N_SUBJECTS } subject;

typedef struct update {
    int worker, process, store;
    subject target;
    int taken;                 // how often takes have returned it
    int64_t begun_ns, done_ns; // MU_FOREVER: not yet, or never
    bool undone;               // perhaps, by going back to a snapshot
    bool earlier;              // made for a coordinator that is gone: nobody may see it
    bool at_end;               // the last reading has it
} update;

// That a store went back to a snapshot. All stores that do so together are one group, by the epoch of store 0's order.
typedef struct going_back {
    int store;
    int64_t group, at_ns;
} going_back;

typedef struct server_task {
    int process, host;
    bool alive;
    int64_t start_ns, paused_ns, due_ns;
    mu_rpc_server *rpc;
} server_task;

typedef struct worker_task {
    int process, host, number;
    bool alive;
    int64_t paused_ns, due_ns, next_ns;
    mu_rpc_client *clients[MOST_SERVERS];
    mu_store_client *stores;
    mu_resource *variables[MOST_SERVERS], *accumulators[MOST_SERVERS];
    mu_store_request *request; // in progress
    int update;                // that it is; -1: a reading
    int store;
    subject target;
    int64_t begun_ns;
    int left; // updates that it still makes
} worker_task;

typedef struct stores_run {
    uint64_t seed;
    int n_servers, n_workers, n_processes;
    bool replicas, snapshots, skews; // skews: FAULT_SKEW too
    bool breaks, divides;            // no faults but FAULT_BREAK, or FAULT_DIVIDE
    double heartbeat_s, snapshot_s;
    server_task servers[MOST_SERVERS];
    worker_task workers[MOST_WORKERS];
    // The coordinator.
    int coordinator_process, coordinator_host;
    int64_t coordinator_due_ns;
    mu_rpc_client *clients[MOST_SERVERS];
    mu_placement *placement;
    mu_placement_numbers numbers;
    bool created, ready;
    char folder[64];
    // The checker.
    update updates[MOST_UPDATES];
    int n_updates, n_readings, n_takes, n_waits; // n_waits: takes that had to wait
    int lost_takes[MOST_SERVERS];                // of workers that died before the answer
    bool seen[MOST_UPDATES];                     // by a reading since the last restore
    int64_t seen_ns[MOST_UPDATES];               // when it was complete
    int64_t snapshot_ns[2];                      // when the last two snapshots were complete
    int64_t restored_ns;                         // when a store last went back to one
    going_back back[MOST_BACK];
    int n_back;
    bool pair_struck; // two servers died together
    int64_t strikes_ns;
    int n_faults;
    int coordinators;      // so far
    int64_t takes_over_ns; // when the next one begins; MU_FOREVER: there is one
    struct {
        server_task *server; // whose connections break; NULL: nobody's
        bool held;           // what it sends to other servers is held up
        int64_t next_ns, until_ns, start_ns;
    } breaking;
    struct {
        server_task *server; // that dies when its copy has been made anew; NULL: none
        bool copy_killed;
        int64_t copy_due_ns, until_ns; // when to look again; until when answers of the server are held up
    } remaking;
    struct {
        int store; // that all work on; -1: the cluster is not divided
        server_task *server;
        bool closed;  // other servers are cut off too
        bool rejects; // by a firewall that answers with resets
        bool silent;  // not between servers: that one is a cut
        bool closes;  // the server closes its connections to copies, as one without memory does
        int64_t next_ns, until_ns;
    } division;
    server_task *doomed; // dies when more snapshots are written than now; NULL: none
    int64_t doomed_after, doomed_from_ns;
} stores_run;

extern stores_run now_running;

// stores_tasks.c
void server_start(server_task *s);
void server_run(server_task *s);
void server_kill(server_task *s);
void worker_start(worker_task *w, int left);
void worker_run(worker_task *w);
void worker_kill(worker_task *w);
// A reading; of an accumulator a take, which waits for `required` gradients for so many seconds.
mu_store_request *worker_reads(worker_task *w, int store, subject target, int64_t required, double seconds);
void coordinator_start(void);
void coordinator_run(void);
void coordinator_kill(void);
void coordinator_end(void);

// stores_simulator.c
void cut(int a, int b, int64_t until_ns, bool one_way);
void kill_server(stores_run *r, server_task *s, int64_t start_ns);
server_task *leader_of(stores_run *r, int number); // of a store; NULL: nobody leads it
bool may_strike(const stores_run *r);
bool is_noticed(const stores_run *r); // which servers have died

// stores_remake.c
void begin_remaking(stores_run *r, const worker_task *w);
void remake_next(stores_run *r);

// stores_check.c
int check_begin_update(const worker_task *w, int store, subject target);
void check_done_update(int number);
void check_reading(int store, subject target, int64_t begun_ns, mu_value *value);
void check_snapshots(void); // notes what has become safe, and what going back may cost
void check_end(int store, subject target, mu_value *value);
void check_taken(void);                 // when all that is left was taken
void check_back(const mu_store *store); // notes that a store went back
void check_causes(void);                // after the last reading: what a snapshot had was one moment
void check_earlier(void);               // all that was until now was for an earlier coordinator

#endif
