// Writes pictures as SVG 1.1. The text of others is escaped as XML 1.0 asks for (sections 2.2 and 2.4).
#include "model/drawing/svg.h"

#include <stdarg.h>
#include <strings.h>

static void append(mu_svg *svg, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && svg->status == MU_OK; i++)
        svg->status = MU_PUSH(&svg->text, text[i]);
}

void mu__svg_add(mu_svg *svg, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    assert(n >= 0 && n < (int)sizeof text);
    append(svg, text, (size_t)n);
}

// Reads a character of UTF-8 and returns its bytes; 0: there is none that XML allows (RFC 3629).
static int read_character(const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    const int n = at[0] < 0x80                    ? 1
                  : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                  : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                  : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                  : 0;
    uint32_t code = n == 1 ? at[0] : at[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    const bool least = n < 3 || code >= (n == 3 ? 0x800u : 0x10000u);
    const bool allowed = code >= 0x20 && code != 0x7f && !(code >= 0x80 && code < 0xa0) && code <= 0x10ffff &&
                         !(code >= 0xd800 && code < 0xe000) && (code & 0xfffe) != 0xfffe;
    // These change the direction of the text behind them.
    const bool turns = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return n > 0 && least && allowed && !turns ? n : 0;
}

void mu__svg_escape(mu_svg *svg, const char *text, int columns)
{
    for (int column = 1; *text; column++) {
        const int n = read_character(text), step = MU_MAX(n, 1);
        if (column == columns && text[step]) {
            append(svg, "…", strlen("…"));
            return;
        }
        switch (n ? *text : 0) {
        case '&': append(svg, "&amp;", 5); break;
        case '<': append(svg, "&lt;", 4); break;
        case '>': append(svg, "&gt;", 4); break;
        case '"': append(svg, "&quot;", 6); break;
        case '\'': append(svg, "&#39;", 5); break;
        default: n ? append(svg, text, (size_t)n) : append(svg, "\xef\xbf\xbd", 3);
        }
        text += step;
    }
}

void mu__svg_free(mu_svg *svg)
{
    mu__free(svg->text.items);
    *svg = (mu_svg){0};
}

static mu_status write_all(mu_file_writer *file, const mu_svg *svg, int width, int height)
{
    char head[256];
    const int n = snprintf(head, sizeof head,
                           "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d'>\n<rect "
                           "width='%d' height='%d' fill='#fff'/>\n",
                           width, height, width, height, width, height);
    MU_TRY(mu__file_write(file, head, (size_t)n));
    MU_TRY(mu__file_write(file, svg->text.items, svg->text.n));
    return mu__file_write(file, "</svg>\n", 7);
}

mu_status mu__svg_save(mu_svg *svg, const char *path, int width, int height)
{
    mu_file_writer *file = svg->status == MU_OK ? mu__file_create(path) : NULL;
    mu_status status = svg->status != MU_OK ? svg->status : file ? MU_OK : mu_error_code();
    if (file)
        status = write_all(file, svg, width, height);
    if (file && status == MU_OK)
        status = mu__file_commit(file);
    else
        mu__file_abandon(file);
    mu__svg_free(svg);
    return status;
}

mu_status mu__svg_path(const char *path, const char *function)
{
    const size_t n = strlen(path);
    if (n > 4 && strcasecmp(path + n - 4, ".svg") == 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: '%.200s' does not end with .svg, the format that is written; browsers show it, and "
                     "rsvg-convert or Inkscape make .png and .pdf of it",
                     function, path);
}
