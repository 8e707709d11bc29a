// The script of a task: join, exchange some blocks, stay for a while, leave. Every error ends the program, which then
// releases its mesh as any program does.
#include "task.h"

const char *task_name(int rank)
{
    static char names[MOST_TASKS][32];
    snprintf(names[rank], sizeof names[rank], "/job:worker/task:%d", rank);
    return names[rank];
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
    enter(t, STAGE_WORKING);
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
    if (t->stage == STAGE_LEAVING)
        leaving(t);
}

bool task_is_over(const task *t)
{
    return t->stage == STAGE_ENDED || t->stage == STAGE_DEAD ||
           (t->stage == STAGE_ABSENT && t->start_ns == MU_FOREVER);
}

int64_t task_due(const task *t)
{
    if (task_is_over(t))
        return MU_FOREVER;
    int64_t due = t->stage == STAGE_ABSENT ? t->start_ns : t->due_ns;
    if (t->stage == STAGE_WORKING)
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
