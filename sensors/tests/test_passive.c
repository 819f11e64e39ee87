/* tulip's judgement of groups and segments; tcp-rtt's reading of the kernel's messages. */
#include "support.h"

#include <math.h>

#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/tcp.h>

#include "connections.h"
#include "segments.h"

#define ROUNDS 100u

/* Answers of a router: every `lost_th` large probe does not come there, every `back_th` answer to one is lost. */
static void fill(struct tulip_group *groups, bool numbered, unsigned lost_th, unsigned back_th, double rtt_us) {
    uint16_t number = 65500; /* wraps around on the way */

    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned k = 0; k < TULIP_GROUP; k++) {
            struct tulip_probe *probe = &groups[i].probes[k];
            bool lost = k == 1 && lost_th && i % lost_th == 0;
            bool back = k == 1 && back_th && i % back_th == 1;

            *probe = (struct tulip_probe){.sent = true, .sent_us = i * 1e5 + k};
            number = (uint16_t)(numbered ? number + (lost ? 0u : 1u) : number * 31421u + 6927u);
            probe->ip_id = number;
            probe->answered = !lost && !back;
            probe->answered_us = probe->sent_us + rtt_us + (i % 4) * 100;
        }
        number = (uint16_t)(number + 7);
    }
}

static void numbers_tell_the_way_there_from_the_way_back(void **state) {
    struct tulip_group groups[ROUNDS] = {0};
    struct tulip_hop hop;
    (void)state;

    fill(groups, true, 10, 5, 1000);
    tulip_judge_hop(groups, ROUNDS, &hop);
    assert_true(hop.numbered);
    assert_true(fabs(hop.loss_ratio - 0.1) < 1e-9);
    assert_true(fabs(hop.round_trip_loss_ratio - 0.1) < 1e-9); /* 10 and 20 of 300 */
    assert_true(fabs(hop.rtt_us - 1000) < 1e-6);
    assert_true(hop.queuing_us >= 100 && hop.queuing_us <= 200);
    fill(groups, false, 10, 5, 1000);
    tulip_judge_hop(groups, ROUNDS, &hop);
    assert_false(hop.numbered);
    assert_true(fabs(hop.loss_ratio - 0.1) < 1e-9);
    assert_int_equal(hop.loss_samples, 300);
}

static void order_of_numbers_is_order_of_arrival_there(void **state) {
    struct tulip_group groups[ROUNDS] = {0};
    struct tulip_hop hop;
    (void)state;

    fill(groups, true, 0, 0, 1000);
    for (unsigned i = 0; i < ROUNDS; i += 10) {
        uint16_t first = groups[i].probes[0].ip_id;

        groups[i].probes[0].ip_id = groups[i].probes[1].ip_id;
        groups[i].probes[1].ip_id = first;
        /* On the way back another pair changes places, which is not the way there. */
        groups[i + 1].probes[2].answered_us = groups[i + 1].probes[1].answered_us - 1;
    }
    tulip_judge_hop(groups, ROUNDS, &hop);
    assert_true(hop.numbered);
    assert_true(fabs(hop.reordering_ratio - 0.05) < 1e-9);
}

static struct tulip_hop lossy(double ratio) {
    return (struct tulip_hop){.numbered = true,
                              .probes = 300,
                              .answers = 200,
                              .loss_samples = 100,
                              .loss_ratio = ratio,
                              .round_trip_loss_ratio = ratio,
                              .order_samples = 200};
}

static void the_segment_that_adds_most_is_blamed(void **state) {
    /* Hop 2 answers seldom; the loss begins between 3 and 4 and goes on. */
    struct tulip_hop hops[] = {lossy(0), lossy(0.6), lossy(0.01), lossy(0.2), lossy(0.22)};
    struct tulip_hop clean[] = {lossy(0), lossy(0.4), lossy(0.0)};
    struct tulip_blame blame = tulip_judge_path(hops, 5);
    (void)state;

    assert_int_equal(blame.loss_hop, 4);
    assert_int_equal(blame.reordering_hop, 0);
    assert_int_equal(blame.queuing_hop, 0);
    assert_int_equal(tulip_judge_path(clean, 3).loss_hop, 0);
    clean[1].queuing_us = clean[2].queuing_us = 5000;
    assert_int_equal(tulip_judge_path(clean, 3).queuing_hop, 2);
}

/* A message about a connection to 10.0.0.`last`. */
static size_t put_connection(char *buffer, uint8_t last, uint32_t cookie, uint32_t rtt_us, uint32_t sent,
                             uint32_t repeated) {
    struct nlmsghdr *header = mnl_nlmsg_put_header(buffer);
    struct inet_diag_msg *diag = mnl_nlmsg_put_extra_header(header, sizeof(*diag));
    struct tcp_info info = {
        .tcpi_rtt = rtt_us, .tcpi_min_rtt = rtt_us / 2, .tcpi_data_segs_out = sent, .tcpi_total_retrans = repeated};

    memset(diag, 0, sizeof(*diag));
    diag->idiag_family = AF_INET;
    diag->idiag_state = 1;
    diag->id.idiag_dst[0] = htonl(0x0a000000u + last);
    diag->id.idiag_cookie[0] = cookie;
    mnl_attr_put(header, INET_DIAG_INFO, sizeof(info), &info);
    return header->nlmsg_len;
}

static void loss_is_told_from_two_readings(void **state) {
    _Alignas(struct nlmsghdr) char buffer[1024];
    union address remote = test_address("10.0.0.2", 0);
    struct connections before = {0}, after = {0};
    struct connections_summary summary;
    (void)state;

    assert_true(connections_add_message(&before, buffer, put_connection(buffer, 2, 5, 900, 1000, 10), &remote));
    assert_true(connections_add_message(&before, buffer, put_connection(buffer, 3, 6, 900, 1000, 10), &remote));
    assert_int_equal(before.count, 1);
    assert_true(connections_add_message(&after, buffer, put_connection(buffer, 2, 5, 1000, 1300, 25), &remote));
    assert_true(connections_add_message(&after, buffer, put_connection(buffer, 2, 9, 2000, 100, 5), &remote));
    summary = connections_summarise(&before, &after);
    assert_int_equal(summary.measured, 2);
    assert_int_equal(summary.segments, 400);
    assert_int_equal(summary.repeated, 20);
    assert_true(fabs(summary.rtt_us - 1250) < 1e-6);
    assert_true(fabs(summary.rtt_min_us - 500) < 1e-6);
    connections_free(&before);
    connections_free(&after);
}

static void cut_messages_are_refused(void **state) {
    _Alignas(struct nlmsghdr) char buffer[1024];
    struct connections connections = {0};
    size_t length = put_connection(buffer, 2, 5, 900, 1000, 10);
    (void)state;

    for (size_t cut = 0; cut < length; cut++)
        assert_false(connections_add_message(&connections, buffer, cut, NULL));
    assert_int_equal(connections.count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_tell_the_way_there_from_the_way_back),
        cmocka_unit_test(order_of_numbers_is_order_of_arrival_there),
        cmocka_unit_test(the_segment_that_adds_most_is_blamed),
        cmocka_unit_test(loss_is_told_from_two_readings),
        cmocka_unit_test(cut_messages_are_refused),
    };

    return cmocka_run_group_tests_name("passive", tests, NULL, NULL);
}
