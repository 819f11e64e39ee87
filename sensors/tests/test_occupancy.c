/* Capacity and busy share found by chirps through a queue that others use, too: steady, in bursts, with loss. */
#include "support.h"

#include <math.h>

#include "occupancy.h"
#include "plan.h"

#define PACKET_BYTES 1400
#define OTHERS_BITS 12000.0
#define CHIRPS 15
#define SEEDS 41

/* Small linear congruential generator: the tests must not depend on the C library's. */
static double uniform(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (*state / 256 + 0.5) / 16777216.0;
}

/* A link and its other traffic: bursts at Poisson moments of geometrically many packets, all at once. */
struct link {
    double capacity_bps;
    double load;
    double burst_packets;
    double loss; /* behind the queue */
    double noise_us;
    uint32_t state;
    double next_burst_us;
    double free_at_us;
};

static double exponential(uint32_t *state, double mean) {
    return -mean * log(uniform(state));
}

static void let_others_in(struct link *link, double until_us) {
    double mean_us = link->burst_packets * OTHERS_BITS / (link->load * link->capacity_bps) * 1e6;

    if (link->load <= 0)
        return;
    while (link->next_burst_us <= until_us) {
        double packets = link->burst_packets > 1 ? 1 + floor(exponential(&link->state, link->burst_packets - 0.5)) : 1;

        link->free_at_us =
            fmax(link->free_at_us, link->next_burst_us) + packets * OTHERS_BITS / link->capacity_bps * 1e6;
        link->next_burst_us += exponential(&link->state, mean_us);
    }
}

/* Send a chirp at `start_us`; its times are those of the whole run. */
static size_t send_chirp(struct link *link, const struct chirp_plan *plan, double start_us,
                         struct train_packet *packets) {
    double service_us = 8.0 * PACKET_BYTES / link->capacity_bps * 1e6;

    for (size_t k = 0; k < plan->train.packets; k++) {
        double sent_us = start_us + plan->train.departures_us[k];

        let_others_in(link, sent_us);
        link->free_at_us = fmax(link->free_at_us, sent_us) + service_us;
        packets[k].sent_us = sent_us;
        packets[k].arrived_us = link->free_at_us + 1000 + link->noise_us * uniform(&link->state);
        packets[k].arrived = uniform(&link->state) >= link->loss;
    }
    return plan->train.packets;
}

static bool probe(struct link *link, struct occupancy_result *ret_result) {
    static struct occupancy occupancy;
    double free_bps = link->capacity_bps * (1 - link->load);
    double start_us = 0;

    occupancy = (struct occupancy){0};
    for (unsigned chirp = 0; chirp < CHIRPS; chirp++) {
        struct train_packet packets[TRAIN_PACKETS_MAX];
        struct chirp_plan plan;
        size_t count;

        chirp_plan_make(&plan, free_bps / 4, fmax(free_bps * 4, link->capacity_bps * 2), 1.2, chirp_shift(chirp),
                        PACKET_BYTES);
        count = send_chirp(link, &plan, start_us, packets);
        occupancy_add(&occupancy, packets, count, 8.0 * PACKET_BYTES);
        start_us += 2 * chirp_plan_duration_us(&plan) + 20000;
    }
    return occupancy_estimate(&occupancy, ret_result);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median over seeds of the error relative to what is free; the capacity is to be right every time. */
static double median_error(struct link link) {
    double errors[SEEDS];

    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        struct occupancy_result result = {0};
        struct link own = link;
        double free_bps = link.capacity_bps * (1 - link.load);

        own.state = seed * 7919 + 1;
        if (!probe(&own, &result))
            fail_msg("no estimate at load %.1f, seed %u", link.load, seed);
        if (fabs(result.capacity_bps / link.capacity_bps - 1) > (link.noise_us > 0 ? 0.1 : 0.05))
            fail_msg("capacity %.0f instead of %.0f at load %.1f, seed %u", result.capacity_bps, link.capacity_bps,
                     link.load, seed);
        errors[seed] = fabs(result.available_bps / free_bps - 1);
    }
    qsort(errors, SEEDS, sizeof(*errors), compare);
    return errors[SEEDS / 2];
}

static const double CAPACITIES[] = {10e6, 45e6, 100e6, 240e6};
#define CAPACITY_COUNT (sizeof(CAPACITIES) / sizeof(CAPACITIES[0]))

static void idle_link_is_exact(void **state) {
    (void)state;

    for (size_t i = 0; i < CAPACITY_COUNT; i++)
        assert_true(median_error((struct link){.capacity_bps = CAPACITIES[i], .burst_packets = 1}) < 0.01);
}

static void noise_is_not_others(void **state) {
    (void)state;

    for (size_t i = 0; i < CAPACITY_COUNT; i++) {
        double noise_us = fmin(20, 0.1 * 8 * PACKET_BYTES / CAPACITIES[i] * 1e6);

        assert_true(median_error(
                        (struct link){.capacity_bps = CAPACITIES[i], .burst_packets = 1, .noise_us = noise_us}) < 0.05);
    }
}

static void others_are_seen(void **state) {
    static const double LOADS[] = {0.2, 0.4, 0.6};
    (void)state;

    for (size_t i = 0; i < CAPACITY_COUNT; i++)
        for (size_t j = 0; j < sizeof(LOADS) / sizeof(LOADS[0]); j++) {
            struct link link = {.capacity_bps = CAPACITIES[i], .load = LOADS[j], .burst_packets = 1};
            double steady = median_error(link), bursts;

            link.burst_packets = 8;
            bursts = median_error(link);
            if (steady > 0.2 || bursts > 0.25)
                fail_msg("%.0f bit/s, load %.1f: off by %.3f, with bursts %.3f", CAPACITIES[i], LOADS[j], steady,
                         bursts);
        }
}

static void loss_does_not_look_like_others(void **state) {
    (void)state;

    assert_true(median_error((struct link){.capacity_bps = 100e6, .burst_packets = 1, .loss = 0.05}) < 0.01);
}

static void a_full_path_is_left_to_the_excursions(void **state) {
    struct occupancy_result result;
    (void)state;

    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        struct link link = {.capacity_bps = 45e6, .load = 0.999, .burst_packets = 1, .state = seed * 7919};

        if (probe(&link, &result))
            assert_true(result.available_bps >= 0.05 * result.capacity_bps);
    }
}

static void what_is_not_seen_is_not_guessed(void **state) {
    static struct occupancy occupancy;
    struct occupancy_result result;
    struct train_packet packets[TRAIN_PACKETS_MAX];
    struct link link = {.capacity_bps = 1e9, .burst_packets = 1, .state = 1};
    struct chirp_plan plan;
    (void)state;

    occupancy = (struct occupancy){0};
    assert_false(occupancy_estimate(&occupancy, &result));
    /* Never faster than the link: its capacity does not show. */
    for (unsigned chirp = 0; chirp < CHIRPS; chirp++) {
        chirp_plan_make(&plan, 10e6, 200e6, 1.2, chirp_shift(chirp), PACKET_BYTES);
        occupancy_add(&occupancy, packets, send_chirp(&link, &plan, chirp * 60000.0, packets), 8.0 * PACKET_BYTES);
    }
    assert_false(occupancy_estimate(&occupancy, &result));
    /* Full: what does not fit is left out. */
    for (unsigned chirp = 0; chirp < 500; chirp++)
        occupancy_add(&occupancy, packets, send_chirp(&link, &plan, chirp * 60000.0, packets), 8.0 * PACKET_BYTES);
    assert_true(occupancy.count <= OCCUPANCY_GAPS_MAX);
    occupancy_add(&occupancy, packets, 0, 8.0 * PACKET_BYTES);
    occupancy_add(&occupancy, packets, 1, 8.0 * PACKET_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_link_is_exact),
        cmocka_unit_test(noise_is_not_others),
        cmocka_unit_test(others_are_seen),
        cmocka_unit_test(loss_does_not_look_like_others),
        cmocka_unit_test(a_full_path_is_left_to_the_excursions),
        cmocka_unit_test(what_is_not_seen_is_not_guessed),
    };
    return cmocka_run_group_tests_name("occupancy", tests, NULL, NULL);
}
