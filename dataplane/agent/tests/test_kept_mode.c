/* The mode on disk: what was written is read again, nothing means observe, what is broken means off. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "grants/kept_mode.h"

static char directory[] = "/tmp/kept-mode-XXXXXX";
static char path[64];

static int make_directory(void **state) {
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/enforcement", directory);
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static void assert_kept(enum decide_mode told, bool off) {
    struct kept_mode kept;
    assert_int_equal(kept_mode_read(directory, &kept), 0);
    assert_int_equal(kept.told, told);
    assert_int_equal(kept.off, off);
}

static void a_node_that_was_told_nothing_observes(void **state) {
    (void)state;
    assert_kept(DECIDE_MODE_OBSERVE, false);
}

static void what_was_written_is_read(void **state) {
    (void)state;
    for (int mode = DECIDE_MODE_OFF; mode <= DECIDE_MODE_ENFORCE; mode++)
        for (int off = 0; off < 2; off++) {
            const struct kept_mode kept = {.told = (enum decide_mode)mode, .off = off};
            assert_int_equal(kept_mode_write(directory, &kept), 0);
            assert_kept(kept.told, kept.off);
        }
}

static void what_is_broken_means_off(void **state) {
    static const char *const texts[] = {"", "mode", "mode fast\nlocal on\n", "mode observe\n",
                                        "mode observe\nlocal perhaps\n"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct kept_mode kept = {0};
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(texts[i], file);
        fclose(file);
        assert_int_equal(kept_mode_read(directory, &kept), -EBADMSG);
        assert_true(kept.off);
        assert_int_equal(kept.told, DECIDE_MODE_OBSERVE);
    }
}

static void a_folder_that_is_not_there_is_told(void **state) {
    const struct kept_mode kept = {.told = DECIDE_MODE_OFF};
    (void)state;
    assert_int_equal(kept_mode_write("/tmp/kept-mode-that-is-not-there", &kept), -ENOENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_was_told_nothing_observes),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(what_is_broken_means_off),
        cmocka_unit_test(a_folder_that_is_not_there_is_told),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
