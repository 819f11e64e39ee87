/* spruce and pathrate: what they make of pairs and trains that went through a simulated bottleneck. */
#include "support.h"

#include <math.h>

#include "estimate.h"
#include "modes.h"

#define PACKET_BITS 12000.0

static double uniform(unsigned short *chance) {
    return erand48(chance);
}

/* A link with Poisson traffic of full packets: time at which it is free next. */
struct bottleneck {
    double capacity_bps;
    double load;
    double free_us;
    double other_us; /* arrival of the next packet of others */
    unsigned short chance[3];
};

static double pass(struct bottleneck *link, double at_us, double bits) {
    while (link->load > 0 && link->other_us <= at_us) {
        link->free_us = fmax(link->free_us, link->other_us) + PACKET_BITS / link->capacity_bps * 1e6;
        link->other_us += -log(1 - uniform(link->chance)) * PACKET_BITS / (link->load * link->capacity_bps) * 1e6;
    }
    link->free_us = fmax(link->free_us, at_us) + bits / link->capacity_bps * 1e6;
    return link->free_us;
}

static double spruce_over(double capacity_bps, double load) {
    struct bottleneck link = {capacity_bps, load, 0, 0, {1, 2, 3}};
    struct spruce_samples *samples = calloc(1, sizeof(*samples));
    unsigned gaps = spruce_gaps(capacity_bps);
    double service_us = PACKET_BITS / capacity_bps * 1e6;
    double gap_us = SPRUCE_GAP_SHARE * service_us;
    struct spruce_estimate estimate;
    double at_us = 1000;

    for (size_t i = 0; i < SPRUCE_PAIRS_MAX; i++) {
        struct spruce_pair *pair = &samples->pairs[samples->pair_count++];
        double first_us, last_us;

        for (unsigned k = 0; k < 4; k++) {
            double out_us = pass(&link, at_us, 736);

            /* Clocks that drift by 40 ppm. */
            samples->looks[samples->look_count++] = (struct spruce_look){at_us, out_us - at_us + 4e-5 * at_us, 92};
            at_us += -log(1 - uniform(link.chance)) * 6000 + 500;
        }
        first_us = last_us = pass(&link, at_us, PACKET_BITS);
        samples->looks[samples->look_count++] = (struct spruce_look){at_us, first_us - at_us + 4e-5 * at_us, 1500};
        for (unsigned gap = 1; gap <= gaps; gap++)
            last_us = pass(&link, at_us + gap * gap_us, PACKET_BITS);
        *pair = (struct spruce_pair){gaps * gap_us, last_us - first_us, gaps * gap_us, gaps * service_us};
        at_us += -log(1 - uniform(link.chance)) * 6000 + 4 * gaps * service_us + 2000;
    }
    samples->own_share = SPRUCE_PAIRS_MAX * ((gaps + 1) * PACKET_BITS + 4 * 736) / (capacity_bps * at_us / 1e6);
    assert_true(spruce_estimate(samples, capacity_bps, &estimate));
    free(samples);
    return estimate.share;
}

static void assert_near(double value, double expected, double tolerance) {
    if (fabs(value - expected) > tolerance)
        fail_msg("%g is not within %g of %g", value, tolerance, expected);
}

static void spruce_finds_what_others_leave(void **state) {
    (void)state;

    for (double capacity_bps = 10e6; capacity_bps < 300e6; capacity_bps *= 2.3)
        for (double load = 0; load < 0.85; load += 0.2)
            assert_near(spruce_over(capacity_bps, load), 1 - load, 0.05);
}

static void spruce_does_not_judge_by_few_or_late_pairs(void **state) {
    struct spruce_samples *samples = calloc(1, sizeof(*samples));
    struct spruce_estimate estimate;
    (void)state;

    assert_false(spruce_estimate(samples, 1e7, &estimate));
    samples->pair_count = 50;
    for (size_t i = 0; i < 50; i++)
        samples->pairs[i] = (struct spruce_pair){2000, 2400, 1020, 1200};
    assert_false(spruce_estimate(samples, 1e7, &estimate));
    for (size_t i = 0; i < 50; i++)
        samples->pairs[i].sent_us = 1020;
    assert_true(spruce_estimate(samples, 1e7, &estimate));
    assert_int_equal(estimate.pairs_used, 50);
    assert_near(estimate.share, 0, 1e-9);
    free(samples);
}

static double pathrate_over(double capacity_bps, double load, enum pathrate_grounds *ret_grounds) {
    struct bottleneck link = {capacity_bps, load, 0, 0, {4, 5, 6}};
    struct pathrate_sample samples[80];
    unsigned length = pathrate_length(capacity_bps, 1500);
    struct pathrate_estimate estimate;
    struct pathrate_modes modes;
    double adr[8];
    double at_us = 1000;

    for (size_t i = 0; i < 88; i++) {
        unsigned packets = i < 80 ? length : 24;
        double first_us = pass(&link, at_us, PACKET_BITS), last_us = first_us;
        double rate_bps;

        /* The sender's own link is ten times as fast. */
        for (unsigned k = 1; k < packets; k++)
            last_us = pass(&link, at_us + k * PACKET_BITS / capacity_bps * 1e5, PACKET_BITS);
        last_us += 3 * uniform(link.chance);
        rate_bps = pathrate_rate_bps(packets, 1500, last_us - first_us);
        if (i < 80)
            samples[i] = (struct pathrate_sample){rate_bps, first_us + last_us - 2 * at_us};
        else
            adr[i - 80] = rate_bps;
        at_us += 20000 + 20000 * uniform(link.chance);
    }
    pathrate_find_modes(samples, 80, &modes);
    assert_true(pathrate_estimate(samples, 80, pathrate_trimmed_mean(adr, 8), &modes, &estimate));
    assert_true(estimate.low_bps <= estimate.capacity_bps && estimate.capacity_bps <= estimate.high_bps);
    *ret_grounds = estimate.grounds;
    return estimate.capacity_bps;
}

static void pathrate_finds_the_capacity_under_load(void **state) {
    enum pathrate_grounds grounds;
    (void)state;

    for (double capacity_bps = 1e6; capacity_bps < 300e6; capacity_bps *= 2.3)
        for (double load = 0; load < 0.85; load += 0.2)
            assert_near(pathrate_over(capacity_bps, load, &grounds) / capacity_bps, 1, 0.04);
    (void)pathrate_over(1e7, 0, &grounds);
    assert_int_equal(grounds, PATHRATE_NARROW);
}

static void pathrate_tells_a_lower_bound_from_a_capacity(void **state) {
    struct pathrate_sample samples[40] = {0};
    struct pathrate_estimate estimate;
    struct pathrate_modes modes = {0};
    (void)state;

    assert_false(pathrate_estimate(samples, 2, 0, &modes, &estimate));
    /* Rates all over the place, none twice. */
    for (size_t i = 0; i < 40; i++)
        samples[i] = (struct pathrate_sample){1e6 * pow(1.3, (double)i), (double)i};
    pathrate_find_modes(samples, 40, &modes);
    assert_true(pathrate_estimate(samples, 40, 1e12, &modes, &estimate));
    assert_int_equal(estimate.grounds, PATHRATE_LOWER_BOUND);
    assert_near(estimate.capacity_bps, 1e12, 1);
}

static void trains_are_as_long_as_timestamps_need(void **state) {
    (void)state;

    assert_int_equal(pathrate_length(1e6, 1500), 2);
    assert_int_equal(pathrate_length(50e6, 1500), 2);
    assert_int_equal(pathrate_length(240e6, 1500), 3);
    assert_int_equal(pathrate_length(600e6, 1500), 6);
    assert_int_equal(pathrate_length(INFINITY, 1500), 17);
    assert_int_equal(spruce_gaps(10e6), 1);
    assert_int_equal(spruce_gaps(240e6), 10);
    assert_true(spruce_looks_help(20e6));
    assert_false(spruce_looks_help(45e6));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spruce_finds_what_others_leave),
        cmocka_unit_test(spruce_does_not_judge_by_few_or_late_pairs),
        cmocka_unit_test(pathrate_finds_the_capacity_under_load),
        cmocka_unit_test(pathrate_tells_a_lower_bound_from_a_capacity),
        cmocka_unit_test(trains_are_as_long_as_timestamps_need),
    };

    return cmocka_run_group_tests_name("dispersion", tests, NULL, NULL);
}
