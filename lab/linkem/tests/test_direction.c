/* The way of packets through one direction, on a clock that the test moves. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <string.h>

#include "direction.h"

#define MS 1000000ULL
#define S 1000000000ULL

struct arrivals {
    size_t count;
    uint64_t now_ns;
    uint64_t at_ns[20000];
    uint32_t number[20000];
};

static struct arrivals arrivals;
static struct direction direction;

static int arrive(void *context, const struct packet *packet) {
    struct arrivals *all = context;
    all->at_ns[all->count] = all->now_ns;
    memcpy(&all->number[all->count], packet->data, sizeof(uint32_t));
    all->count++;
    return 0;
}

static int refuse(void *context, const struct packet *packet) {
    (void)context;
    (void)packet;
    return -5;
}

static void offer(uint32_t number, uint32_t length, uint64_t now_ns) {
    struct packet *packet = packet_new();
    packet->length = length;
    memcpy(packet->data, &number, sizeof(number));
    direction_offer(&direction, packet, now_ns);
}

/* Runs every event up to a time, each at its own time. */
static void run_until(uint64_t end_ns, deliver_function deliver) {
    for (uint64_t next_ns = direction_next_ns(&direction); next_ns <= end_ns; next_ns = direction_next_ns(&direction)) {
        arrivals.now_ns = next_ns;
        direction_run(&direction, next_ns, deliver, &arrivals);
    }
}

static void begin(struct parameters parameters) {
    memset(&arrivals, 0, sizeof(arrivals));
    direction_start(&direction, 7, 0);
    direction_set(&direction, &parameters, 0);
}

static struct parameters link_of(uint64_t rate_bps, uint64_t delay_us) {
    struct parameters parameters = parameters_default();
    parameters.rate_bps = rate_bps;
    parameters.delay_us = delay_us;
    return parameters;
}

static uint64_t dropped(void) {
    uint64_t sum = 0;
    for (int cause = 0; cause < DROP_CAUSES; cause++)
        sum += direction.counters.dropped[cause].packets;
    return sum;
}

static void packets_are_conserved(void) {
    const struct counters *counters = &direction.counters;
    assert_int_equal(counters->offered.packets + counters->duplicated.packets,
                     counters->carried.packets + dropped() + direction.queue_packets + (direction.sending ? 1 : 0) +
                         direction.wire_packets);
}

static void end(void) {
    packets_are_conserved();
    direction_stop(&direction);
}

static void test_delay_counts_from_the_end_of_transmission(void **state) {
    (void)state;
    begin(link_of(100000000, 10000));
    offer(0, 1500, 0);
    run_until(S, arrive);
    assert_int_equal(arrivals.count, 1);
    assert_int_equal(arrivals.at_ns[0], 120000 + 10 * MS);
    end();
}

static void test_rate_is_exact_over_a_long_backlog(void **state) {
    (void)state;
    /* 1500 octets at 7 Mb/s take 1714285.714 ns: rounding must not add up. */
    struct parameters parameters = link_of(7000000, 0);
    parameters.queue = (struct queue_parameters){.limit_packets = 20000};
    begin(parameters);
    for (uint32_t i = 0; i < 7000; i++)
        offer(i, 1500, 0);
    run_until(100 * S, arrive);
    assert_int_equal(arrivals.count, 7000);
    assert_int_equal(arrivals.at_ns[6999], 12 * S);
    end();
}

static void test_idle_link_does_not_save_up_rate(void **state) {
    (void)state;
    begin(link_of(1000000, 0));
    offer(0, 1250, 0);
    offer(1, 1250, 5 * S);
    offer(2, 1250, 5 * S);
    run_until(10 * S, arrive);
    assert_int_equal(arrivals.at_ns[0], 10 * MS);
    assert_int_equal(arrivals.at_ns[1], 5 * S + 10 * MS);
    assert_int_equal(arrivals.at_ns[2], 5 * S + 20 * MS);
    end();
}

static void test_drop_tail_by_packets_and_by_bytes(void **state) {
    (void)state;
    struct parameters parameters = link_of(1000000, 0);
    parameters.queue = (struct queue_parameters){.limit_packets = 3};
    begin(parameters);
    for (uint32_t i = 0; i < 10; i++)
        offer(i, 1000, 0);
    assert_int_equal(direction.queue_packets, 3);
    assert_int_equal(direction.counters.dropped[DROP_QUEUE].packets, 6);
    parameters.queue = (struct queue_parameters){.limit_bytes = 3500};
    direction_set(&direction, &parameters, 0);
    offer(10, 600, 0);
    offer(11, 500, 0);
    assert_int_equal(direction.queue_bytes, 3500);
    assert_int_equal(direction.counters.dropped[DROP_QUEUE].packets, 7);
    run_until(S, arrive);
    assert_int_equal(arrivals.count, 5);
    assert_int_equal(direction.counters.queue_maximum_bytes, 3500);
    end();
}

static void test_default_queue_follows_rate_and_delay(void **state) {
    (void)state;
    assert_int_equal(queue_default_bytes(100000000, 10000), 1250000);
    assert_int_equal(queue_default_bytes(100000000, 100000), 2500000);
    assert_int_equal(queue_default_bytes(64000, 0), 48000);
    assert_int_equal(queue_default_bytes(100000000000ULL, 1000000), 64000000);
    begin(link_of(100000000, 10000));
    assert_int_equal(direction.parameters.queue.limit_bytes, 1250000);
    end();
}

static void test_random_loss_has_its_share_and_repeats_by_seed(void **state) {
    (void)state;
    uint32_t first_run[20000];
    struct parameters parameters = link_of(0, 0);
    parameters.loss = 0.05;
    for (int round = 0; round < 2; round++) {
        begin(parameters);
        for (uint32_t i = 0; i < 20000; i++) {
            offer(i, 1500, i * MS);
            run_until(i * MS, arrive);
        }
        double share = (double)direction.counters.dropped[DROP_LOSS].packets / 20000;
        assert_true(fabs(share - 0.05) < 0.006);
        if (round == 0)
            memcpy(first_run, arrivals.number, sizeof(first_run));
        else
            assert_memory_equal(first_run, arrivals.number, sizeof(first_run));
        end();
    }
}

static void test_lost_packets_use_the_rate(void **state) {
    (void)state;
    struct parameters parameters = link_of(12000000, 0);
    parameters.queue = (struct queue_parameters){.limit_packets = 20000};
    parameters.loss = 0.5;
    begin(parameters);
    for (uint32_t i = 0; i < 1000; i++)
        offer(i, 1500, 0);
    run_until(500 * MS - 1, arrive);
    assert_true(arrivals.count > 200 && arrivals.count < 300);
    run_until(S, arrive);
    end();
}

static void test_packets_with_options_are_dropped_when_told(void **state) {
    static const struct {
        uint8_t first, next_header;
        uint32_t length;
        bool passes;
    } cases[] = {
        {0x45, 6, 40, true},  {0x46, 6, 44, false}, {0x4e, 17, 84, false},
        {0x60, 0, 88, false}, {0x60, 6, 60, true},  {0x4e, 0, 19, true},
    };
    (void)state;
    struct parameters parameters = link_of(0, 0);
    parameters.drop_options = true;
    begin(parameters);
    size_t passed = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct packet *packet = packet_new();
        memset(packet->data, 0, sizeof(packet->data));
        packet->data[0] = cases[i].first;
        packet->data[6] = cases[i].next_header;
        packet->length = cases[i].length;
        direction_offer(&direction, packet, i * MS);
        run_until(i * MS, arrive);
        passed += cases[i].passes;
        assert_int_equal(arrivals.count, passed);
    }
    assert_int_equal(direction.counters.dropped[DROP_OPTIONS].packets, 3);
    end();
}

static void test_burst_loss_comes_in_runs(void **state) {
    (void)state;
    struct parameters parameters = link_of(0, 0);
    parameters.burst =
        (struct burst_parameters){.enabled = true, .enter = 0.01, .leave = 0.2, .loss_good = 0, .loss_bad = 1};
    begin(parameters);
    uint64_t runs = 0, lost_before = 0, length = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        offer(i, 100, i * MS);
        run_until(i * MS, arrive);
        uint64_t lost = direction.counters.dropped[DROP_LOSS].packets;
        if (lost > lost_before)
            runs += length++ == 0;
        else
            length = 0;
        lost_before = lost;
    }
    /* Stationary loss 0.01 / (0.01 + 0.2), mean run 1 / 0.2. */
    assert_true(fabs((double)lost_before / 20000 - 0.0476) < 0.012);
    assert_true(fabs((double)lost_before / (double)runs - 5.0) < 1.0);
    end();
}

static void test_schedule_names_the_lost(void **state) {
    (void)state;
    struct parameters parameters = link_of(0, 0);
    parameters.schedule = (struct schedule_parameters){.period = 10, .count = 2, .lost = {0, 7}};
    begin(parameters);
    for (uint32_t i = 0; i < 20; i++) {
        offer(i, 100, i * MS);
        run_until(i * MS, arrive);
    }
    assert_int_equal(arrivals.count, 16);
    assert_int_equal(arrivals.number[0], 1);
    assert_int_equal(arrivals.number[6], 8);
    assert_int_equal(arrivals.number[8], 11);
    end();
}

static void test_jitter_keeps_order_and_reordering_breaks_it(void **state) {
    (void)state;
    struct parameters parameters = link_of(0, 20000);
    parameters.jitter_us = 10000;
    begin(parameters);
    for (uint32_t i = 0; i < 1000; i++)
        offer(i, 100, i * MS);
    run_until(2 * S, arrive);
    uint64_t least_ns = UINT64_MAX, most_ns = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(arrivals.number[i], i);
        uint64_t took_ns = arrivals.at_ns[i] - i * MS;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
        most_ns = took_ns > most_ns ? took_ns : most_ns;
    }
    assert_true(least_ns >= 10 * MS && most_ns <= 30 * MS && most_ns - least_ns > 10 * MS);
    direction_stop(&direction);

    parameters.jitter_us = 0;
    parameters.reorder = 0.1;
    parameters.reorder_extra_us = 5500;
    begin(parameters);
    for (uint32_t i = 0; i < 1000; i++)
        offer(i, 100, i * MS);
    run_until(2 * S, arrive);
    uint32_t late = 0;
    for (uint32_t i = 1; i < 1000; i++)
        late += arrivals.number[i] < arrivals.number[i - 1];
    assert_int_equal(arrivals.count, 1000);
    assert_true(late > 50);
    assert_int_equal(direction.counters.reordered.packets > 60 && direction.counters.reordered.packets < 140, 1);
    end();
}

static void test_duplicates_are_counted_apart(void **state) {
    (void)state;
    struct parameters parameters = link_of(0, 1000);
    parameters.duplicate = 1;
    begin(parameters);
    offer(0, 100, 0);
    run_until(S, arrive);
    assert_int_equal(arrivals.count, 2);
    assert_int_equal(direction.counters.duplicated.packets, 1);
    assert_int_equal(direction.counters.carried.packets, 2);
    end();
}

static void test_outage_ends_by_itself(void **state) {
    (void)state;
    begin(link_of(1000000, 0));
    direction_outage(&direction, 100 * MS, 0);
    offer(0, 100, 50 * MS);
    offer(1, 100, 100 * MS);
    run_until(S, arrive);
    assert_int_equal(arrivals.count, 1);
    assert_int_equal(arrivals.number[0], 1);
    assert_int_equal(direction.counters.dropped[DROP_OUTAGE].packets, 1);
    assert_false(direction.parameters.outage);
    end();
}

static void test_rate_change_applies_to_the_packet_being_sent(void **state) {
    (void)state;
    struct parameters parameters = link_of(8000, 0);
    begin(parameters);
    offer(0, 1000, 0); /* one second at 8 kb/s */
    offer(1, 1000, 0);
    parameters.rate_bps = 80000;
    direction_set(&direction, &parameters, 500 * MS);
    run_until(2 * S, arrive);
    assert_int_equal(arrivals.at_ns[0], 550 * MS);
    assert_int_equal(arrivals.at_ns[1], 650 * MS);
    end();
}

static void test_red_drops_early_between_its_thresholds(void **state) {
    (void)state;
    struct parameters parameters = link_of(12000000, 0);
    parameters.queue = (struct queue_parameters){
        .kind = QUEUE_RED,
        .limit_packets = 200,
        .red_minimum_packets = 5,
        .red_maximum_packets = 50,
        .red_maximum_probability = 0.1,
        .red_weight = 0.01,
    };
    begin(parameters);
    for (uint32_t i = 0; i < 5000; i++) { /* 10 % more than the link carries */
        uint64_t now_ns = (uint64_t)i * 909090;
        run_until(now_ns, arrive);
        offer(i, 1500, now_ns);
    }
    double share = (double)direction.counters.dropped[DROP_RED].packets / 5000;
    assert_true(share > 0.05 && share < 0.15);
    assert_int_equal(direction.counters.dropped[DROP_QUEUE].packets, 0);
    assert_true(direction.red_average_packets > 5 && direction.red_average_packets < 60);
    end();
}

static void test_queue_mean_is_weighted_by_time(void **state) {
    (void)state;
    begin(link_of(8000000, 0));
    offer(0, 1000, 0); /* 1 ms each */
    offer(1, 1000, 0);
    offer(2, 1000, 0);
    run_until(10 * MS, arrive);
    /* 2000 octets for 1 ms, 1000 for 1 ms, none for 8 ms. */
    assert_true(fabs(direction_queue_mean_bytes(&direction, 10 * MS) - 300) < 1e-6);
    end();
}

static void test_what_the_device_refuses_is_counted(void **state) {
    (void)state;
    begin(link_of(0, 0));
    offer(0, 100, 0);
    run_until(S, refuse);
    assert_int_equal(direction.counters.dropped[DROP_DEVICE].packets, 1);
    assert_int_equal(direction.counters.carried.packets, 0);
    end();
}

static void test_histogram_quantiles(void **state) {
    (void)state;
    static struct histogram histogram;
    for (uint64_t value = 1; value <= 10000; value++)
        histogram_add(&histogram, value);
    assert_true(fabs((double)histogram_quantile(&histogram, 0.5) - 5000) < 5000.0 / 16);
    assert_true(fabs((double)histogram_quantile(&histogram, 0.99) - 9900) < 9900.0 / 16);
    assert_int_equal(histogram.maximum_ns, 10000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delay_counts_from_the_end_of_transmission),
        cmocka_unit_test(test_rate_is_exact_over_a_long_backlog),
        cmocka_unit_test(test_idle_link_does_not_save_up_rate),
        cmocka_unit_test(test_drop_tail_by_packets_and_by_bytes),
        cmocka_unit_test(test_default_queue_follows_rate_and_delay),
        cmocka_unit_test(test_random_loss_has_its_share_and_repeats_by_seed),
        cmocka_unit_test(test_lost_packets_use_the_rate),
        cmocka_unit_test(test_packets_with_options_are_dropped_when_told),
        cmocka_unit_test(test_burst_loss_comes_in_runs),
        cmocka_unit_test(test_schedule_names_the_lost),
        cmocka_unit_test(test_jitter_keeps_order_and_reordering_breaks_it),
        cmocka_unit_test(test_duplicates_are_counted_apart),
        cmocka_unit_test(test_outage_ends_by_itself),
        cmocka_unit_test(test_rate_change_applies_to_the_packet_being_sent),
        cmocka_unit_test(test_red_drops_early_between_its_thresholds),
        cmocka_unit_test(test_queue_mean_is_weighted_by_time),
        cmocka_unit_test(test_what_the_device_refuses_is_counted),
        cmocka_unit_test(test_histogram_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
