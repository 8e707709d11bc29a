// Notes on tensors: lists of each thread (note.h).
#include "model/core/note.h"

// Recurrences that are unrolled leave thousands of notes in one pool; the tensor's address says which list has its own.
enum { LIST_BITS = 6 };
static _Thread_local mu_note *newest[1 << LIST_BITS];

static mu_note **list_of(const mu_tensor *tensor)
{
    return &newest[(uint64_t)(uintptr_t)tensor * UINT64_C(0x9e3779b97f4a7c15) >> (64 - LIST_BITS)];
}

void mu__note_take_back(mu_note *note)
{
    if (note->older)
        note->older->newer = note->newer;
    *(note->newer ? &note->newer->older : list_of(note->tensor)) = note->older;
    mu_release(note->tensor);
    mu_release(note->noted);
    note->tensor = note->noted = NULL;
}

static void destroy(void *object)
{
    if (((mu_note *)object)->tensor)
        mu__note_take_back(object);
}

static mu_type type = {.name = "note", .destroy = destroy};

mu_note *mu__note_keep(mu_tensor *tensor, mu_tensor *noted, mu_note_kind kind)
{
    mu_note *note = mu__new(&type, sizeof *note), **list = list_of(tensor);
    if (!note)
        return NULL;
    note->tensor = mu_retain(tensor);
    note->noted = mu_retain(noted);
    note->kind = kind;
    note->older = *list;
    if (*list)
        (*list)->newer = note;
    *list = note;
    return mu__give(note);
}

mu_note *mu__note_of(const mu_tensor *tensor, int kinds)
{
    mu_note *note = *list_of(tensor);
    while (note && !(note->tensor == tensor && (note->kind & kinds)))
        note = note->older;
    return note;
}
