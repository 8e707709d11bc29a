// Takes the pending error from the record of this thread, and checks its code and a part of its message.
#ifndef MU_TESTS_ASSERT_TAKEN_H
#define MU_TESTS_ASSERT_TAKEN_H

#include <string.h>

#define assert_taken(wanted, part)                              \
    do {                                                        \
        const mu_error taken_ = mu_error_take();                \
        assert_int_equal(taken_.code, wanted);                  \
        if (strstr(taken_.message, part) == NULL)               \
            fail_msg("no \"%s\" in: %s", part, taken_.message); \
    } while (0)

#endif
