/* Chirp analysis on synthetic delays: a fluid queue of known capacity, then noise, batches, loss, cross traffic. */
#include "support.h"

#include <math.h>

#include "analysis.h"
#include "plan.h"

static const struct chirp_settings SETTINGS = {1.5, 5};
#define PACKET_BYTES 1400

/* Small linear congruential generator: the tests must not depend on the C library's. */
static double uniform(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state / 4294967296.0;
}

/* Send a planned chirp through a FIFO link of `capacity_bps`; every packet waits for the one before. */
static size_t make_chirp(double low_bps, double high_bps, double capacity_bps, double shift,
                         struct train_packet *packets) {
    double service_us = 8.0 * PACKET_BYTES / capacity_bps * 1e6;
    struct chirp_plan plan;
    double free_at_us = 0;

    chirp_plan_make(&plan, low_bps, high_bps, 1.2, shift, PACKET_BYTES);
    for (size_t k = 0; k < plan.train.packets; k++) {
        free_at_us = fmax(free_at_us, plan.train.departures_us[k]) + service_us;
        packets[k] = (struct train_packet){true, plan.train.departures_us[k], free_at_us + 1000};
    }
    return plan.train.packets;
}

static void assert_near(double value, double expected, double share) {
    if (fabs(value / expected - 1) > share)
        fail_msg("%.0f is not within %.0f %% of %.0f", value, share * 100, expected);
}

static void idle_link_is_exact(void **state) {
    static const double CAPACITIES[] = {1e6, 10e6, 45e6, 100e6, 240e6, 600e6};
    (void)state;

    for (size_t i = 0; i < sizeof(CAPACITIES) / sizeof(CAPACITIES[0]); i++) {
        for (unsigned shift = 0; shift < 11; shift++) {
            struct train_packet packets[TRAIN_PACKETS_MAX];
            size_t count = make_chirp(CAPACITIES[i] / 4, CAPACITIES[i] * 4, CAPACITIES[i], chirp_shift(shift), packets);
            struct chirp_result result = chirp_analyse(packets, count, 8.0 * PACKET_BYTES, &SETTINGS);

            assert_int_equal(result.verdict, CHIRP_WITHIN);
            assert_false(result.doubtful);
            assert_near(result.estimate_bps, CAPACITIES[i], 0.05);
        }
    }
}

static void noise_is_not_a_queue(void **state) {
    uint32_t seed = 7;
    double sum = 0;
    (void)state;

    for (unsigned run = 0; run < 11; run++) {
        struct train_packet packets[TRAIN_PACKETS_MAX];
        size_t count = make_chirp(25e6, 400e6, 100e6, chirp_shift(run), packets);

        /* Late wake-ups: always some microseconds, one packet in six tens of them. */
        for (size_t k = 0; k < count; k++)
            packets[k].arrived_us += 4 * uniform(&seed) + (uniform(&seed) < 0.17 ? 60 * uniform(&seed) : 0);
        for (size_t k = 1; k < count; k++)
            packets[k].arrived_us = fmax(packets[k].arrived_us, packets[k - 1].arrived_us);
        sum += chirp_analyse(packets, count, 8.0 * PACKET_BYTES, &SETTINGS).estimate_bps;
    }
    assert_near(sum / 11, 100e6, 0.1);
}

static void batches_are_merged(void **state) {
    struct train_packet packets[TRAIN_PACKETS_MAX];
    size_t count = make_chirp(25e6, 400e6, 100e6, 0.3, packets);
    struct chirp_result result;
    (void)state;

    /* A device that hands over in pairs: the first of each waits for the second. */
    for (size_t k = 1; k < count; k += 2)
        packets[k - 1].arrived_us = packets[k].arrived_us - 1;
    result = chirp_analyse(packets, count, 8.0 * PACKET_BYTES, &SETTINGS);
    assert_true(result.coalesced >= count / 2 - 1);
    assert_near(result.estimate_bps, 100e6, 0.2);
}

static void loss_does_not_bias(void **state) {
    uint32_t seed = 3;
    double sum = 0;
    unsigned used = 0, doubtful = 0;
    (void)state;

    for (unsigned run = 0; run < 200; run++) {
        struct train_packet packets[TRAIN_PACKETS_MAX];
        size_t count = make_chirp(25e6, 400e6, 100e6, chirp_shift(run), packets);
        struct chirp_result result;

        for (size_t k = 0; k < count; k++)
            packets[k].arrived = uniform(&seed) >= 0.05;
        result = chirp_analyse(packets, count, 8.0 * PACKET_BYTES, &SETTINGS);
        doubtful += result.doubtful;
        if (result.verdict != CHIRP_WITHIN || result.doubtful)
            continue;
        used++;
        sum += result.estimate_bps;
    }
    assert_true(used > 100);
    assert_true(doubtful > 10);
    assert_near(sum / used, 100e6, 0.05);
}

static void edges_of_the_range_are_told(void **state) {
    struct train_packet packets[TRAIN_PACKETS_MAX];
    size_t count = make_chirp(25e6, 100e6, 1e9, 0, packets);
    struct chirp_result result = chirp_analyse(packets, count, 8.0 * PACKET_BYTES, &SETTINGS);
    (void)state;

    assert_int_equal(result.verdict, CHIRP_ABOVE);
    assert_true(result.estimate_bps > 80e6);
    count = make_chirp(25e6, 100e6, 5e6, 0, packets);
    result = chirp_analyse(packets, count, 8.0 * PACKET_BYTES, &SETTINGS);
    assert_int_equal(result.verdict, CHIRP_BELOW);
    assert_true(result.estimate_bps < 26e6);
}

/* Packets of other traffic, evenly spaced, enter the same queue. */
static void cross_traffic_lowers_the_estimate(void **state) {
    double sum = 0;
    (void)state;

    for (unsigned run = 0; run < 11; run++) {
        double service_us = 8.0 * PACKET_BYTES / 100e6 * 1e6;
        struct train_packet packets[TRAIN_PACKETS_MAX];
        struct chirp_plan plan;
        double free_at_us = 0, other_us = 0;

        /* 40 Mb/s in packets of 140 bytes: 28 us apart, 11.2 us each. */
        chirp_plan_make(&plan, 15e6, 240e6, 1.2, chirp_shift(run), PACKET_BYTES);
        for (size_t k = 0; k < plan.train.packets; k++) {
            for (; other_us <= plan.train.departures_us[k]; other_us += 28)
                free_at_us = fmax(free_at_us, other_us) + 11.2;
            free_at_us = fmax(free_at_us, plan.train.departures_us[k]) + service_us;
            packets[k] = (struct train_packet){true, plan.train.departures_us[k], free_at_us};
        }
        sum += chirp_analyse(packets, plan.train.packets, 8.0 * PACKET_BYTES, &SETTINGS).estimate_bps;
    }
    assert_near(sum / 11, 60e6, 0.15);
}

static void what_cannot_be_judged_is_said(void **state) {
    struct train_packet packets[TRAIN_PACKETS_MAX];
    size_t count = make_chirp(25e6, 400e6, 100e6, 0, packets);
    double kept = packets[4].arrived_us;
    (void)state;

    packets[4].arrived_us = packets[3].arrived_us - 1;
    assert_int_equal(chirp_analyse(packets, count, 8.0 * PACKET_BYTES, &SETTINGS).verdict, CHIRP_REORDERED);
    packets[4].arrived_us = kept;
    for (size_t k = 3; k < count; k++)
        packets[k].arrived = false;
    assert_int_equal(chirp_analyse(packets, count, 8.0 * PACKET_BYTES, &SETTINGS).verdict, CHIRP_INCOMPLETE);
    assert_int_equal(chirp_analyse(packets, 0, 8.0 * PACKET_BYTES, &SETTINGS).verdict, CHIRP_INCOMPLETE);
    assert_int_equal(chirp_analyse(packets, TRAIN_PACKETS_MAX + 1, 8, &SETTINGS).verdict, CHIRP_INCOMPLETE);
}

static void plans_stay_within_their_rates(void **state) {
    struct chirp_plan plan;
    (void)state;

    chirp_plan_make(&plan, 1e6, 1e9, 1.2, 0, 1400);
    assert_int_equal(plan.train.packets, 39);
    assert_near(plan.low_bps, 1e6, 1e-9);
    assert_true(plan.high_bps <= 1e9 && plan.high_bps > 1e9 / 1.2);
    assert_near(plan.train.departures_us[1], 11200, 1e-9);
    assert_int_equal(exchange_train_bytes(&plan.train), 39 * 1400);
    chirp_plan_make(&plan, 1, 1e10, 1.05, 0.5, 1400);
    assert_int_equal(plan.train.packets, TRAIN_PACKETS_MAX);
    assert_int_equal(chirp_packet_bytes(10e6, 1400), 576);
    assert_int_equal(chirp_packet_bytes(1e9, 1400), 1400);
    assert_int_equal(chirp_packet_bytes(40e6, 1400), 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_link_is_exact),
        cmocka_unit_test(noise_is_not_a_queue),
        cmocka_unit_test(batches_are_merged),
        cmocka_unit_test(loss_does_not_bias),
        cmocka_unit_test(edges_of_the_range_are_told),
        cmocka_unit_test(cross_traffic_lowers_the_estimate),
        cmocka_unit_test(what_cannot_be_judged_is_said),
        cmocka_unit_test(plans_stay_within_their_rates),
    };
    return cmocka_run_group_tests_name("chirp analysis", tests, NULL, NULL);
}
