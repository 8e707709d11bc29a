// The script of a task: join, exchange some blocks and words on streams, stay for a while, leave. Every error ends the
// program, which then releases its mesh as any program does.
#include "task.h"

const char *task_name(int rank)
{
    static char names[MOST_TASKS][32];
    snprintf(names[rank], sizeof names[rank], "/job:worker/task:%d", rank);
    return names[rank];
}

static void end_stream(task *t)
{
    mu__stream_end(t->opening);
    mu__stream_close(t->stream);
    t->opening = NULL;
    t->stream = NULL;
    t->sent = t->received = 0;
}

static void enter(task *t, stage next)
{
    t->stage = next;
    t->since_ns = world_now();
}

// Takes the error of a call that failed. The program ends.
static void give_up(task *t)
{
    mu__error_move(&t->error);
    t->failed_ns = world_now();
    world_note("fails: %s", t->error.message);
    end_stream(t);
    if (t->mesh != NULL)
        mu__mesh_leave(t->mesh);
    enter(t, t->mesh != NULL ? STAGE_LEAVING : STAGE_ENDED);
}

static void start(task *t)
{
    world_note("starts %s", task_name(t->rank));
    enter(t, STAGE_JOINING);
    t->mesh = mu__mesh_begin(&t->options);
    if (t->mesh == NULL)
        give_up(t);
}

static void joining(task *t)
{
    if (mu__mesh_is_joining(t->mesh))
        return;
    if (mu__mesh_check(t->mesh, -1) != MU_OK) {
        give_up(t);
        return;
    }
    world_note("has joined");
    t->joined = true;
    t->joined_ns = world_now();
    t->next_ns = world_now() + world_draw_ns(0, 0.5);
    enter(t, STAGE_WORKING);
}

static void working(task *t)
{
    char block[64], what[32];
    if (mu__mesh_check(t->mesh, -1) != MU_OK) {
        give_up(t);
        return;
    }
    if (world_now() < t->next_ns)
        return;
    if (t->exchanged == t->n_exchanges) {
        world_note("leaves");
        mu__mesh_leave(t->mesh);
        enter(t, STAGE_LEAVING);
        return;
    }
    const int bytes = snprintf(block, sizeof block, "%d of rank %d, process %d", t->exchanged, t->rank, t->process);
    snprintf(what, sizeof what, "blocks %d", t->exchanged);
    enter(t, STAGE_EXCHANGING);
    if (mu__exchange_begin(t->mesh, what, block, (size_t)bytes, &t->exchange) != MU_OK)
        give_up(t);
}

static void exchanging(task *t)
{
    bool complete;
    mu_blocks blocks = {0};
    const mu_status status = mu__exchange_check(&t->exchange, &complete);
    if (status == MU_OK && !complete)
        return;
    mu__exchange_end(&t->exchange, status == MU_OK ? &blocks : NULL);
    if (status != MU_OK) {
        give_up(t);
        return;
    }
    check_blocks(t->exchanged, &blocks);
    mu__blocks_free(&blocks);
    world_note("has exchange %d", t->exchanged);
    t->exchanged++;
    t->next_ns = world_now() + (t->exchanged == t->n_exchanges ? t->linger_ns : world_draw_ns(0, 0.5));
    enter(t, t->exchanged == 1 && t->n_streams > 0 ? STAGE_STREAMING : STAGE_WORKING);
}

static void word_of(const task *t, int rank, char *word)
{
    memset(word, 0, WORD_BYTES);
    snprintf(word, WORD_BYTES, "rank %d says this on stream %d", rank, t->streamed);
}

// Opens the stream; false: it is not open yet, or the task has failed.
static bool has_stream(task *t, int partner)
{
    char name[32];
    snprintf(name, sizeof name, "words %d", t->streamed);
    if (t->stream == NULL && t->opening == NULL)
        t->opening = mu__stream_begin(t->mesh, partner, name);
    if (t->stream == NULL && (t->opening == NULL || mu__stream_step(t->opening, &t->stream) != MU_OK))
        give_up(t);
    return t->stream != NULL;
}

// Sends and receives what can be moved now. A connection that ends is no error here: the mesh says whose end it is.
static bool has_words(task *t, int partner)
{
    char own[WORD_BYTES], wanted[WORD_BYTES];
    size_t moved = 0;
    word_of(t, t->rank, own);
    word_of(t, partner, wanted);
    if (t->sent < WORD_BYTES && mu__stream_send(t->stream, own + t->sent, WORD_BYTES - t->sent, &moved) == MU_OK)
        t->sent += moved;
    if (t->received < WORD_BYTES &&
        mu__stream_recv(t->stream, t->received_word + t->received, WORD_BYTES - t->received, &moved) == MU_OK)
        t->received += moved;
    if (t->sent < WORD_BYTES || t->received < WORD_BYTES)
        return false;
    if (memcmp(t->received_word, wanted, WORD_BYTES) != 0)
        run_fails("%s received \"%.48s\" from %s", task_name(t->rank), t->received_word, task_name(partner));
    return true;
}

static void streaming(task *t)
{
    const int partner = mu__mesh_partner(t->rank, t->streamed, t->options.ranks);
    if (mu__mesh_check(t->mesh, -1) != MU_OK) {
        give_up(t);
        return;
    }
    t->next_ns = world_now() + 10000000; // streams have no poller here
    if (partner < t->options.ranks && (!has_stream(t, partner) || !has_words(t, partner)))
        return;
    world_note("is done with stream %d", t->streamed);
    end_stream(t);
    enter(t, ++t->streamed < t->n_streams ? STAGE_STREAMING : STAGE_WORKING);
}

static void leaving(task *t)
{
    if (!mu__mesh_has_left(t->mesh))
        return;
    world_note("has left");
    mu_release(t->mesh);
    t->mesh = NULL;
    enter(t, STAGE_ENDED);
}

void task_run(task *t)
{
    world_enter(t->process, t->host);
    if (t->stage == STAGE_ABSENT)
        start(t);
    if (t->mesh != NULL)
        t->due_ns = mu__mesh_step(t->mesh, 0);
    if (mu__pending())
        run_fails("the mesh left an error behind: %s", mu_error_message());
    if (t->stage == STAGE_JOINING)
        joining(t);
    if (t->stage == STAGE_WORKING)
        working(t);
    if (t->stage == STAGE_EXCHANGING)
        exchanging(t);
    if (t->stage == STAGE_STREAMING)
        streaming(t);
    if (t->stage == STAGE_LEAVING)
        leaving(t);
}

bool task_is_over(const task *t)
{
    return t->stage == STAGE_ENDED || t->stage == STAGE_DEAD || (t->stage == STAGE_ABSENT && t->start_ns == MU_FOREVER);
}

int64_t task_due(const task *t)
{
    if (task_is_over(t))
        return MU_FOREVER;
    int64_t due = t->stage == STAGE_ABSENT ? t->start_ns : t->due_ns;
    if (t->stage == STAGE_WORKING || t->stage == STAGE_STREAMING)
        due = MU_MIN(due, t->next_ns);
    if (t->stage == STAGE_EXCHANGING)
        due = MU_MIN(due, t->exchange.deadline_ns);
    return MU_MAX(due, t->paused_ns);
}

void task_free(task *t)
{
    mu_error_value ignored;
    world_enter(t->process, t->host);
    if (t->stage == STAGE_EXCHANGING)
        mu__exchange_end(&t->exchange, NULL);
    end_stream(t);
    mu_release(t->mesh);
    mu__error_move(&ignored);
    t->mesh = NULL;
}

void task_kill(task *t)
{
    if (t->stage == STAGE_ABSENT || task_is_over(t)) {
        t->start_ns = t->stage == STAGE_ABSENT ? MU_FOREVER : t->start_ns;
        return;
    }
    world_enter(t->process, t->host);
    world_note("is killed");
    // The kernel closes what the process had open: releasing a mesh without leaving does no more than that.
    task_free(t);
    enter(t, STAGE_DEAD);
}
