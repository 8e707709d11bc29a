// The calling thread's context: error record, pools, scopes, trace.
//
// Each thread has an outermost context in thread-local storage, so it exists even when memory is exhausted; a
// replica, map worker or closure enters a child of its caller's context. Objects of higher layers are opaque pointers
// here.
#include "base/callback.h"
#include "base/private.h"

typedef struct thread {
    mu_context outermost;
    mu_error_value taken;
    const char *callback; // the callback that is running; NULL: none
} thread;

static _Thread_local thread here;
_Thread_local mu_context *mu__current;
static pthread_key_t end_of_thread;
static pthread_once_t end_of_thread_once = PTHREAD_ONCE_INIT;
static bool end_of_thread_made;

// ---- Threads ------------------------------------------------------------------------------------

static void unwind(void)
{
    while (mu__current != NULL) {
        mu__pools_close(mu__current);
        if (mu__current == &here.outermost)
            break;
        mu__current = mu__current->previous;
    }
}

static void thread_ends(void *argument)
{
    (void)argument;
    unwind();
    mu__current = NULL;
    mu__blocks_drain();
}

static void make_key(void) { end_of_thread_made = pthread_key_create(&end_of_thread, thread_ends) == 0; }

static void thread_starts(void)
{
    pthread_once(&end_of_thread_once, make_key);
    // If the process has used up its keys, the pools of an ending thread are not freed; nothing else breaks.
    if (end_of_thread_made)
        pthread_setspecific(end_of_thread, &here);
    here.outermost = (mu_context){0};
    mu__current = &here.outermost;
}

mu_context *mu__context_first(void)
{
    thread_starts();
    return mu__current;
}

mu_error_value *mu__context_taken(void) { return &here.taken; }

void mu__context_unwind(void)
{
    mu__context();
    unwind();
}

// ---- Callbacks ----------------------------------------------------------------------------------

const char *mu__callback_enter(const char *what)
{
    const char *before = here.callback;
    here.callback = what;
    return before;
}

void mu__callback_leave(const char *before) { here.callback = before; }

const char *mu__callback_running(void)
{
    const mu_context *context = mu__context();
    if (here.callback != NULL)
        return here.callback;
    return context->previous != NULL || context->replica != NULL || context->trace != NULL
               ? "a function that runs on replicas or is traced"
               : NULL;
}

// ---- Children -----------------------------------------------------------------------------------

mu_status mu__context_enter(mu_context *child, mu_context *parent)
{
    mu_context *current = mu__context();
    if (mu__pool_push(child) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    child->parent = parent;
    child->previous = current;
    child->runtime = parent->runtime;
    child->scope = parent->scope;
    child->on_host = parent->on_host;
    child->replica = parent->replica;
    child->component = parent->component;
    child->n_components = parent->n_components;
    child->run = parent->run;
    child->request = parent->request;
    child->cancellation = parent->cancellation;
    mu__current = child;
    return MU_OK;
}

static bool same_thread(const mu_context *child)
{
    const mu_context *outer = child->previous;
    while (outer != NULL && outer != child->parent)
        outer = outer->previous;
    return outer != NULL;
}

void *mu__context_leave(mu_context *child, void *result, mu_error_value *error)
{
    assert(mu__current == child);
    const bool local = same_thread(child);
    assert(error != NULL || local);
    mu_retain(result);
    // Still in the child context: destructors may use the context and may record an error.
    mu__pools_close(child);
    mu_error_value failure;
    mu__error_move(&failure);
    mu__current = child->previous;
    if (error != NULL)
        *error = failure;
    else
        mu__error_raise(&failure);
    return local ? mu__give(result) : result;
}
