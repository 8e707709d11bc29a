// SIGINT and SIGTERM for programs that request it: the first signal sets a flag, the second has its previous effect.
//
// Signals belong to the process, so this state is not in a runtime. The handler only stores a number and reinstalls
// the old handlers; loops check the flag between steps. Loops that end at a step on which all workers agree hold the
// stop until then; meanwhile SIGTERM may arrive twice, because a scheduler and a launcher may both send it.
#include "base/private.h"

#include <errno.h>
#include <signal.h>

static const int taken[] = {SIGINT, SIGTERM};

static atomic_int stop_signal;
static atomic_llong stop_ns;
static atomic_int stop_code; // exit code to use instead of 128 + the signal; 0: not set
static atomic_int holders;
static atomic_int installed;
static struct sigaction before[MU_COUNT(taken)];
static bool replaced[MU_COUNT(taken)];

static void on_signal(int number);

// Handlers that the program has installed since stay.
static void put_back(bool all)
{
    struct sigaction now;
    for (size_t i = 0; i < MU_COUNT(taken); i++)
        if (replaced[i] && (all || taken[i] != SIGTERM) && sigaction(taken[i], NULL, &now) == 0 &&
            now.sa_handler == on_signal)
            sigaction(taken[i], &before[i], NULL);
}

static void on_signal(int number)
{
    const int kept = errno;
    mu__stop_by(number);
    put_back(atomic_load(&holders) == 0);
    errno = kept;
}

int mu__stop_signal(void) { return atomic_load(&stop_signal); }
int64_t mu__stop_time_ns(void) { return atomic_load(&stop_ns); }

void mu__stop_by(int number)
{
    int none = 0;
    if (atomic_load(&stop_signal) == 0)
        atomic_store(&stop_ns, mu__now_ns());
    atomic_compare_exchange_strong(&stop_signal, &none, number);
}

void mu__stop_hold(void) { atomic_fetch_add(&holders, 1); }
void mu__stop_let_go(void) { atomic_fetch_sub(&holders, 1); }
void mu__stop_exit_with(int code) { atomic_store(&stop_code, code); }

int mu__stop_exit_code(void)
{
    const int number = mu__stop_signal(), code = atomic_load(&stop_code);
    return code != 0 ? code : number != 0 ? 128 + number : 1;
}

mu_status mu__check_stop(void) { return atomic_load(&holders) > 0 ? MU_OK : mu__stopped(); }

mu_status mu__stopped(void)
{
    const int number = atomic_load_explicit(&stop_signal, memory_order_relaxed);
    if (number == 0)
        return MU_OK;
    return mu__error(MU_CANCELLED, "stopped by %s", number == SIGINT ? "SIGINT (Ctrl-C)" : "SIGTERM");
}

mu_status mu_stop_on_signals(void)
{
    if (mu__pending())
        return mu_error_code();
    if (atomic_exchange(&installed, 1) != 0)
        return MU_OK;
    // All old handlers are saved before the first new one can run. Neither call fails for these signals.
    for (size_t i = 0; i < MU_COUNT(taken); i++)
        sigaction(taken[i], NULL, &before[i]);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < MU_COUNT(taken); i++)
        sigaddset(&action.sa_mask, taken[i]);
    for (size_t i = 0; i < MU_COUNT(taken); i++) {
        // A signal that was ignored when the program started (nohup) stays ignored.
        replaced[i] = before[i].sa_handler != SIG_IGN;
        if (replaced[i])
            sigaction(taken[i], &action, NULL);
    }
    return MU_OK;
}

void mu__signals_restore(void)
{
    if (atomic_exchange(&installed, 0) != 0)
        put_back(true);
    atomic_store(&stop_signal, 0);
    atomic_store(&stop_code, 0);
}
