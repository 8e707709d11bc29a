// The options of a simulator, and files of seeds.
#include "seeds.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return NULL;
}

int play_file(const char *path, void (*play)(uint64_t seed))
{
    char line[200];
    int n = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "cannot open the seeds' file %s\n", path);
        exit(2);
    }
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "#\n")] = '\0';
        if (line[strspn(line, " ")] == '\0')
            continue;
        play(strtoull(line, NULL, 10));
        n++;
    }
    fclose(file);
    return n;
}
