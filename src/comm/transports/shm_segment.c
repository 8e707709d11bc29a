// Memory that processes of one host share: a memfd, which other processes open through /proc/PID/fd of its creator.
//
// It has no name in any folder, so nothing remains however the processes end. The file is as long as its heaps could
// ever grow, but only allocated blocks are backed by memory. They are backed completely at once, so that a lack of
// memory is an error at allocation and not a signal later. Independent of groups.
#include "comm/comm.h"
#include "comm/sessions/backed_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096 };

// A used part of a heap; the list is sorted by position.
typedef struct extent {
    size_t at, bytes;
} extent;

typedef struct heap {
    size_t begin, bytes;
    struct {
        extent *items;
        size_t n, capacity;
    } used;
} heap;

struct mu_segment {
    mu_object object;
    int fd;
    char *memory;
    size_t bytes;
    int n;
    heap *heaps; // [n]
    pthread_mutex_t lock;
};

typedef struct shared_block {
    mu_buffer buffer;    // must be first
    mu_segment *segment; // retained
    int heap_number;
} shared_block;

static size_t round_up(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static void segment_destroy(void *object)
{
    mu_segment *segment = object;
    if (segment->memory != NULL)
        munmap(segment->memory, segment->bytes);
    if (segment->fd >= 0)
        close(segment->fd);
    for (int i = 0; segment->heaps != NULL && i < segment->n; i++)
        mu__free(segment->heaps[i].used.items);
    mu__free(segment->heaps);
    pthread_mutex_destroy(&segment->lock);
}

static mu_type segment_type = {.name = "segment", .destroy = segment_destroy};

// Each heap could hold all memory of the machine; only address space is reserved.
static size_t heap_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? round_up((size_t)pages * (size_t)page) : (size_t)1 << 32;
}

static mu_status complain(const char *what, size_t bytes, int error)
{
    return mu__error(mu__errno_code(error), "The memory that processes of this host share (%zu bytes) %s: %s.", bytes,
                     what, strerror(error));
}

// Takes ownership of the descriptor, also on failure.
static mu_segment *map_segment(int fd, size_t bytes, int n)
{
    mu_segment *segment = mu__new(&segment_type, sizeof *segment);
    if (segment == NULL) {
        close(fd);
        return NULL;
    }
    pthread_mutex_init(&segment->lock, NULL); // cannot fail without attributes
    const size_t each = heap_bytes(), common = round_up(bytes), total = common + each * (size_t)n;
    segment->fd = fd;
    segment->n = n;
    segment->heaps = mu__calloc((size_t)n, sizeof *segment->heaps);
    void *memory = MAP_FAILED;
    if (segment->heaps != NULL)
        memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (memory == MAP_FAILED) {
        if (segment->heaps != NULL)
            complain("cannot be mapped", bytes, errno);
        mu_release(segment);
        return NULL;
    }
    madvise(memory, total, MADV_DONTDUMP);
    segment->memory = memory;
    segment->bytes = total;
    for (int i = 0; i < n; i++)
        segment->heaps[i] = (heap){.begin = common + each * (size_t)i, .bytes = each};
    return segment;
}

mu_segment *mu__segment_new(size_t bytes, int n, char address[MU_SEGMENT_ADDRESS])
{
    struct stat about;
    const int fd = memfd_create("muster", MFD_CLOEXEC);
    if (fd < 0) {
        complain("cannot be made", bytes, errno);
        return NULL;
    }
    int error = mu__memory_lengthen(fd, round_up(bytes) + heap_bytes() * (size_t)n);
    if (error == 0)
        error = mu__memory_back(fd, 0, round_up(bytes));
    if (error == 0 && fstat(fd, &about) != 0)
        error = errno;
    if (error != 0) {
        complain("cannot be allocated; free some, or raise the limit on shared memory or file sizes", bytes, error);
        close(fd);
        return NULL;
    }
    snprintf(address, MU_SEGMENT_ADDRESS, "%ld/%d/%llu", (long)getpid(), fd, (unsigned long long)about.st_ino);
    return map_segment(fd, bytes, n);
}

mu_segment *mu__segment_find(const char *address, size_t bytes, int n)
{
    long process;
    int number;
    unsigned long long node;
    char path[64];
    struct stat about;
    if (sscanf(address, "%ld/%d/%llu", &process, &number, &node) != 3) {
        mu__error(MU_DATA_LOSS, "\"%.40s\" is not an address of shared memory.", address);
        return NULL;
    }
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", process, number);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        complain("cannot be opened in the process that made it", bytes, errno);
        return NULL;
    }
    if (fstat(fd, &about) != 0 || about.st_ino != node || (size_t)about.st_size < round_up(bytes)) {
        complain("is not the file that was made for it", bytes, ENOENT);
        close(fd);
        return NULL;
    }
    return map_segment(fd, bytes, n);
}

void *mu__segment_memory(const mu_segment *segment, size_t *bytes)
{
    *bytes = segment->bytes;
    return segment->memory;
}

// ---- Heaps --------------------------------------------------------------------------------------

static void block_destroy(void *object)
{
    shared_block *block = object;
    mu_segment *segment = block->segment;
    heap *h = &segment->heaps[block->heap_number];
    const size_t at = (size_t)((char *)block->buffer.data - segment->memory);
    pthread_mutex_lock(&segment->lock);
    for (size_t i = 0; i < h->used.n; i++)
        if (h->used.items[i].at == at) {
            (void)fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                            (off_t)h->used.items[i].bytes);
            memmove(&h->used.items[i], &h->used.items[i + 1], (--h->used.n - i) * sizeof h->used.items[0]);
            break;
        }
    pthread_mutex_unlock(&segment->lock);
    mu_release(segment);
}

static mu_type block_type = {.name = "shared memory", .destroy = block_destroy};

// Takes the first gap that is large enough; the extents stay sorted by position.
static bool take_extent(heap *h, size_t bytes, size_t *at)
{
    size_t i = 0;
    *at = h->begin;
    for (; i < h->used.n && h->used.items[i].at - *at < bytes; i++)
        *at = h->used.items[i].at + h->used.items[i].bytes;
    if (*at + bytes > h->begin + h->bytes || MU_PUSH(&h->used, ((extent){0})) != MU_OK)
        return false;
    memmove(&h->used.items[i + 1], &h->used.items[i], (h->used.n - 1 - i) * sizeof h->used.items[0]);
    h->used.items[i] = (extent){.at = *at, .bytes = bytes};
    return true;
}

mu_buffer *mu__segment_take(mu_segment *segment, int heap_number, size_t bytes)
{
    shared_block *block = mu__new(&block_type, sizeof *block);
    size_t at = 0;
    if (block == NULL)
        return NULL;
    block->segment = mu_retain(segment);
    block->heap_number = heap_number;
    block->buffer.memory_space = &mu__shared_memory;
    block->buffer.data = segment->memory; // not allocated in the heap yet
    pthread_mutex_lock(&segment->lock);
    const bool taken = take_extent(&segment->heaps[heap_number], round_up(bytes > 0 ? bytes : 1), &at);
    pthread_mutex_unlock(&segment->lock);
    if (taken)
        block->buffer.data = segment->memory + at;
    if (!taken || mu__memory_back(segment->fd, at, round_up(bytes)) != 0) {
        mu_release(block);
        return NULL;
    }
    block->buffer.bytes = bytes;
    return &block->buffer;
}
