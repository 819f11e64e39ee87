/* Tests of load.h (counters to link loads) and records.h (flows to flow records): pure, no kernel. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "export/records.h"
#include "links/load.h"

#define T0 1700000000000000ll
#define SECOND 1000000ll

static struct load_sample shaped(uint64_t expedited, uint64_t explicit_rate, uint64_t legacy, uint64_t background) {
    const uint64_t packets[] = {expedited, explicit_rate, legacy, background};
    struct load_sample sample = {.have_htb = true, .link_header_bytes = 14};

    for (int i = 0; i < HTB_CLASSES; i++)
        sample.htb.classes[i] = (struct htb_class_stats){.packets = packets[i], .bytes = packets[i] * 1514};
    return sample;
}

static void octets_are_ip_octets_per_class(void **state) {
    (void)state;
    struct load_sample before = shaped(1, 2, 3, 4), now = shaped(2, 12, 103, 5);
    struct link_load load = {.link_id = "l", .active_flows = 9};

    now.htb.classes[HTB_LEGACY].queue_bytes = 3000;
    now.htb.classes[HTB_EXPLICIT_RATE].queue_bytes = 500;
    now.htb.classes[HTB_EXPEDITED].queue_bytes = 50;
    before.htb.classes[HTB_LEGACY].dropped_packets = 7;
    now.htb.classes[HTB_LEGACY].dropped_packets = 10;
    load_difference(&before, &now, &load);
    assert_int_equal(load.explicit_rate_bytes, 11 * 1500);
    assert_int_equal(load.legacy_bytes, 101 * 1500);
    assert_int_equal(load.sent_bytes, 112 * 1500);
    assert_int_equal(load.queue_bytes, 3550);
    assert_int_equal(load.explicit_rate_queue_bytes, 550);
    assert_int_equal(load.dropped_packets, 3);
    assert_int_equal(load.active_flows, 9);
}

static void a_queue_made_anew_counts_from_zero(void **state) {
    (void)state;
    struct load_sample before = shaped(0, 1000, 1000, 0), now = shaped(0, 3, 2, 0);
    struct link_load load;

    load_difference(&before, &now, &load);
    assert_int_equal(load.explicit_rate_bytes, 3 * 1500);
    assert_int_equal(load.legacy_bytes, 2 * 1500);
}

static void the_peak_of_late(void **state) {
    (void)state;
    struct load_peaks peaks = {};
    uint64_t bps = 7;

    load_peak_note(&peaks, 125000, 100000);
    load_peak_note(&peaks, 1000, 0);
    load_peak_note(&peaks, 12500, 100000);
    assert_int_equal(load_peak(&peaks, &bps), -EAGAIN);
    assert_int_equal(bps, 7);
    load_peak_note(&peaks, 0, 100000);
    assert_int_equal(load_peak(&peaks, &bps), 0);
    assert_int_equal(bps, 10000000);
    /* The busiest one is forgotten with the twentieth after it. */
    for (int i = 0; i < LOAD_PEAKS - 3; i++)
        load_peak_note(&peaks, 12500, 200000);
    assert_int_equal(load_peak(&peaks, &bps), 0);
    assert_int_equal(bps, 10000000);
    load_peak_note(&peaks, 12500, 200000);
    assert_int_equal(load_peak(&peaks, &bps), 0);
    assert_int_equal(bps, 1000000);
}

static void without_htb_the_interface_counts(void **state) {
    (void)state;
    struct load_sample before = {.interface_bytes = 1000, .interface_packets = 10, .link_header_bytes = 14};
    struct load_sample now = before;
    struct link_load load;

    now.interface_bytes += 10 * 1514;
    now.interface_packets += 10;
    now.interface_dropped = 2;
    load_difference(&before, &now, &load);
    assert_int_equal(load.sent_bytes, 15000);
    assert_int_equal(load.legacy_bytes, 15000);
    assert_int_equal(load.explicit_rate_bytes, 0);
    assert_int_equal(load.dropped_packets, 2);

    now.have_classifier = true;
    now.classifier.explicit_rate_bytes = 3000;
    now.classifier.expedited_bytes = 1500;
    load_difference(&before, &now, &load);
    assert_int_equal(load.explicit_rate_bytes, 4500);
    assert_int_equal(load.legacy_bytes, 10500);

    now.classifier.explicit_rate_bytes = 90000;
    load_difference(&before, &now, &load);
    assert_int_equal(load.explicit_rate_bytes, 15000);
    assert_int_equal(load.legacy_bytes, 0);
}

static int note(struct load_activity *activity, const char *id, uint64_t sent_bytes, int64_t now_us) {
    int use;

    load_begin(activity);
    use = load_note(activity, id, sent_bytes, now_us);
    load_end(activity);
    return use;
}

static void a_grant_is_in_use_for_a_while_after_its_last_packet(void **state) {
    (void)state;
    struct load_activity activity = {0};

    assert_int_equal(note(&activity, "r1", 100, T0), LOAD_IDLE);
    assert_int_equal(note(&activity, "r1", 100, T0 + 1), LOAD_IDLE);
    assert_int_equal(note(&activity, "r1", 200, T0 + SECOND), LOAD_ACTIVE);
    assert_int_equal(note(&activity, "r1", 200, T0 + SECOND + LOAD_IN_USE_US - 1), LOAD_IN_USE);
    assert_int_equal(note(&activity, "r1", 200, T0 + SECOND + LOAD_IN_USE_US), LOAD_IDLE);
    assert_int_equal(note(&activity, "r2", 0, T0), LOAD_IDLE);
    assert_int_equal(activity.grants.n_entries, 1);
    assert_null(strmap_get(&activity.grants, "r1"));
    load_free(&activity);
}

static void users_are_counted_by_link_and_who_has_several_flows_is_listed(void **state) {
    (void)state;
    struct load_sender senders[] = {{"tom", 1, true},  {"", 0, true},     {"ann", 0, true}, {"tom", 0, false},
                                    {"tom", 0, true},  {"ann", 1, false}, {"", 0, true},    {"tom", 0, false},
                                    {"ann", 1, false}, {"", 0, false}};
    struct load_user_flows listed[2] = {0};
    uint32_t users[3] = {0};

    assert_int_equal(load_count_users(senders, 10, users, listed, 2), 2);
    assert_int_equal(users[0], 4); /* two of nobody, ann, tom */
    assert_int_equal(users[1], 1); /* tom; ann only was there lately */
    assert_int_equal(users[2], 0);
    assert_string_equal(listed[0].user, "tom");
    assert_int_equal(listed[0].link, 0);
    assert_int_equal(listed[0].flows, 3);
    assert_string_equal(listed[1].user, "ann");
    assert_int_equal(listed[1].link, 1);
    assert_int_equal(listed[1].flows, 2);
    assert_int_equal(load_count_users(senders, 10, users, listed, 1), 1);
    assert_int_equal(load_count_users(senders, 0, users, listed, 2), 0);
}

static void flows_in_band_count_as_their_users(void **state) {
    (void)state;
    assert_int_equal(load_unnamed_users(0, 0, 0), 0);
    assert_int_equal(load_unnamed_users(3, 0, 0), 3); /* grants that are not known yet */
    assert_int_equal(load_unnamed_users(5, 5, 2), 2);
    assert_int_equal(load_unnamed_users(7, 5, 2), 4); /* and two whose grant is not known yet */
    assert_int_equal(load_unnamed_users(3, 5, 2), 2); /* two of five pause */
    assert_int_equal(load_unnamed_users(1, 5, 2), 1);
    assert_int_equal(load_unnamed_users(0, 5, 2), 0);
}

struct told {
    int n;
    struct flow_record last;
    char source[64], destination[64], request[80];
};

static int take(const struct flow_record *record, void *context) {
    struct told *told = context;

    told->n++;
    told->last = *record;
    snprintf(told->source, sizeof(told->source), "%s", record->source_address);
    snprintf(told->destination, sizeof(told->destination), "%s", record->destination_address);
    snprintf(told->request, sizeof(told->request), "%s", record->request_id);
    return 0;
}

static struct datapath_flow flow(uint64_t cookie, uint64_t sent_bytes) {
    return (struct datapath_flow){.request_id = "r1",
                                  .local = "10.0.0.1:5001",
                                  .remote = "[fe80::1]:80",
                                  .sending = true,
                                  .cookie = cookie,
                                  .sent_bytes = sent_bytes,
                                  .delivered_bytes = sent_bytes - 10,
                                  .retransmitted_packets = 2,
                                  .dscp = 46,
                                  .min_rtt_us = 1234};
}

static void a_flow_that_ends_is_recorded_once(void **state) {
    (void)state;
    struct told told = {0};
    struct records records = {.node = "alpha", .sink = take, .context = &told};
    struct datapath_flow flows[] = {flow(1, 1000), flow(2, 500)};

    assert_int_equal(records_walk(&records, flows, 2, T0), 0);
    flows[0].sent_bytes = 9000;
    assert_int_equal(records_walk(&records, flows, 2, T0 + SECOND), 0);
    assert_int_equal(told.n, 0);
    assert_int_equal(records_walk(&records, &flows[1], 1, T0 + 2 * SECOND), 0);
    assert_int_equal(told.n, 1);
    assert_true(told.last.final);
    assert_int_equal(told.last.sent_bytes, 9000);
    assert_int_equal(told.last.started_at_us, T0);
    assert_int_equal(told.last.ended_at_us, T0 + SECOND);
    assert_int_equal(told.last.retransmitted_bytes, 2 * 1448);
    assert_string_equal(told.source, "10.0.0.1");
    assert_string_equal(told.destination, "fe80::1");
    assert_int_equal(told.last.source_port, 5001);
    assert_int_equal(told.last.destination_port, 80);
    assert_string_equal(told.request, "r1");
    assert_int_equal(told.last.dscp, 46);
    records_walk(&records, &flows[1], 1, T0 + 3 * SECOND);
    assert_int_equal(told.n, 1);
    records_close(&records, T0 + 4 * SECOND);
    assert_int_equal(told.n, 2);
    assert_false(told.last.final);
}

static void a_long_flow_is_recorded_every_minute_and_receivers_are_not(void **state) {
    (void)state;
    struct told told = {0};
    struct records records = {.node = "alpha", .sink = take, .context = &told};
    struct datapath_flow flows[] = {flow(1, 1000), flow(2, 500)};

    flows[1].sending = false;
    for (int i = 0; i <= 121; i++)
        records_walk(&records, flows, 2, T0 + i * SECOND);
    assert_int_equal(told.n, 2);
    assert_false(told.last.final);
    assert_int_equal(told.last.ended_at_us, T0 + 120 * SECOND);
    records_walk(&records, NULL, 0, T0 + 122 * SECOND);
    assert_int_equal(told.n, 3);
    records_close(&records, T0 + 123 * SECOND);
}

static void so_many_flows_without_a_grant_are_recorded(void **state) {
    (void)state;
    struct told told = {0};
    struct records records = {.node = "alpha", .sink = take, .context = &told};
    struct datapath_flow flows[RECORDS_PLAIN_MAX + 2];

    for (size_t i = 0; i < RECORDS_PLAIN_MAX + 2; i++) {
        flows[i] = flow(i, 1000);
        flows[i].request_id[0] = '\0';
    }
    records_walk(&records, flows, RECORDS_PLAIN_MAX, T0);
    assert_int_equal(records.n_plain, RECORDS_PLAIN_MAX);
    /* Whichever way round they come: those that are known stay. */
    records_walk(&records, flows + 1, RECORDS_PLAIN_MAX + 1, T0 + SECOND);
    assert_int_equal(told.n, 1);
    assert_true(told.last.final);
    assert_string_equal(told.request, "");
    assert_int_equal(records.n_plain, RECORDS_PLAIN_MAX - 1);
    /* One that gets a grant makes room. */
    snprintf(flows[1].request_id, sizeof(flows[1].request_id), "r1");
    records_walk(&records, flows + 1, RECORDS_PLAIN_MAX + 1, T0 + 2 * SECOND);
    assert_int_equal(told.n, 1);
    assert_int_equal(records.n_plain, RECORDS_PLAIN_MAX);
    records_close(&records, T0 + 3 * SECOND);
    assert_int_equal(told.n, 1 + RECORDS_PLAIN_MAX + 1);
}

static void endpoints(void **state) {
    (void)state;
    static const char *const wrong[] = {"", ":80", "10.0.0.1", "10.0.0.1:", "10.0.0.1:x", "10.0.0.1:70000", "[]:1"};
    char address[16];
    uint32_t port = 0;

    assert_int_equal(records_split("10.0.0.1:0", address, sizeof(address), &port), 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(records_split(wrong[i], address, sizeof(address), &port), -EINVAL);
    assert_int_equal(records_split("[1111:2222:3333::]:5", address, sizeof(address), &port), -EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(octets_are_ip_octets_per_class),
        cmocka_unit_test(a_queue_made_anew_counts_from_zero),
        cmocka_unit_test(the_peak_of_late),
        cmocka_unit_test(without_htb_the_interface_counts),
        cmocka_unit_test(a_grant_is_in_use_for_a_while_after_its_last_packet),
        cmocka_unit_test(users_are_counted_by_link_and_who_has_several_flows_is_listed),
        cmocka_unit_test(flows_in_band_count_as_their_users),
        cmocka_unit_test(a_flow_that_ends_is_recorded_once),
        cmocka_unit_test(a_long_flow_is_recorded_every_minute_and_receivers_are_not),
        cmocka_unit_test(so_many_flows_without_a_grant_are_recorded),
        cmocka_unit_test(endpoints),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
