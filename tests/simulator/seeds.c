// The driver of the simulators: see seeds.h.
#include "seeds.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLEAR_LINE "\r\033[K"

static struct {
    const simulation *simulation;
    uint64_t seed;
    bool failed;
    int n, n_failed, most_failures;
} playing;

void run_fails(const char *format, ...)
{
    char text[1400];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    fflush(stdout);
    if (!playing.failed)
        fprintf(stderr, "%sseed %llu, %s: %s; %s --seed %llu prints the trace\n",
                isatty(STDERR_FILENO) ? CLEAR_LINE : "", (unsigned long long)playing.seed, playing.simulation->about(),
                text, playing.simulation->name, (unsigned long long)playing.seed);
    playing.failed = true;
}

bool run_failed(void) { return playing.failed; }

// ---- The folder ---------------------------------------------------------------------------------

static char folder[40]; // "": none yet

const char *seeds_folder(void)
{
    if (folder[0] != '\0')
        return folder;
    snprintf(folder, sizeof folder, "/tmp/simulator-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        fprintf(stderr, "%s: cannot make the folder %s\n", playing.simulation->name, folder);
        exit(2);
    }
    return folder;
}

static void empty_folder(void)
{
    DIR *open = folder[0] != '\0' ? opendir(folder) : NULL;
    for (const struct dirent *entry; open != NULL && (entry = readdir(open)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    if (open != NULL)
        closedir(open);
}

// ---- Progress -----------------------------------------------------------------------------------

// How often a line on a terminal changes, and how often another output gets a line.
#define SHOWN_AGAIN_S   0.2
#define PRINTED_AGAIN_S 30.0

// Not the library's clock, which is that of the simulated world.
static double real_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// After each seed of many: how far they are. On a terminal one line changes.
static void show_progress(int total)
{
    static double begun_s, shown_s;
    const bool terminal = isatty(STDERR_FILENO) == 1;
    const double now_s = real_seconds();
    if (begun_s == 0)
        begun_s = shown_s = now_s;
    if (now_s - shown_s < (terminal ? SHOWN_AGAIN_S : PRINTED_AGAIN_S) && !(terminal && playing.n == total))
        return;
    shown_s = now_s;
    fprintf(stderr, "%s%s: %d of %d seeds, %d failures, about %.0f s left%s", terminal ? CLEAR_LINE : "",
            playing.simulation->name, playing.n, total, playing.n_failed,
            (now_s - begun_s) / MU_MAX(playing.n - 1, 1) * (total - playing.n),
            terminal && playing.n < total ? "" : "\n");
    fflush(stderr);
}

// ---- Playing ------------------------------------------------------------------------------------

static uint64_t play_once(uint64_t seed, bool print)
{
    const uint64_t hash = playing.simulation->play(seed, print);
    empty_folder();
    return hash;
}

static void play(uint64_t seed, bool print)
{
    const simulation *s = playing.simulation;
    playing.seed = seed;
    playing.failed = false;
    const uint64_t hash = play_once(seed, print);
    if (print)
        printf("seed %llu: hash %016llx\n", (unsigned long long)seed, (unsigned long long)hash);
    else if (seed % s->twice_every == 0 && !playing.failed && play_once(seed, false) != hash)
        run_fails("the seed gave another trace the second time");
    playing.n++;
    playing.n_failed += playing.failed;
}

static bool may_go_on(void) { return playing.most_failures == 0 || playing.n_failed < playing.most_failures; }

static bool play_file(const char *path)
{
    char line[200];
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "cannot open the seeds' file %s\n", path);
        return false;
    }
    while (may_go_on() && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "#\n")] = '\0';
        if (line[strspn(line, " ")] != '\0')
            play(strtoull(line, NULL, 10), false);
    }
    fclose(file);
    return true;
}

const char *seeds_option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return NULL;
}

int seeds_play(const simulation *s, int argc, char **argv)
{
    const char *one = seeds_option(argc, argv, "--seed"), *file = seeds_option(argc, argv, "--seeds");
    const char *from = seeds_option(argc, argv, "--from"), *count = seeds_option(argc, argv, "--count");
    const char *most = seeds_option(argc, argv, "--most-failures");
    playing.simulation = s;
    playing.most_failures = most != NULL ? atoi(most) : 0;
    if (one == NULL && file == NULL && count == NULL) {
        fprintf(stderr, "usage: %s --seed N | --from N --count K | --seeds FILE  [--most-failures N]%s\n", s->name,
                s->options);
        return 2;
    }
    if (one != NULL)
        play(strtoull(one, NULL, 10), true);
    else if (file != NULL && !play_file(file))
        return 2;
    const int total = file == NULL && one == NULL ? atoi(count) : 0;
    for (int i = 0; i < total && may_go_on(); i++) {
        play((from != NULL ? strtoull(from, NULL, 10) : 1) + (uint64_t)i, false);
        show_progress(total);
    }
    if (folder[0] != '\0')
        rmdir(folder);
    printf("%s: %d seeds, %d failures\n", s->name, playing.n, playing.n_failed);
    return mu_exit(playing.n_failed == 0) || playing.n_failed > 0;
}
