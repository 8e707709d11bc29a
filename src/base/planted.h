// Defects that can be planted for the simulators, whose checkers must find them (tests/simulator). Only the files that
// are built again there, with MU_PLANT_DEFECTS, have them.
#ifndef MU_SRC_BASE_PLANTED_H
#define MU_SRC_BASE_PLANTED_H

typedef enum mu_defect {
    MU_DEFECT_NONE,
    MU_DEFECT_EARLY_ACKNOWLEDGEMENT, // an update is acknowledged before the copy has it
    MU_DEFECT_APPLIED_TWICE,         // a retried request is applied again
    MU_DEFECT_STALE_PRIMARY,         // a primary answers although its lease has passed
    MU_DEFECT_LOST_SNAPSHOT,         // a snapshot counts as written although the disk was full
    MU_DEFECT_EARLIER_LIFE,          // a message for an earlier process at the same address is accepted
    MU_DEFECT_OWN_CUT,               // a store makes its cut when the order comes, whatever clients know
    MU_DEFECT_COPY_FORGETS,          // a copy does not note the requests that it repeats
    MU_DEFECT_PART_OF_SNAPSHOT,      // a snapshot counts although a server could not write its part
    MU_DEFECT_EARLY_AGAIN,           // a request that comes again is acknowledged before the copy has it
    MU_DEFECT_LONG_LEASE,            // the copy's word holds four times too long
    MU_DEFECT_LATE_QUESTION,         // any question of a coordinator gives a lease, also one that comes late
    MU_DEFECT_COPY_REPEATS,          // a copy takes a message that it has taken
    MU_DEFECT_RESET,                 // a copy takes a connection that the network resets for its primary's end
    MU_DEFECT_COPYS_WORD,            // the copy's word is enough, although the coordinator may go back to a snapshot
    MU_DEFECT_UNSENT_CUT,            // calls of the coordinator do not carry the cuts that it knows
    MU_DEFECT_ENDED_LINK,            // the copy's word holds although the connection to it has ended
    MU_DEFECT_SEEN_LEFT_OUT,         // a new copy is not told which requests were applied before it was made
    MU_DEFECT_TAKE_NOT_COPIED,       // the copy does not hear of a take that had to wait
    MU_DEFECT_LOST_TWICE,            // updates that were counted as lost are counted again with each answer
    // In the coordinator:
    MU_DEFECT_LOST_STEP,     // a call whose worker was lost is not handed out again
    MU_DEFECT_RETRIED_ERROR, // a call that has failed is handed out again
    MU_DEFECT_EARLY_ERROR,   // an error is raised while calls run
    MU_DEFECT_NOT_CANCELLED, // calls that wait when an error is raised run afterwards
    MU_DEFECT_ERROR_TWICE,   // an error is raised again
    MU_DEFECT_LOST_VALUES,   // a worker that is back does not get what it had for itself
    // Where a coordinator's cluster runs whole:
    MU_DEFECT_DOUBLED_RUN, // a worker runs a function again when the request comes a second time
    MU_DEFECT_HALF_FILE,   // a file that could not be written whole takes the place of the one before it
    MU_N_DEFECTS
} mu_defect;
#ifdef MU_PLANT_DEFECTS
extern mu_defect mu__planted;
#define MU_PLANTED(defect) (mu__planted == (defect))
#else
#define MU_PLANTED(defect) false
#endif

#endif
