// Writes pictures as SVG: markup of the library's own, and text of others, which is escaped.
#ifndef MU_SRC_MODEL_SVG_H
#define MU_SRC_MODEL_SVG_H

#include "base/base.h"

typedef struct mu_svg {
    struct {
        char *items;
        size_t n, capacity;
    } text;
    mu_status status; // of the first failure; later calls do nothing
} mu_svg;

// mu__svg_add appends markup. Numbers in it are integers: printf writes others by the program's locale.
void mu__svg_add(mu_svg *svg, const char *format, ...) MU_PRINTF(2, 3);
// mu__svg_escape appends text of any bytes: what XML does not allow becomes U+FFFD. Of more than `columns` characters
// the last one is an ellipsis.
void mu__svg_escape(mu_svg *svg, const char *text, int columns);
// mu__svg_save writes a picture of this size (pixels) with what was added, atomically, and frees it.
mu_status mu__svg_save(mu_svg *svg, const char *path, int width, int height);
void mu__svg_free(mu_svg *svg);
// mu__svg_path checks a file's name for `function`. Errors: INVALID_ARGUMENT for a name that does not end with .svg.
mu_status mu__svg_path(const char *path, const char *function);

#define MU_SVG_SANS "font-family='DejaVu Sans,Verdana,Helvetica,Arial,sans-serif'"
#define MU_SVG_MONO "font-family='DejaVu Sans Mono,Menlo,Consolas,monospace'"

#endif
