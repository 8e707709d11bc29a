// Output of the ranks: passes on whole lines, each prefixed with its rank, and never mixes two lines.
//
// Output is held back until a line is complete. If the launcher has a terminal, rank 0 writes to a pseudoterminal, so
// its progress bar is redrawn with carriage returns: it remains on the last line of the screen, and other lines appear
// above it. A line longer than the limit is passed on in parts.
#include "tools/launch.h"

#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

enum { LONGEST_LINE = 65536 };

void mu__screen_open(mu_screen *screen)
{
    *screen =
        (mu_screen){.terminal = isatty(STDOUT_FILENO) == 1, .plain = mu__setting_text(MU_SETTING_NO_COLOR) != NULL};
}

static void put(mu_screen *screen, int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno != EINTR) {
            screen->lost = screen->lost != 0 ? screen->lost : errno;
            return;
        }
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
}

// Before a line is printed, clears the progress bar from the last line; it is redrawn below. Without cursor movement
// the bar is left where it is and redrawn on the next line, but a line of the rank that owns the bar (NULL: the
// launcher) overwrites it, as it would without a launcher.
static void make_room(mu_screen *screen, const mu_relay *relay)
{
    if (screen->bar && !screen->plain)
        put(screen, STDOUT_FILENO, "\r\033[K", 4);
    else if (screen->bar)
        put(screen, STDOUT_FILENO, screen->bar == relay ? "\r" : "\n", 1);
}

static void draw_bar(mu_screen *screen)
{
    char label[32];
    if (!screen->bar)
        return;
    const int n = snprintf(label, sizeof label, "\r[%d] ", screen->bar->rank);
    put(screen, STDOUT_FILENO, label, (size_t)n);
    put(screen, STDOUT_FILENO, screen->bar->text.items, screen->bar->text.n);
}

// Writes the line with one call, so that it is not split wherever the launcher writes to.
static void put_line(mu_screen *screen, const mu_relay *relay, const char *text, size_t bytes)
{
    char small[512];
    char *line = bytes + 40 <= sizeof small ? small : mu__alloc(bytes + 40);
    if (!line)
        return;
    size_t n = (size_t)snprintf(line, 40, "[%d] ", relay->rank);
    if (bytes > 0)
        memcpy(line + n, text, bytes);
    n += bytes;
    line[n++] = '\n';
    put(screen, relay->out, line, n);
    if (line != small)
        mu__free(line);
}

static void end_line(mu_relay *relay, mu_screen *screen)
{
    size_t n = relay->text.n;
    while (n > 0 && relay->text.items[n - 1] == '\r')
        n--;
    make_room(screen, relay);
    if (screen->bar == relay)
        screen->bar = NULL;
    put_line(screen, relay, relay->text.items, n);
    draw_bar(screen);
    relay->text.n = 0;
    relay->over = false;
}

static mu_status take(mu_relay *relay, mu_screen *screen, char c)
{
    if (c == '\n') {
        end_line(relay, screen);
        return MU_OK;
    }
    if (c == '\r' && relay->bar) {
        relay->text.n = 0;
        relay->over = true;
        return MU_OK;
    }
    if (relay->text.n == LONGEST_LINE)
        end_line(relay, screen);
    return MU_PUSH(&relay->text, c);
}

mu_status mu__relay_read(mu_relay *relay, mu_screen *screen)
{
    char data[16384];
    const ssize_t n = read(relay->fd, data, sizeof data);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return MU_OK;
    if (n <= 0) { // a terminal whose last writer has closed it returns EIO
        mu__relay_close(relay, screen);
        return MU_OK;
    }
    for (ssize_t i = 0; i < n; i++)
        MU_TRY(take(relay, screen, data[i]));
    if (relay->over && relay->text.n > 0) {
        make_room(screen, relay);
        screen->bar = relay;
        draw_bar(screen);
    }
    return MU_OK;
}

void mu__relay_close(mu_relay *relay, mu_screen *screen)
{
    if (relay->fd < 0)
        return;
    if (relay->text.n > 0)
        end_line(relay, screen);
    close(relay->fd);
    relay->fd = -1;
    mu__free(relay->text.items);
    relay->text.items = NULL;
    relay->text.capacity = 0;
}

void mu__screen_say(mu_screen *screen, const char *format, ...)
{
    char text[512];
    va_list rest;
    va_start(rest, format);
    const int n = vsnprintf(text, sizeof text - 1, format, rest);
    va_end(rest);
    size_t bytes = (size_t)MU_MIN(MU_MAX(n, 0), (int)sizeof text - 2);
    text[bytes++] = '\n';
    make_room(screen, NULL);
    put(screen, STDERR_FILENO, text, bytes);
    draw_bar(screen);
}
