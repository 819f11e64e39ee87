/* Trains that were spoilt by a processor that was away, at either end: they are told from those that show the path. */
#include "support.h"

#include <math.h>

#include "analysis.h"
#include "estimate.h"
#include "plan.h"
#include "train_check.h"

#define PACKET_BYTES 1400
#define CAPACITY_BPS 60e6
static const struct chirp_settings SETTINGS = {1.5, 5};

struct chirp {
    struct chirp_plan plan;
    struct train_packet packets[TRAIN_PACKETS_MAX];
};

/* A chirp around CAPACITY_BPS through an empty link of it; departures and arrivals as planned. */
static void make_chirp(struct chirp *chirp, double shift) {
    chirp_plan_make(&chirp->plan, CAPACITY_BPS / 4, CAPACITY_BPS * 4, 1.2, shift, PACKET_BYTES);
    for (size_t k = 0; k < chirp->plan.train.packets; k++)
        chirp->packets[k].sent_us = chirp->plan.train.departures_us[k];
}

/* Packets enter the queue of the link in the order of `sent_us` and come 2 ms later. */
static void carry(struct chirp *chirp) {
    double service_us = 8.0 * PACKET_BYTES / CAPACITY_BPS * 1e6;
    double free_us = 0;

    for (size_t k = 0; k < chirp->plan.train.packets; k++) {
        free_us = fmax(free_us, chirp->packets[k].sent_us) + service_us;
        chirp->packets[k].arrived = true;
        chirp->packets[k].arrived_us = free_us + 2000;
    }
}

/* Who takes the packets in is away from `from_us` on: what comes meanwhile is handed over at the end, 5 us apart. */
static void hold_arrivals(struct chirp *chirp, double from_us, double for_us) {
    double next_us = from_us + for_us;

    for (size_t k = 0; k < chirp->plan.train.packets; k++)
        if (chirp->packets[k].arrived_us >= from_us && chirp->packets[k].arrived_us < next_us) {
            chirp->packets[k].arrived_us = next_us;
            next_us += 5;
        }
}

/* The sender is away from `from_us` on: what was due meanwhile leaves at the end, 8 us apart. */
static void hold_departures(struct chirp *chirp, double from_us, double for_us) {
    double next_us = from_us + for_us;

    for (size_t k = 0; k < chirp->plan.train.packets; k++)
        if (chirp->packets[k].sent_us >= from_us && chirp->packets[k].sent_us < next_us) {
            chirp->packets[k].sent_us = next_us;
            next_us += 8;
        }
}

static enum train_state judge(const struct chirp *chirp) {
    return train_judge(&chirp->plan.train, chirp->packets, CAPACITY_BPS);
}

static void clean_trains_are_believed(void **state) {
    struct chirp chirp;
    (void)state;

    for (unsigned number = 0; number < 11; number++) {
        make_chirp(&chirp, chirp_shift(number));
        carry(&chirp);
        assert_int_equal(judge(&chirp), TRAIN_CLEAN);
        /* Late by what any host is late by, batches of two, a lost packet: no reason to doubt. */
        for (size_t k = 3; k < chirp.plan.train.packets; k += 3) {
            chirp.packets[k].sent_us += 20;
            chirp.packets[k - 1].arrived_us = chirp.packets[k].arrived_us - 2;
        }
        chirp.packets[5].arrived = false;
        assert_int_equal(judge(&chirp), TRAIN_CLEAN);
    }
    assert_true(train_packet_us(&chirp.plan.train, chirp.packets) >
                0.9 * 12000 / CAPACITY_BPS * 1e6); /* 200 us for 1500 bytes */
}

/* A hold that is short beside the gap it falls into is believed, and then does no harm. */
static void a_sender_that_was_away_is_told(void **state) {
    unsigned spoilt = 0, all = 0;
    struct chirp chirp;
    (void)state;

    for (double from_us = 200; from_us < 3500; from_us += 150) {
        for (double for_us = 300; for_us < 10000; for_us *= 2) {
            struct chirp_result result;

            make_chirp(&chirp, 0.4);
            hold_departures(&chirp, from_us, for_us);
            carry(&chirp);
            all++;
            if (judge(&chirp) == TRAIN_OFF_PLAN) {
                spoilt++;
                continue;
            }
            assert_true(for_us < 700);
            result = chirp_analyse(chirp.packets, chirp.plan.train.packets, 8.0 * PACKET_BYTES, &SETTINGS);
            if (fabs(result.estimate_bps / CAPACITY_BPS - 1) > 0.25)
                fail_msg("away at %.0f us for %.0f us: %.0f Mb/s", from_us, for_us, result.estimate_bps / 1e6);
        }
    }
    assert_true(spoilt > all / 2);
}

/* Whatever a hold does to a chirp, no believed chirp says that more is free than a quarter above the truth. */
static void a_hold_at_the_receiver_raises_no_estimate(void **state) {
    unsigned spoilt = 0, all = 0;
    struct chirp chirp;
    (void)state;

    for (double from_us = 2050; from_us < 6500; from_us += 130) {
        for (double for_us = 400; for_us < 20000; for_us *= 1.7) {
            struct chirp_result result;

            make_chirp(&chirp, 0.4);
            carry(&chirp);
            hold_arrivals(&chirp, from_us, for_us);
            result = chirp_analyse(chirp.packets, chirp.plan.train.packets, 8.0 * PACKET_BYTES, &SETTINGS);
            all++;
            if (judge(&chirp) != TRAIN_CLEAN || result.verdict == CHIRP_DISTURBED)
                spoilt++;
            else if (result.verdict <= CHIRP_ABOVE && result.estimate_bps > 1.25 * CAPACITY_BPS)
                fail_msg("held at %.0f us for %.0f us: %s, %.0f Mb/s", from_us, for_us,
                         chirp_verdict_name(result.verdict), result.estimate_bps / 1e6);
        }
    }
    assert_true(spoilt > all / 2);
    assert_true(spoilt < all);
}

static void a_long_jump_is_no_burst_of_traffic(void **state) {
    struct chirp chirp;
    (void)state;

    make_chirp(&chirp, 0);
    carry(&chirp);
    for (size_t k = 9; k < chirp.plan.train.packets; k++)
        chirp.packets[k].arrived_us += 8 * 200; /* eight packets */
    assert_int_equal(judge(&chirp), TRAIN_CLEAN);
    for (size_t k = 9; k < chirp.plan.train.packets; k++)
        chirp.packets[k].arrived_us += 30 * 200;
    assert_int_equal(judge(&chirp), TRAIN_HELD);
}

static void a_queue_of_others_at_the_end_is_no_estimate(void **state) {
    struct train_packet packets[TRAIN_PACKETS_MAX];
    struct chirp_plan plan;
    (void)state;

    /* Far below what is free; a burst drains while the last packets come. */
    chirp_plan_make(&plan, 1e6, 20e6, 1.2, 0, PACKET_BYTES);
    for (size_t k = 0; k < plan.train.packets; k++) {
        double wait_us = k + 10 < plan.train.packets ? 0 : 10000 * pow(0.8, (double)(k + 10 - plan.train.packets));

        packets[k] = (struct train_packet){true, plan.train.departures_us[k], plan.train.departures_us[k]};
        packets[k].arrived_us += 2000 + wait_us;
    }
    assert_int_equal(chirp_analyse(packets, plan.train.packets, 8.0 * PACKET_BYTES, &SETTINGS).verdict,
                     CHIRP_DISTURBED);
    for (size_t k = 0; k < plan.train.packets; k++)
        packets[k].arrived_us = plan.train.departures_us[k] + 2000;
    assert_int_equal(chirp_analyse(packets, plan.train.packets, 8.0 * PACKET_BYTES, &SETTINGS).verdict, CHIRP_ABOVE);
}

static void bursts_that_did_not_fill_the_queue_are_told(void **state) {
    struct train_packet packets[8];
    (void)state;

    for (size_t k = 0; k < 8; k++)
        packets[k] = (struct train_packet){true, 8.0 * (double)k, 200.0 * (double)k};
    assert_int_equal(train_judge_burst(packets, 8), TRAIN_CLEAN);
    assert_int_equal(train_judge_burst(packets, 2), TRAIN_CLEAN);
    /* The sender was away for less than the queue holds: nothing is lost. */
    for (size_t k = 4; k < 8; k++)
        packets[k].sent_us += 500;
    assert_int_equal(train_judge_burst(packets, 8), TRAIN_CLEAN);
    /* For longer: the link fell idle. */
    for (size_t k = 4; k < 8; k++) {
        packets[k].sent_us += 1000;
        packets[k].arrived_us += 732;
    }
    assert_int_equal(train_judge_burst(packets, 8), TRAIN_OFF_PLAN);
    /* The first were handed over together with the fourth. */
    for (size_t k = 0; k < 8; k++)
        packets[k] = (struct train_packet){true, 8.0 * (double)k, k < 4 ? 600 + 4.0 * (double)k : 200.0 * (double)k};
    assert_int_equal(train_judge_burst(packets, 8), TRAIN_HELD);
    /* A pair that left far apart. */
    packets[0] = (struct train_packet){true, 0, 0};
    packets[1] = (struct train_packet){true, 300, 300};
    assert_int_equal(train_judge_burst(packets, 2), TRAIN_OFF_PLAN);
}

static void pairs_are_judged_by_what_the_link_can_do(void **state) {
    /* 100 Mb/s, four gaps: sent over 408 us, 480 us of service. */
    struct spruce_pair pair = {408, 480, 408, 480};
    (void)state;

    assert_int_equal(spruce_judge_pair(&pair, 100e6), TRAIN_CLEAN);
    pair.arrived_us = 480 + 8 * 120;
    assert_int_equal(spruce_judge_pair(&pair, 100e6), TRAIN_CLEAN);
    pair.arrived_us = 480 + 40 * 120;
    assert_int_equal(spruce_judge_pair(&pair, 100e6), TRAIN_HELD);
    pair.arrived_us = 30;
    assert_int_equal(spruce_judge_pair(&pair, 100e6), TRAIN_HELD);
    pair = (struct spruce_pair){600, 600, 408, 480};
    assert_int_equal(spruce_judge_pair(&pair, 100e6), TRAIN_OFF_PLAN);
}

static void estimates_that_stand_apart_are_left_out(void **state) {
    double near[] = {58e6, 59e6, 57e6, 60e6, 420e6, 58e6, 12e6, 59e6, 61e6, 57e6, 58e6};
    double wide[] = {10e6, 24e6, 31e6, 15e6, 40e6, 22e6, 8e6, 35e6, 28e6, 19e6, 45e6};
    size_t left_out;
    (void)state;

    assert_true(fabs(chirp_mean(near, 11, &left_out) / 58.6e6 - 1) < 0.01);
    assert_int_equal(left_out, 2);
    /* Bursty traffic: estimates differ, and all count. */
    assert_true(fabs(chirp_mean(wide, 11, &left_out) / 25.2e6 - 1) < 0.01);
    assert_int_equal(left_out, 0);
    assert_true(isnan(chirp_mean(near, 0, &left_out)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_trains_are_believed),
        cmocka_unit_test(a_sender_that_was_away_is_told),
        cmocka_unit_test(a_hold_at_the_receiver_raises_no_estimate),
        cmocka_unit_test(a_long_jump_is_no_burst_of_traffic),
        cmocka_unit_test(a_queue_of_others_at_the_end_is_no_estimate),
        cmocka_unit_test(bursts_that_did_not_fill_the_queue_are_told),
        cmocka_unit_test(pairs_are_judged_by_what_the_link_can_do),
        cmocka_unit_test(estimates_that_stand_apart_are_left_out),
    };
    return cmocka_run_group_tests_name("spoilt trains", tests, NULL, NULL);
}
