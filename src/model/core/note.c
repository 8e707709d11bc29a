// Notes on tensors: a list of each thread (note.h).
#include "model/core/note.h"

static _Thread_local mu_note *newest;

mu_note *mu__note_newest(void) { return newest; }

void mu__note_take_back(mu_note *note)
{
    if (note->older)
        note->older->newer = note->newer;
    *(note->newer ? &note->newer->older : &newest) = note->older;
    mu_release(note->tensor);
    mu_release(note->says);
    note->tensor = note->says = NULL;
}

static void destroy(void *object)
{
    if (((mu_note *)object)->tensor)
        mu__note_take_back(object);
}

static mu_type type = {.name = "note", .destroy = destroy};

mu_status mu__note_keep(mu_tensor *tensor, mu_tensor *says, mu_note_kind kind)
{
    mu_note *note = mu__new(&type, sizeof *note);
    if (!note)
        return mu_error_code();
    note->tensor = mu_retain(tensor);
    note->says = mu_retain(says);
    note->kind = kind;
    note->older = newest;
    if (newest)
        newest->newer = note;
    newest = note;
    return mu__give(note) ? MU_OK : mu_error_code();
}

mu_note *mu__note_of(const mu_tensor *tensor, int kinds)
{
    mu_note *note = newest;
    while (note && !(note->tensor == tensor && (note->kind & kinds)))
        note = note->older;
    return note;
}
