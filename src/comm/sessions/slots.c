// Makes and finds slots; see slots.h. Does not know what is passed in them, nor who uses which slot.
#include "comm/sessions/slots.h"

#include "comm/sessions/backed_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 4096, TOTAL = HEAD + MU_SLOTS * MU_SLOT_BYTES };
// No process, not even the writer, can shorten the file while it is read, or remove a seal.
static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct mu_slots {
    int fd;
    uint8_t *memory;
};

mu_status mu__slots_proof(const mu_keyring *keyring, int bearer, const uint8_t challenge[MU_SLOTS_CHALLENGE],
                          const uint8_t writer[MU_INCARNATION], uint8_t out[MU_KEY_BYTES])
{
    uint8_t text[MU_SLOTS_CHALLENGE + MU_INCARNATION];
    memcpy(text, challenge, MU_SLOTS_CHALLENGE);
    memcpy(text + MU_SLOTS_CHALLENGE, writer, MU_INCARNATION);
    return mu__keyring_proof(keyring, bearer, "memory", text, sizeof text, out);
}

static mu_status complain(const char *what, int error)
{
    return mu__error(mu__errno_code(error), "memory shared with a process of this host %s: %s", what, strerror(error));
}

// Takes ownership of the descriptor, also on failure.
static mu_slots *map(int fd, int protection)
{
    mu_slots *slots = mu__calloc(1, sizeof *slots);
    void *memory = slots != NULL ? mmap(NULL, TOTAL, protection, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        if (slots != NULL)
            complain("cannot be mapped", errno);
        mu__free(slots);
        close(fd);
        return NULL;
    }
    madvise(memory, TOTAL, MADV_DONTDUMP);
    *slots = (mu_slots){.fd = fd, .memory = memory};
    return slots;
}

mu_slots *mu__slots_new(const uint8_t proof[MU_KEY_BYTES], char address[MU_SLOTS_ADDRESS])
{
    struct stat about;
    const int fd = memfd_create("muster", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        complain("cannot be made", errno);
        return NULL;
    }
    const int error = mu__memory_back(fd, 0, TOTAL);
    if (error != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0 || fstat(fd, &about) != 0) {
        complain("cannot be had", error != 0 ? error : errno);
        close(fd);
        return NULL;
    }
    mu_slots *slots = map(fd, PROT_READ | PROT_WRITE);
    if (slots == NULL)
        return NULL;
    memcpy(slots->memory, proof, MU_KEY_BYTES);
    snprintf(address, MU_SLOTS_ADDRESS, "%ld/%d/%llu", (long)getpid(), fd, (unsigned long long)about.st_ino);
    return slots;
}

// Opens what the address names if that is a memfd of ours: a file of another kind is not opened at all. -1: it is not.
static int open_memory(const char *address)
{
    long process;
    int number, end = 0;
    unsigned long long node;
    char path[64], target[64] = "";
    struct stat about;
    if (sscanf(address, "%ld/%d/%llu%n", &process, &number, &node, &end) != 3 || address[end] != '\0')
        return -1;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", process, number);
    if (readlink(path, target, sizeof target - 1) < 0 || strcmp(target, "/memfd:muster (deleted)") != 0)
        return -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    const int has = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &about) == 0 && about.st_ino == node && about.st_size == TOTAL && has >= 0 && (has & seals) == seals)
        return fd;
    close(fd);
    return -1;
}

mu_slots *mu__slots_find(const char *address, const uint8_t proof[MU_KEY_BYTES])
{
    const int fd = open_memory(address);
    if (fd < 0) {
        mu__error(MU_NOT_FOUND, "\"%.60s\" names no memory that this process can share", address);
        return NULL;
    }
    mu_slots *slots = map(fd, PROT_READ);
    if (slots != NULL && CRYPTO_memcmp(slots->memory, proof, MU_KEY_BYTES) != 0) {
        mu__error(MU_UNAUTHENTICATED, "the memory \"%.60s\" was not made by the other end of this connection", address);
        mu__slots_free(slots);
        return NULL;
    }
    return slots;
}

void mu__slots_free(mu_slots *slots)
{
    if (slots == NULL)
        return;
    munmap(slots->memory, TOTAL);
    close(slots->fd);
    mu__free(slots);
}

uint8_t *mu__slot_write(mu_slots *slots, int slot) { return slots->memory + HEAD + (size_t)slot * MU_SLOT_BYTES; }

const uint8_t *mu__slot_read(const mu_slots *slots, int slot)
{
    return slots->memory + HEAD + (size_t)slot * MU_SLOT_BYTES;
}
