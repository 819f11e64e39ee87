/* Weighted-fair queueing: shares follow weights, order within a class, drops at the tail of the longest queue. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler.h"

static uint8_t packet[SCHEDULER_PACKET_MAX];

static void test_shares_follow_weights(void **unused) {
    (void)unused;
    struct scheduler scheduler;
    uint64_t bytes[3] = {0};
    /* Packets of other sizes must not matter: shares are of bytes. */
    static const size_t SIZES[3] = {1500, 500, 900};
    static const uint32_t WEIGHTS[3] = {1, 2, 5};
    assert_int_equal(scheduler_init(&scheduler, 3, 10000000), 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(scheduler_set_weight(&scheduler, i, WEIGHTS[i]), 0);
        for (int n = 0; n < 2000; n++)
            assert_int_equal(scheduler_put(&scheduler, i, packet, SIZES[i], NULL), 0);
    }
    uint64_t sum = 0;
    while (sum < 1000000) {
        struct queued_packet *taken = scheduler_take(&scheduler);
        bytes[taken->class_id] += taken->bytes;
        sum += taken->bytes;
        free(taken);
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_in_range(bytes[i], sum * WEIGHTS[i] / 8 - 2000, sum * WEIGHTS[i] / 8 + 2000);
    scheduler_free(&scheduler);
}

static void test_idle_class_saves_nothing_up(void **unused) {
    (void)unused;
    struct scheduler scheduler;
    scheduler_init(&scheduler, 2, 1000000);
    for (int n = 0; n < 100; n++)
        scheduler_put(&scheduler, 0, packet, 1000, NULL);
    for (int n = 0; n < 50; n++)
        free(scheduler_take(&scheduler));
    for (int n = 0; n < 50; n++)
        scheduler_put(&scheduler, 1, packet, 1000, NULL);
    int second = 0;
    for (int n = 0; n < 20; n++) {
        struct queued_packet *taken = scheduler_take(&scheduler);
        second += taken->class_id == 1;
        free(taken);
    }
    assert_in_range(second, 9, 11);
    scheduler_free(&scheduler);
}

static void test_order_within_a_class(void **unused) {
    (void)unused;
    struct scheduler scheduler;
    scheduler_init(&scheduler, 1, 1000000);
    assert_null(scheduler_take(&scheduler));
    for (uint8_t n = 0; n < 200; n++) {
        uint8_t one[2] = {n, 0};
        scheduler_put(&scheduler, 0, one, 1 + n % 2, NULL);
    }
    for (uint8_t n = 0; n < 200; n++) {
        struct queued_packet *taken = scheduler_take(&scheduler);
        assert_non_null(taken);
        assert_int_equal(taken->data[0], n);
        free(taken);
    }
    assert_int_equal(scheduler.queue_bytes, 0);
    scheduler_free(&scheduler);
}

static void test_the_flooder_loses_his_own(void **unused) {
    (void)unused;
    struct scheduler scheduler;
    scheduler_init(&scheduler, 2, 100000);
    for (int n = 0; n < 10; n++)
        assert_int_equal(scheduler_put(&scheduler, 1, packet, 1000, NULL), 0);
    for (int n = 0; n < 500; n++)
        scheduler_put(&scheduler, 0, packet, 1000, NULL);
    assert_int_equal(scheduler.queue_bytes, 100000);
    assert_int_equal(scheduler.classes[1].dropped_packets, 0);
    assert_int_equal(scheduler.classes[0].dropped_packets, 410);
    assert_int_equal(scheduler_put(&scheduler, 1, packet, 1000, NULL), 1);
    assert_int_equal(scheduler.classes[0].dropped_packets, 411);
    assert_int_equal(scheduler.classes[1].queue_packets, 11);
    /* Drops give their virtual time back: the flooder still gets his half. */
    int first = 0;
    for (int n = 0; n < 20; n++) {
        struct queued_packet *taken = scheduler_take(&scheduler);
        first += taken->class_id == 0;
        free(taken);
    }
    assert_in_range(first, 9, 11);
    scheduler_free(&scheduler);
}

static void test_arguments_are_checked(void **unused) {
    (void)unused;
    struct scheduler scheduler;
    assert_int_equal(scheduler_init(&scheduler, 0, 100000), -EINVAL);
    assert_int_equal(scheduler_init(&scheduler, SCHEDULER_CLASSES + 1, 100000), -EINVAL);
    assert_int_equal(scheduler_init(&scheduler, 1, 1000), -EINVAL);
    assert_int_equal(scheduler_init(&scheduler, 2, 100000), 0);
    assert_int_equal(scheduler_put(&scheduler, 2, packet, 10, NULL), -EINVAL);
    assert_int_equal(scheduler_put(&scheduler, 0, packet, 0, NULL), -EINVAL);
    assert_int_equal(scheduler_set_weight(&scheduler, 0, 0), -EINVAL);
    assert_int_equal(scheduler_set_weight(&scheduler, 2, 1), -EINVAL);
    scheduler_free(&scheduler);
}

/* Two who flood, weights 3 and 1, at 1 MB/s that the connections take in one go after each pause: the first's bytes in
 * a hundred of both. */
static uint64_t share_after_pauses(int pause_ms) {
    struct scheduler scheduler;
    uint64_t sent[2] = {0};
    assert_int_equal(scheduler_init(&scheduler, 2, 100000), 0);
    assert_int_equal(scheduler_set_weight(&scheduler, 0, 3), 0);
    for (int ms = 1; ms <= 8000; ms++) {
        for (uint32_t i = 0; i < 2; i++)
            (void)scheduler_put(&scheduler, i, packet, 1500, NULL);
        struct queued_packet *taken;
        for (int left = ms % pause_ms ? 0 : pause_ms; left > 0 && (taken = scheduler_take(&scheduler)); left--) {
            sent[taken->class_id] += taken->bytes;
            free(taken);
        }
    }
    scheduler_free(&scheduler);
    return 100 * sent[0] / (sent[0] + sent[1]);
}

static void test_weights_hold_while_the_queue_outlasts_a_pause(void **unused) {
    (void)unused;
    assert_in_range(share_after_pauses(1), 74, 76);
    assert_in_range(share_after_pauses(30), 74, 76);
    /* All that waited goes at once: who fills the queue alike has the same. */
    assert_in_range(share_after_pauses(200), 48, 52);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_hold_while_the_queue_outlasts_a_pause),
        cmocka_unit_test(test_shares_follow_weights),
        cmocka_unit_test(test_idle_class_saves_nothing_up),
        cmocka_unit_test(test_order_within_a_class),
        cmocka_unit_test(test_the_flooder_loses_his_own),
        cmocka_unit_test(test_arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
