// Signatures of collective operations: shapes as a hash that every rank compares, and as words for the error message.
//
// A hash is computed for every operation, so it mixes whole numbers instead of bytes, which is faster.
#include "ops/core/op.h"

static uint64_t mix(uint64_t hash, int64_t number)
{
    hash = (hash ^ (uint64_t)number) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

void mu__form_begin(mu_form *form, int axis)
{
    form->hash = 0;
    form->dtype = 0;
    form->axis = axis;
    form->n_tensors = form->n_words = 0;
}

void mu__form_add(mu_form *form, mu_dtype dtype, const mu_shape *shape)
{
    uint64_t hash = mix(mix(form->hash, (int64_t)dtype << 32 | (uint32_t)form->axis), shape->rank);
    for (int a = 0; a < shape->rank; a++)
        hash = mix(hash, a == form->axis ? MU_UNKNOWN : shape->dims[a]);
    form->hash = hash != 0 ? hash : 1;
    form->dtype = (int32_t)dtype;
    form->n_tensors++;
    if (form->n_words + 1 + shape->rank > MU_FORM_WORDS) { // ends the list, so that no later tensor is misplaced
        while (form->n_words < MU_FORM_WORDS)
            form->words[form->n_words++] = MU_UNKNOWN;
        return;
    }
    form->words[form->n_words++] = shape->rank;
    memcpy(form->words + form->n_words, shape->dims, sizeof shape->dims[0] * (size_t)shape->rank);
    form->n_words += shape->rank;
}

void mu__form_said(const mu_collective *collective, int n, const mu_view *views, int axis)
{
    if (!collective || !collective->form)
        return;
    mu__form_begin(collective->form, axis);
    for (int i = 0; i < n; i++)
        mu__form_add(collective->form, views[i].dtype, &views[i].shape);
}

// ---- Text ---------------------------------------------------------------------------------------

typedef struct form_cursor {
    const mu_form *form;
    int at; // index of the next word
} form_cursor;

// The next tensor's shape; false if there is none or it did not fit. A signature may come from another host, so every
// count is checked before use.
static bool next_shape(form_cursor *cursor, mu_shape *out)
{
    const int left = MU_MIN(cursor->form->n_words, MU_FORM_WORDS) - cursor->at;
    const int64_t rank = left > 0 ? cursor->form->words[cursor->at] : -1;
    if (rank < 0 || rank > MU_MAX_RANK || rank >= left)
        return false;
    *out = mu_shape_make((int)rank, cursor->form->words + cursor->at + 1);
    cursor->at += 1 + (int)rank;
    return true;
}

const char *mu__form_text(const mu_form *form, char text[MU_FORM_TEXT])
{
    char shape_text[MU_SHAPE_TEXT], axis[24] = "";
    mu_shape shape;
    form_cursor cursor = {.form = form};
    const char *type = mu_dtype_name((mu_dtype)form->dtype);
    if (form->axis != MU_NO_AXIS)
        snprintf(axis, sizeof axis, " along axis %d", form->axis);
    if (form->n_tensors == 1 && next_shape(&cursor, &shape))
        snprintf(text, MU_FORM_TEXT, "%s%s%s", type, mu__shape_text(&shape, shape_text), axis);
    else
        snprintf(text, MU_FORM_TEXT, "%d tensors of %s%s", form->n_tensors, type, axis);
    return text;
}

const char *mu__form_part(const mu_form *a, const mu_form *b, char text[MU_FORM_TEXT])
{
    form_cursor at_a = {.form = a}, at_b = {.form = b};
    mu_shape shape_a, shape_b;
    char text_a[MU_SHAPE_TEXT], text_b[MU_SHAPE_TEXT];
    text[0] = '\0';
    if (a->n_tensors < 2 && b->n_tensors < 2)
        return text;
    for (int i = 1; next_shape(&at_a, &shape_a) && next_shape(&at_b, &shape_b); i++)
        if (!mu__shape_equal(&shape_a, &shape_b)) {
            snprintf(text, MU_FORM_TEXT, " Number %d of these tensors has the shapes %s and %s.", i,
                     mu__shape_text(&shape_a, text_a), mu__shape_text(&shape_b, text_b));
            break;
        }
    return text;
}
