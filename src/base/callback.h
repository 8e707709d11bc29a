// Callbacks of the program that run on the thread which called the library.
//
// While a callback runs, the library's own functions are still active on the stack, so mu_exit, which frees
// everything, is refused.
#ifndef MU_SRC_BASE_CALLBACK_H
#define MU_SRC_BASE_CALLBACK_H

// mu__callback_enter marks this thread as inside a callback, named for example "a callback of mu_fit"; the name must
// outlive the callback. Callbacks nest: pass the result of mu__callback_enter to mu__callback_leave.
const char *mu__callback_enter(const char *what);
void mu__callback_leave(const char *before);

// MU_CALLBACK runs a statement that calls a function of the program, as a callback of this name.
#define MU_CALLBACK(what, statement)                       \
    do {                                                   \
        const char *mu_before_ = mu__callback_enter(what); \
        statement;                                         \
        mu__callback_leave(mu_before_);                    \
    } while (0)

// mu__callback_running returns the name of the callback that this thread is inside, or NULL. Functions that run on
// replicas or are being traced count as callbacks.
const char *mu__callback_running(void);

#endif
