// Slots: memory through which one end of a session passes bytes to the other, where both are on one host.
//
// Each direction has memory of its own: the writer makes it, the reader maps it for reading. It is a memfd, so nothing
// remains of it however the processes end. The reader trusts nothing: it maps only memory that cannot shrink, that has
// the expected size, and that begins with a proof which only the other end of this session can have written; and it
// copies what it reads before it looks at it, because the writer may change it at any time.
#ifndef MU_SRC_COMM_SLOTS_H
#define MU_SRC_COMM_SLOTS_H

#include "comm/sessions/net.h"

enum {
    MU_SLOTS = 8,
    MU_SLOT_BYTES = 1 << 18,
    MU_SLOTS_CHALLENGE = 32, // random bytes that the reader sends first
    MU_SLOTS_ADDRESS = 64    // size of the text by which the reader finds the memory
};

typedef struct mu_slots mu_slots;

// mu__slots_proof computes what the memory begins with: a signature of the reader's challenge and of who writes, with
// the key that has proven the session.
mu_status mu__slots_proof(const mu_keyring *keyring, int bearer, const uint8_t challenge[MU_SLOTS_CHALLENGE],
                          const uint8_t writer[MU_INCARNATION], uint8_t out[MU_KEY_BYTES]);

// mu__slots_new makes the writer's memory, all of it backed, and writes its address. mu__slots_find maps another
// process's memory. Errors, recorded: RESOURCE_EXHAUSTED; PERMISSION_DENIED, NOT_FOUND if it cannot be opened;
// UNAUTHENTICATED if it is not what the other end of the session has made.
mu_slots *mu__slots_new(const uint8_t proof[MU_KEY_BYTES], char address[MU_SLOTS_ADDRESS]);
mu_slots *mu__slots_find(const char *address, const uint8_t proof[MU_KEY_BYTES]);
void mu__slots_free(mu_slots *slots); // NULL accepted

// mu__slot_write returns the memory of a slot, for the writer; mu__slot_read the same for the reader.
uint8_t *mu__slot_write(mu_slots *slots, int slot);
const uint8_t *mu__slot_read(const mu_slots *slots, int slot);

#endif
