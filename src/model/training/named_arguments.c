// Arguments of compile and fit that are an object or its name in Keras, one of them or several.
#include "model/callbacks/callback_class.h"
#include "model/losses/loss.h"
#include "model/metrics/metric.h"
#include "model/optimizers/optimizer.h"
#include "model/training/arguments.h"

// What an argument may be: its type, what it is called in messages, and the function that makes one from a name (NULL:
// no names).
typedef struct argument_kind {
    const mu_type *type;
    const char *what;
    void *(*make)(const char *name, const char *function);
} argument_kind;

static void *make_loss(const char *name, const char *function) { return mu__loss_named(name, function); }
static void *make_metric(const char *name, const char *function) { return mu__metric_called(name, function); }
static void *make_optimizer(const char *name, const char *function) { return mu__optimizer_named(name, function); }

static const argument_kind optimizer_kind = {&mu__optimizer_type, "optimizer", make_optimizer};
static const argument_kind loss_kind = {&mu__loss_type, "loss", make_loss};
static const argument_kind metric_kind = {&mu__metric_type, "metric", make_metric};
static const argument_kind callback_kind = {&mu__callback_type, "callback", NULL};

// The object that an argument is or names.
static void *object_of(const argument_kind *kind, const void *given, const char *function)
{
    if (!given || mu__is(given, kind->type))
        return (void *)(uintptr_t)given;
    if (mu__is_object(given)) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the %s is of type %s; expected %s%s", function, kind->what,
                  ((const mu_object *)given)->type->name, kind->what, kind->make ? " or a name" : "");
        return NULL;
    }
    if (kind->make)
        return kind->make(given, function);
    mu__error(MU_INVALID_ARGUMENT, "%s: a %s has no names; give an object instead of '%s'", function, kind->what,
              (const char *)given);
    return NULL;
}

mu_optimizer *mu__optimizer_argument(const void *given, const char *function)
{
    return object_of(&optimizer_kind, given, function);
}

// A list of objects that ends with MU_END, for mu__free.
static mu_status objects_of(const argument_kind *kind, const void *given, const char *function, void ***out, int *n)
{
    const mu_items *list = mu__is(given, &mu__items_type) ? given : NULL;
    *n = list ? list->n : given ? 1 : 0;
    *out = mu__calloc((size_t)*n + 1, sizeof **out);
    if (!*out)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < *n; i++) {
        const void *item = list ? list->items[i] : given;
        if (!item)
            mu__error(MU_INVALID_ARGUMENT, "%s: %s %d is NULL; leave it out, or give an object", function, kind->what,
                      i);
        (*out)[i] = object_of(kind, item, function);
        if (mu__pending()) {
            mu__free(*out);
            *out = NULL;
            return mu_error_code();
        }
    }
    (*out)[*n] = MU_END;
    return MU_OK;
}

mu_loss *mu__loss_argument(const void *given, const char *function) { return object_of(&loss_kind, given, function); }

mu_metric *mu__metric_argument(const void *given, const char *function)
{
    return object_of(&metric_kind, given, function);
}

mu_status mu__callbacks_argument(const void *given, const char *function, mu_callback ***out)
{
    int n;
    return objects_of(&callback_kind, given, function, (void ***)out, &n);
}
