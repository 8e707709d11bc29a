// Stands in for libFuzzer in ordinary builds: gives a parser the seeds of its folders, every shortening of them
// and a fixed number of damaged copies. The damage follows from a constant, so a failure comes back.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES = 500, CUTS = 300, SEED_LIMIT = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static size_t draw(size_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state % below);
}

// A block of exactly its size, so that the address sanitizer sees a read past the end.
static void try_input(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = malloc(bytes + !bytes);
    if (!exact)
        abort();
    if (bytes > 0)
        memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static void damage(uint8_t *data, size_t bytes)
{
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, '0', '"', '}', '\n'};
    for (size_t n = 1 + draw(4); n > 0; n--) {
        uint8_t *at = &data[draw(bytes)];
        *at = draw(2) ? telling[draw(sizeof telling)] : (uint8_t)(*at ^ 1u << draw(8));
    }
}

static void replay(const uint8_t *seed, size_t bytes)
{
    uint8_t *copy = malloc(bytes + !bytes);
    if (!copy)
        abort();
    try_input(seed, bytes);
    for (size_t i = 0; i < CUTS; i++)
        try_input(seed, bytes * i / CUTS);
    for (int i = 0; i < COPIES && bytes > 0; i++) {
        memcpy(copy, seed, bytes);
        damage(copy, bytes);
        try_input(copy, bytes);
    }
    free(copy);
}

// Returns the number of seeds in a folder; a folder that does not exist has none.
static int replay_folder(const char *folder)
{
    static uint8_t seed[SEED_LIMIT];
    char path[4096];
    int seeds = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!file)
            continue;
        replay(seed, fread(seed, 1, sizeof seed, file));
        fclose(file);
        seeds++;
    }
    if (list)
        closedir(list);
    return seeds;
}

int main(int argc, char **argv)
{
    static const uint8_t nothing[64];
    int seeds = 0;
    for (int i = 1; i < argc; i++)
        seeds += replay_folder(argv[i]);
    replay(nothing, sizeof nothing);
    printf("%d seeds and a block of zeros: no crash\n", seeds);
    return 0;
}
