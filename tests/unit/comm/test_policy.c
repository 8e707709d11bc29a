// Policies: which texts can be read, which are refused and with which message, and which algorithm a size gets.
#include "../base/base_test.h"

#include "comm/comm.h"

static const unsigned messages = MU_NEEDS_MESSAGES;
static const unsigned everything = MU_NEEDS_WINDOW | MU_NEEDS_PEERS | MU_NEEDS_MESSAGES;

static const char *chosen(const char *text, mu_collective_kind kind, int64_t bytes, unsigned means)
{
    mu_policy policy;
    const mu_problem problem = {.kind = kind, .ranks = 4, .count = bytes, .element = 1};
    assert_int_equal(mu__policy_parse(text, &policy), MU_OK);
    return mu__policy_select(&policy, &problem, means)->name;
}

static void test_ranges(void **state)
{
    const char *text = "allreduce:0-32k:slots,32k-1m:direct,1m-:ring;broadcast:tree";
    (void)state;
    assert_string_equal(chosen(text, MU_KIND_ALL_REDUCE, 0, everything), "slots");
    assert_string_equal(chosen(text, MU_KIND_ALL_REDUCE, 16384, everything), "slots");
    assert_string_equal(chosen(text, MU_KIND_ALL_REDUCE, 32768, everything), "direct");
    assert_string_equal(chosen(text, MU_KIND_ALL_REDUCE, (1 << 20) - 1, everything), "direct");
    assert_string_equal(chosen(text, MU_KIND_ALL_REDUCE, 1 << 20, everything), "ring");
    assert_string_equal(chosen(text, MU_KIND_ALL_REDUCE, INT64_C(1) << 40, everything), "ring");
    assert_string_equal(chosen(text, MU_KIND_BROADCAST, 5, everything), "tree");
    assert_string_equal(chosen(text, MU_KIND_BARRIER, 0, everything), "meet");
}

// If the named algorithm does not fit, or none is named, the best one that fits is used.
static void test_falls_back(void **state)
{
    (void)state;
    assert_string_equal(chosen("allreduce:slots", MU_KIND_ALL_REDUCE, 32769, everything), "direct");
    assert_string_equal(chosen("allreduce:direct", MU_KIND_ALL_REDUCE, 100, messages), "ring");
    assert_string_equal(chosen("allreduce:hierarchical", MU_KIND_ALL_REDUCE, 100, messages), "ring");
    assert_string_equal(chosen("allreduce:0-10:ring", MU_KIND_ALL_REDUCE, 100, everything), "direct");
    assert_string_equal(chosen("allreduce:ring", MU_KIND_ALL_GATHER, 100, messages), "ring");
}

static void refuse(const char *text, const char *words)
{
    mu_policy policy;
    assert_int_equal(mu__policy_parse(text, &policy), MU_INVALID_ARGUMENT);
    const mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_INVALID_ARGUMENT);
    if (strstr(error.message, words) == NULL)
        fail_msg("\"%s\": \"%s\" does not say \"%s\"", text, error.message, words);
}

static void test_refused(void **state)
{
    char many[1000] = "allreduce:ring";
    (void)state;
    refuse("", "allreduce, allgather, broadcast, alltoall, reducescatter or permute");
    refuse("reduce:ring", "cannot be read at \"reduce:ring\"");
    refuse("allreduce", "':' and an algorithm");
    refuse("allreduce:", "the name of an algorithm");
    refuse("allreduce:rings", "the algorithm \"rings\", which all_reduce does not have: it has direct, slots, ring");
    refuse("broadcast:ring", "it has direct, slots, tree");
    refuse("allreduce:5:ring", "a range of bytes");
    refuse("allreduce:5-4:ring", "a range of bytes and ':'");
    refuse("allreduce:0-99999999999999999999999:ring", "a range of bytes");
    refuse("allreduce:ring ", "',' or ';' or the end");
    refuse("allreduce:ring,", "the name of an algorithm");
    refuse("allreduce:ring;", "allreduce, allgather");
    refuse("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:ring", "allreduce, allgather");
    for (int i = 0; i < MU_MAX_RULES; i++)
        strcat(many, ",ring");
    refuse(many, "more than 24 rules");
}

static void test_implementations(void **state)
{
    mu_policy policy;
    (void)state;
    for (int placing = MU_PLACED_TOGETHER; placing <= MU_PLACED_MIXED; placing++) {
        assert_int_equal(mu__policy_parse(mu__policy_of(MU_COMM_AUTO, (mu_placing)placing, false), &policy), MU_OK);
        assert_int_equal(mu__policy_parse(mu__policy_of(MU_COMM_RING, (mu_placing)placing, false), &policy), MU_OK);
        assert_int_equal(mu__policy_parse(mu__policy_of(MU_COMM_AUTO, (mu_placing)placing, true), &policy), MU_OK);
        assert_int_equal(mu__policy_check_order(&policy), MU_OK);
    }
    assert_string_equal(chosen(mu__policy_of(MU_COMM_RING, MU_PLACED_APART, false), MU_KIND_ALL_REDUCE, 4, everything),
                        "ring");
    // Where ranks wait for a core, a second barrier stays more expensive than adding everything oneself up to larger
    // sizes.
    const char *together = mu__policy_of(MU_COMM_AUTO, MU_PLACED_TOGETHER, false),
               *crowded = mu__policy_of(MU_COMM_AUTO, MU_PLACED_CROWDED, false);
    assert_string_equal(chosen(together, MU_KIND_ALL_REDUCE, 2047, everything), "slots");
    assert_string_equal(chosen(together, MU_KIND_ALL_REDUCE, 2048, everything), "direct");
    assert_string_equal(chosen(crowded, MU_KIND_ALL_REDUCE, 8191, everything), "slots");
    assert_string_equal(chosen(crowded, MU_KIND_ALL_REDUCE, 8192, everything), "direct");
    // A hint for hardware that is not there: a ring is used, or rank order where deterministic sums are asked for.
    for (int placing = MU_PLACED_TOGETHER; placing <= MU_PLACED_MIXED; placing++) {
        assert_string_equal(mu__policy_of(MU_COMM_NCCL, (mu_placing)placing, false),
                            mu__policy_of(MU_COMM_RING, (mu_placing)placing, false));
        assert_string_equal(mu__policy_of(MU_COMM_NCCL, (mu_placing)placing, true),
                            mu__policy_of(MU_COMM_AUTO, (mu_placing)placing, true));
    }
    assert_non_null(mu__policy_of(MU_COMM_MPI, MU_PLACED_APART, false));
    assert_null(mu__policy_of((mu_communication)99, MU_PLACED_APART, false));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_string_equal(mu_communication_name(MU_COMM_RING), "RING");
    assert_string_equal(mu_communication_name((mu_communication)99), "unknown");
}

// With `deterministic`, algorithms whose bits depend on where replicas are placed are refused.
static void test_order(void **state)
{
    mu_policy policy;
    (void)state;
    assert_null(mu__policy_of(MU_COMM_RING, MU_PLACED_MIXED, true));
    assert_non_null(strstr(mu_error_take().message, "choose MU_COMM_AUTO"));
    assert_int_equal(mu__policy_parse("allreduce:0-1k:pairwise,1k-:doubling", &policy), MU_OK);
    assert_int_equal(mu__policy_check_order(&policy), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_take().message, "\"doubling\" of all_reduce"));
}

static void ask_for_nccl(void *arg)
{
    (void)arg;
    for (int placing = MU_PLACED_TOGETHER; placing <= MU_PLACED_MIXED; placing++)
        mu__policy_of(MU_COMM_NCCL, (mu_placing)placing, placing % 2 == 0);
}

// Must run first: a process logs this only once.
static void test_a_hint_that_cannot_be_followed_warns_once(void **state)
{
    char text[2000];
    (void)state;
    catch_stderr(ask_for_nccl, NULL, text, sizeof text);
    const char *warning = strstr(text, "warning: the communication hint NCCL is for GPU devices");
    assert_non_null(warning);
    assert_null(strstr(warning + 1, "warning"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hint_that_cannot_be_followed_warns_once),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_falls_back),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_implementations),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
