// Callbacks of the program that run on the thread which called the library.
//
// While one runs, the library's own work waits below it on the stack, so mu_exit, which frees everything, is refused.
#ifndef MU_SRC_BASE_CALLBACK_H
#define MU_SRC_BASE_CALLBACK_H

// mu__callback_enter says that this thread is inside a callback: "a callback of mu_fit" or the like, in static storage.
// They nest: mu__callback_leave gets what mu__callback_enter returned.
const char *mu__callback_enter(const char *what);
void mu__callback_leave(const char *before);

// mu__callback_running names the callback that this thread is inside, NULL if there is none. Functions that run on
// replicas or are traced count too.
const char *mu__callback_running(void);

#endif
