/* The authority's client: answers, tables, the code of a record, key and certificate files. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "authority/authority.h"
#include "authority/authority_client.h"
#include "authority/authority_identity.h"
#include "authority/authority_report.h"
#include "authority/authority_state.h"
#include "lib/authority/replicas.h"
#include "lib/htb/htb_classes.h"
#include "signal/shim_address.h"

#define HOPS                                                                                                           \
    "{\"revision\": 7, \"full\": true, \"next_hops\": [{\"prefix\": \"10.1.0.2/32\", \"next_element\": \"bravo\"},"    \
    "{\"prefix\": \"10.1.0.3/32\", \"next_element\": \"bravo\"}], \"elements\": [{\"element\": \"alpha\", \"id\": 1}," \
    "{\"element\": \"bravo\", \"id\": 2}, {\"element\": \"charlie\", \"id\": 3}], \"senders\": [\"charlie\"]}"
/* 0x00 to 0x1f. */
#define KEY "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

static struct authority_state state;
static char error[AUTHORITY_ERROR_LEN];

static int open_state(void **context) {
    (void)context;
    authority_state_init(&state, "alpha");
    return authority_take_next_hops(&state, HOPS, error) || !authority_state_pairs(&state);
}

static int close_state(void **context) {
    (void)context;
    authority_state_free(&state);
    return 0;
}

static struct authority_pair *pair_of(const char *sender) {
    for (size_t i = 0; i < state.n_pairs; i++)
        if (strcmp(state.pairs[i].sender, sender) == 0)
            return &state.pairs[i];
    fail_msg("no pair of %s", sender);
    return NULL;
}

static void take_keys(struct authority_pair *pair, int from, int to) {
    char text[600];
    snprintf(text, sizeof(text),
             "{\"sender_id\": %d, \"receiver_id\": %d, \"now_us\": 1000000, \"renew_at_us\": 3000000, \"epochs\": ["
             "{\"epoch\": 1, \"generation\": 1, \"key\": \"" KEY "\", \"sign_from_us\": 0, \"expires_at_us\": 5000000},"
             "{\"epoch\": 2, \"generation\": 2, \"key\": \"" KEY "\", \"sign_from_us\": 2000000, \"expires_at_us\": "
             "9000000}]}",
             from, to);
    assert_int_equal(authority_take_keys(pair, text, 11000000, error), 0);
}

static void next_hops_make_pairs(void **context) {
    (void)context;
    assert_int_equal(state.n_hops, 2);
    assert_int_equal(state.n_pairs, 2);
    assert_string_equal(pair_of("alpha")->receiver, "bravo");
    assert_string_equal(pair_of("charlie")->receiver, "alpha");
    /* Changes: one next hop goes, bravo is enrolled no more. */
    assert_int_equal(authority_take_next_hops(&state,
                                              "{\"revision\": 8, \"full\": false, \"next_hops\": [{\"prefix\": "
                                              "\"10.1.0.2/32\", \"next_element\": null}], \"elements\": "
                                              "[{\"element\": \"bravo\", \"id\": null}], \"senders\": []}",
                                              error),
                     0);
    assert_int_equal(state.n_hops, 1);
    take_keys(pair_of("alpha"), 1, 2);
    assert_true(authority_state_pairs(&state));
    assert_int_equal(state.n_pairs, 0);
    /* The place that the keys stood in holds none. */
    static const struct authority_epoch nothing[AUTHORITY_EPOCHS];
    assert_memory_equal(state.pairs[0].epochs, nothing, sizeof(nothing));
}

static void an_answer_with_a_fault_is_asked_for_again(void **context) {
    (void)context;
    assert_int_equal(authority_take_next_hops(&state, "{\"revision\": 9}", error), -EINVAL);
    assert_int_equal(state.hops_revision, 0);
    assert_int_equal(authority_take_next_hops(&state, "[]", error), -EINVAL);
    assert_int_equal(authority_take_next_hops(&state, "", error), -EINVAL);
    static const char *const bad[] = {"{}", "{\"revision\": 1, \"unauthorised\": {\"action\": \"free\"}}", "nul"};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(authority_take_authorisations(&state, bad[i], error), -EINVAL);
    struct authority_pair *pair = pair_of("alpha");
    take_keys(pair, 1, 2);
    assert_int_equal(authority_take_keys(pair,
                                         "{\"sender_id\": 1, \"receiver_id\": 2, \"now_us\": 1, \"renew_at_us\": 2, "
                                         "\"epochs\": [{\"epoch\": 1, \"generation\": 1, \"key\": \"AAEC\", "
                                         "\"sign_from_us\": 0, \"expires_at_us\": 5}]}",
                                         1, error),
                     -EINVAL);
    /* What was sound before stays. */
    assert_int_equal(pair->n_epochs, 2);
}

static void keys_are_moved_to_the_local_clock_and_handed_over(void **context) {
    struct signal_file tables;
    (void)context;
    struct authority_pair *sending = pair_of("alpha"), *receiving = pair_of("charlie");
    take_keys(sending, 1, 2);
    take_keys(receiving, 3, 1);
    /* The local clock is 10 s ahead. */
    assert_int_equal(sending->epochs[1].sign_from_us, 12000000);
    assert_int_equal(sending->renew_at_us, 13000000);
    assert_int_equal(authority_signing_epoch(sending, 11900000)->epoch, 1);
    assert_int_equal(authority_signing_epoch(sending, 12000000)->epoch, 2);
    assert_null(authority_signing_epoch(sending, 19000000));
    assert_int_equal(authority_state_tables(&state, &tables), 0);
    assert_int_equal(tables.policy.element, 1);
    assert_int_equal(tables.n_hops, 2);
    assert_int_equal(tables.hops[0].element, 2);
    assert_int_equal(tables.n_keys, 4);
    for (size_t i = 0; i < tables.n_keys; i++) {
        const struct signal_key *key = &tables.keys[i];
        assert_int_equal(key->key[31], 0x1f);
        /* Accepted at once, signed with from its time on. */
        assert_true(key->receiver == 1 ? key->from_us <= 2 : key->from_us >= 10000000);
    }
    signal_file_free(&tables);
}

static void authorisations_come_and_go(void **context) {
    struct signal_file tables;
    (void)context;
    assert_int_equal(
        authority_take_authorisations(
            &state,
            "{\"revision\": 3, \"full\": true, \"unauthorised\": {\"action\": \"drop\", \"available_bps\": 5},"
            "\"authorisations\": [{\"id\": \"A\", \"client_address\": \"2001:db8::1\", \"service\": \"guaranteed\","
            "\"max_guaranteed_bps\": 1000000, \"max_priority\": 7, \"delay_class\": 2, \"expires_at_us\": 77},"
            "{\"id\": \"B\", \"client_address\": \"10.0.0.1\", \"service\": \"available\", \"max_guaranteed_bps\": 0,"
            "\"max_priority\": 0, \"delay_class\": 0, \"expires_at_us\": 78}]}",
            error),
        0);
    assert_int_equal(state.n_authorisations, 2);
    assert_int_equal(authority_state_tables(&state, &tables), 0);
    assert_true(tables.policy.drop_unauthorised);
    assert_int_equal(tables.authorisations[0].services, 3);
    assert_int_equal(tables.authorisations[0].prefix.bits, 128);
    assert_int_equal(tables.authorisations[1].prefix.bits, 32);
    signal_file_free(&tables);
    assert_int_equal(authority_take_authorisations(
                         &state,
                         "{\"revision\": 4, \"full\": false, \"unauthorised\": {\"action\": \"free\", "
                         "\"available_bps\": 9}, \"authorisations\": [{\"id\": \"A\", \"removed\": true}]}",
                         error),
                     0);
    assert_int_equal(state.n_authorisations, 1);
    assert_string_equal(state.authorisations[0].id, "B");
}

/* Delay class 3 waits, class 4 may be expedited; two authorisations of one address are two in the tables. */
static void delay_classes_become_delay_priorities(void **context) {
    static const uint8_t expected[] = {0, 36, 72, 109, 145, 182, 218, 255};
    struct signal_file tables;
    char text[512];
    (void)context;
    for (int class = 0; class <= 8; class ++) {
        snprintf(text, sizeof(text),
                 "{\"revision\": 3, \"full\": %s, \"unauthorised\": {\"action\": \"drop\", \"available_bps\": 5},"
                 "\"authorisations\": [{\"id\": \"%d\", \"client_address\": \"10.0.0.1\", \"service\": \"guaranteed\","
                 "\"max_guaranteed_bps\": 1000000, \"max_priority\": 7, \"delay_class\": %d, \"expires_at_us\": 77}]}",
                 class ? "false" : "true", class, class);
        assert_int_equal(authority_take_authorisations(&state, text, error), class > 7 ? -EINVAL : 0);
    }
    assert_int_equal(authority_state_tables(&state, &tables), 0);
    assert_int_equal(tables.n_authorisations, 8);
    for (int class = 0; class <= 7; class ++) {
        assert_int_equal(tables.authorisations[class].delay_priority, expected[class]);
        assert_int_equal(expected[class] >= HTB_EXPEDITED_DELAY_PRIORITY, class >= 4);
    }
    signal_file_free(&tables);
}

static void next_hops_may_carry_shim_addresses(void **context) {
    static const char *const addresses[] = {"",
                                            ", \"shim_address\": null",
                                            ", \"shim_address\": \"10.9.9.2\"",
                                            ", \"shim_address\": \"fd00::2\"",
                                            ", \"shim_address\": \"bravo\"",
                                            ", \"shim_address\": 7"};
    static const uint8_t families[] = {0, 0, AF_INET, AF_INET6};
    struct signal_file tables;
    char text[512];
    (void)context;
    for (size_t i = 0; i < 6; i++) {
        snprintf(text, sizeof(text),
                 "{\"revision\": 9, \"full\": true, \"next_hops\": [{\"prefix\": \"10.2.0.0/16\", \"next_element\": "
                 "\"bravo\"%s}], \"elements\": [{\"element\": \"alpha\", \"id\": 1}, {\"element\": \"bravo\", \"id\": "
                 "2}], \"senders\": []}",
                 addresses[i]);
        assert_int_equal(authority_take_next_hops(&state, text, error), i < 4 ? 0 : -EINVAL);
        if (i >= 4)
            continue;
        assert_int_equal(authority_state_tables(&state, &tables), 0);
        assert_int_equal(tables.n_hops, 1);
        assert_int_equal(tables.hops[0].shim.family, families[i]);
        assert_int_equal(tables.hops[0].shim.bits, families[i] == AF_INET ? 32 : families[i] ? 128 : 0);
        signal_file_free(&tables);
    }
}

static void telephony_is_asked_for_without_a_file(void **context) {
    struct signal_file tables;
    (void)context;
    assert_int_equal(authority_state_tables(&state, &tables), 0);
    assert_int_equal(tables.n_asks, 2);
    assert_int_equal(tables.asks[0].selector.dscp_plus_one, 47);
    assert_int_equal(tables.asks[1].selector.destination_port, 5004);
    assert_true(tables.asks[1].delay_priority >= HTB_EXPEDITED_DELAY_PRIORITY);
    signal_file_free(&tables);
}

/* The shim's own address is the one that the way to a neighbour uses, unless it is stated. */
static void the_shims_own_address_is_that_of_the_way(void **context) {
    struct signal_hop hops[2] = {0};
    struct signal_policy found = {0}, stated = {0};
    const uint8_t loopback[] = {127, 0, 0, 1};
    (void)context;
    assert_int_equal(decide_parse_prefix("127.0.0.1", &hops[1].shim), 0);
    shim_address_fill(hops, 2, &found);
    assert_int_equal(found.shim4.family, AF_INET);
    assert_int_equal(found.shim4.bits, 32);
    assert_memory_equal(found.shim4.address, loopback, 4);
    assert_int_equal(found.shim6.family, 0);
    assert_int_equal(decide_parse_prefix("10.9.9.1", &stated.shim4), 0);
    shim_address_fill(hops, 2, &stated);
    assert_int_equal(stated.shim4.address[0], 10);
}

static void a_clock_that_is_off_is_said(void **context) {
    struct authority authority = {.revoked = false};
    struct authority_identity identity = {.not_before_us = 1000000, .not_after_us = 86400000000};
    char text[200];
    (void)context;
    authority_present(&authority);
    authority_note_clock(&authority, 1000000);
    assert_string_equal(authority_fault(), "");
    authority_note_clock(&authority, 3600000000);
    assert_non_null(strstr(authority_fault(), "3600 s behind the authority's"));
    authority_note_clock(&authority, -3600000000);
    assert_non_null(strstr(authority_fault(), "3600 s ahead of the authority's"));
    authority_note_clock(&authority, 0);
    assert_string_equal(authority_fault(), "");
    /* The same complaint with other times is the one that was said. */
    authority_complain(&authority, "next hops", "it is 10:00:00 here");
    authority_complain(&authority, "next hops", "it is 10:00:30 here");
    assert_string_equal(authority_fault(), "next hops: it is 10:00:00 here");
    authority_complain(&authority, "next hops", "it is not here");
    assert_string_equal(authority_fault(), "next hops: it is not here");
    authority.revoked = true;
    assert_non_null(strstr(authority_fault(), "is revoked"));
    authority_present(NULL);
    assert_string_equal(authority_fault(), "");
    authority_identity_lack(&identity, 90000000000, text, sizeof(text));
    assert_non_null(strstr(text, "expired at 1970-01-02T00:00:00Z, and it is 1970-01-02T01:00:00Z here"));
    identity.not_after_us = 0;
    authority_identity_lack(&identity, 90000000000, text, sizeof(text));
    assert_non_null(strstr(text, "not enrolled"));
}

static void the_code_of_a_record_is_that_of_the_services(void **context) {
    uint8_t key[32];
    char mac[RECORD_MAC_LEN];
    (void)context;
    for (int i = 0; i < 32; i++)
        key[i] = (uint8_t)i;
    assert_true(record_mac("alpha", 7, key, "chart.node-state.v1", "alpha", "hello", 5, mac));
    assert_string_equal(mac, "v1 alpha 7 d79fce3a480aa114216f9b9b36885d69f9c6e7b046b338f10f174383456a170d");
    /* Nothing is signed without an authority. */
    assert_false(authority_sign_record("chart.node-state.v1", "alpha", "hello", 5, mac));
}

static void a_failed_signal_is_reported_once_for_its_sender(void **context) {
    struct authority_reports reports = {.state = &state, .now_us = 1};
    struct chart_signal signal = {.qos = {.version = CHART_QOS_VERSION}, .sender = 3, .epoch = 1, .sequence = 7};
    struct chart_signal_report report = {
        .flow = {.family = 4, .protocol = 6, .source = {10, 1, 0, 3}, .destination = {10, 1, 0, 1}}};
    char body[AUTHORITY_REPORT_LEN];
    (void)context;
    chart_signal_pack(report.signal, &signal);
    assert_true(authority_report_want(&reports, &report));
    assert_false(authority_report_want(&reports, &report));
    reports.now_us += AUTHORITY_REPORT_EVERY_US;
    assert_true(authority_report_want(&reports, &report));
    assert_int_equal(reports.n_waiting, 2);
    authority_report_body(&report, body);
    /* "CH", version 1, family 4, protocol 6; then the signal. */
    assert_non_null(strstr(body, "\"packet\": \"Q0gBBAYAAAA"));
    /* Of this node itself, of nobody. */
    for (uint16_t sender = 0; sender < 10; sender += 9) {
        signal.sender = sender ? sender : 1;
        chart_signal_pack(report.signal, &signal);
        assert_false(authority_report_want(&reports, &report));
    }
}

static void keys_of_a_sender_that_started_anew_are_asked_for_at_once(void **context) {
    struct authority_pair *pair = pair_of("charlie"), *other = pair_of("alpha");
    int64_t now_us = 20000000;
    int asked = 0;
    (void)context;
    take_keys(pair, 3, 1);
    take_keys(other, 1, 2); /* with bravo */
    pair->ask_at_us = other->ask_at_us = now_us + 5000000;
    authority_state_behind(&state, 3, now_us);
    assert_int_equal(pair->ask_at_us, now_us);
    assert_int_equal(other->ask_at_us, now_us + 5000000);
    /* No newer epoch comes, as when somebody made one up: ever more seldom. */
    for (; now_us < 80000000; now_us += 10000) {
        pair->ask_at_us = now_us + 5000000;
        authority_state_behind(&state, 3, now_us);
        asked += pair->ask_at_us == now_us;
    }
    assert_in_range(asked, 10, 15);
    /* It came: the next time it is asked for at once again. */
    pair->epochs[1].generation++;
    authority_state_behind(&state, 3, now_us += 6400000);
    pair->ask_at_us = now_us + 5000000;
    authority_state_behind(&state, 3, now_us += 200000);
    assert_int_equal(pair->ask_at_us, now_us);
    /* Of nobody, of this node itself, of a stranger. */
    static const uint16_t others[] = {0, 1, 9};
    pair->ask_at_us = now_us + 5000000;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        authority_state_behind(&state, others[i], now_us + 9000000);
    assert_int_equal(pair->ask_at_us, now_us + 5000000);
}

static void both_directions_with_a_neighbour_are_asked_for(void **context) {
    struct authority_pair *sending, *receiving;
    int64_t now_us = 20000000, later_us = now_us + 5000000;
    int asked = 0;
    (void)context;
    assert_int_equal(authority_take_next_hops(&state,
                                              "{\"revision\": 8, \"full\": false, \"next_hops\": [], \"elements\": [], "
                                              "\"senders\": [\"charlie\", \"bravo\"]}",
                                              error),
                     0);
    assert_true(authority_state_pairs(&state));
    sending = pair_of("alpha");
    receiving = pair_of("bravo");
    take_keys(sending, 1, 2);
    take_keys(receiving, 2, 1);
    take_keys(pair_of("charlie"), 3, 1);
    sending->ask_at_us = receiving->ask_at_us = pair_of("charlie")->ask_at_us = later_us;
    /* Bravo ignored nothing so far; then it does, and which end is behind is not known. */
    authority_state_ignored(&state, sending, 0, false, now_us);
    assert_int_equal(sending->ask_at_us, later_us);
    authority_state_ignored(&state, sending, 1, false, now_us);
    assert_int_equal(sending->ask_at_us, now_us);
    assert_int_equal(receiving->ask_at_us, now_us);
    assert_int_equal(pair_of("charlie")->ask_at_us, later_us);
    /* Nothing more is ignored, and after there was no key the count begins at zero. */
    sending->ask_at_us = later_us;
    authority_state_ignored(&state, sending, 1, false, now_us += 200000);
    authority_state_ignored(&state, sending, 0, false, now_us);
    assert_int_equal(sending->ask_at_us, later_us);
    /* A neighbour that answers nothing for a minute costs a question every 6.4 s. */
    for (uint32_t ignored = 1; ignored < 300; ignored++) {
        now_us += 200000;
        sending->ask_at_us = now_us + 5000000;
        authority_state_ignored(&state, sending, ignored, false, now_us);
        asked += sending->ask_at_us == now_us;
    }
    assert_in_range(asked, 10, 15);
    /* A signal of an unknown epoch tells as much. */
    sending->ask_at_us = receiving->ask_at_us = now_us + 9000000;
    authority_state_behind(&state, 2, now_us += 6400000);
    assert_int_equal(sending->ask_at_us, now_us);
    assert_int_equal(receiving->ask_at_us, now_us);
}

static void a_neighbour_that_answers_nothing_is_named_until_it_answers(void **context) {
    struct authority_pair *sending;
    int64_t now_us = 900000000, since_us = 0;
    const char *first = "";
    (void)context;
    assert_int_equal(authority_take_next_hops(&state,
                                              "{\"revision\": 8, \"full\": false, \"next_hops\": [], \"elements\": [], "
                                              "\"senders\": [\"charlie\", \"bravo\"]}",
                                              error),
                     0);
    assert_true(authority_state_pairs(&state));
    sending = pair_of("alpha");
    take_keys(sending, 1, 2);
    /* One lost answer is no silence. */
    authority_state_ignored(&state, sending, 1, false, now_us);
    assert_int_equal(authority_state_silent(&state, now_us + 4900000, &first, &since_us), 0);
    authority_state_ignored(&state, sending, 1, true, now_us + 5000000);
    assert_int_equal(authority_state_silent(&state, now_us + 6000000, &first, &since_us), 0);
    /* Then it answers nothing for as long as flows ask. */
    authority_state_ignored(&state, sending, 5, false, now_us += 10000000);
    authority_state_ignored(&state, sending, 10, false, now_us + 10000000);
    assert_int_equal(authority_state_silent(&state, now_us + 10000000, &first, &since_us), 1);
    assert_string_equal(first, "bravo");
    assert_int_equal(since_us, now_us);
    assert_int_equal(authority_state_silent(&state, now_us + 69000000, &first, &since_us), 1);
    /* Nobody has asked for a minute: nothing is known. */
    assert_int_equal(authority_state_silent(&state, now_us + 71000000, &first, &since_us), 0);
    authority_state_ignored(&state, sending, 11, false, now_us + 72000000);
    assert_int_equal(authority_state_silent(&state, now_us + 72000000, &first, &since_us), 1);
    authority_state_ignored(&state, sending, 11, true, now_us + 73000000);
    assert_int_equal(authority_state_silent(&state, now_us + 73000000, &first, &since_us), 0);
}

static void a_request_is_for_a_fresh_key_that_only_the_owner_reads(void **context) {
    char directory[] = "/tmp/chart-authority-XXXXXX", *csr = NULL, name[AUTHORITY_PATH_LEN];
    struct authority_identity identity;
    struct stat info;
    (void)context;
    assert_non_null(mkdtemp(directory));
    assert_int_equal(authority_identity_open(&identity, directory), 0);
    assert_false(authority_identity_valid(&identity, 1));
    assert_true(authority_identity_due(&identity, 1));
    assert_int_equal(authority_identity_request(&identity, "alpha", &csr), 0);
    assert_non_null(strstr(csr, "BEGIN CERTIFICATE REQUEST"));
    free(csr);
    assert_int_equal(stat(identity.new_key_file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(authority_identity_keep(&identity, "junk"), -EBADMSG);
    /* A common name has room for 64 octets, a host name has 253. */
    memset(name, 'a', sizeof(name));
    name[253] = '\0';
    assert_int_equal(authority_identity_request(&identity, name, &csr), 0);
    free(csr);
    snprintf(name, sizeof(name), "%s", identity.new_key_file);
    unlink(name);
    rmdir(directory);
}

static void read_text(const char *name, char *ret, size_t size) {
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    ret[fread(ret, 1, size - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
}

/* A one-time token whose answer was lost is good for the key that it was used with, also after a restart. */
static void a_request_is_repeated_with_the_same_key(void **context) {
    char directory[] = "/tmp/chart-authority-XXXXXX", first[512], second[512], *csr = NULL;
    struct authority_identity identity;
    (void)context;
    assert_non_null(mkdtemp(directory));
    assert_int_equal(authority_identity_open(&identity, directory), 0);
    assert_int_equal(authority_identity_request(&identity, "alpha", &csr), 0);
    free(csr);
    read_text(identity.new_key_file, first, sizeof(first));
    assert_int_equal(authority_identity_open(&identity, directory), 0);
    assert_int_equal(authority_identity_request(&identity, "alpha", &csr), 0);
    free(csr);
    read_text(identity.new_key_file, second, sizeof(second));
    assert_string_equal(first, second);
    /* Cut short by a crash: a fresh one. */
    assert_int_equal(truncate(identity.new_key_file, 10), 0);
    assert_int_equal(authority_identity_request(&identity, "alpha", &csr), 0);
    free(csr);
    read_text(identity.new_key_file, second, sizeof(second));
    assert_int_equal(strlen(second), strlen(first));
    assert_string_not_equal(first, second);
    unlink(identity.new_key_file);
    rmdir(directory);
}

static void write_text(const char *name, const char *text) {
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_token_is_read_from_its_file_or_words_say_why_not(void **context) {
    char directory[] = "/tmp/chart-authority-XXXXXX", name[64], token[64], why[160], *text;
    (void)context;
    assert_non_null(mkdtemp(directory));
    snprintf(name, sizeof(name), "%s/token", directory);
    assert_int_equal(authority_identity_token(NULL, token, sizeof(token)), -ENOENT);
    assert_int_equal(authority_identity_token(name, token, sizeof(token)), -ENOENT);
    authority_identity_no_token(name, -ENOENT, why, sizeof(why));
    assert_non_null(strstr(why, "token: No such file"));
    write_text(name, "\n");
    assert_int_equal(authority_identity_token(name, token, sizeof(token)), -ENODATA);
    authority_identity_no_token(name, -ENODATA, why, sizeof(why));
    assert_non_null(strstr(why, "is empty: this node is not enrolled"));
    write_text(name, "abc.def.ghi\n");
    assert_int_equal(authority_identity_token(name, token, sizeof(token)), 0);
    assert_string_equal(token, "abc.def.ghi");
    text = calloc(1, sizeof(token) + 1);
    memset(text, 'x', sizeof(token));
    write_text(name, text);
    free(text);
    assert_int_equal(authority_identity_token(name, token, sizeof(token)), -EFBIG);
    assert_string_equal(token, "");
    unlink(name);
    rmdir(directory);
}

static EVP_PKEY *write_self_signed(const char *name) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    FILE *file = fopen(name, "w");
    assert_true(key && certificate && file);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    assert_int_equal(PEM_write_X509(file, certificate), 1);
    assert_int_equal(fclose(file), 0);
    X509_free(certificate);
    return key;
}

static void a_certificate_of_another_authority_is_used_no_more(void **context) {
    char directory[] = "/tmp/chart-authority-XXXXXX", own[64], key[64], other[64];
    struct authority_identity identity;
    (void)context;
    assert_non_null(mkdtemp(directory));
    snprintf(own, sizeof(own), "%s/node.pem", directory);
    snprintf(key, sizeof(key), "%s/node.key", directory);
    snprintf(other, sizeof(other), "%s/ca.pem", directory);
    EVP_PKEY_free(write_self_signed(own));
    write_text(key, "");
    assert_int_equal(authority_identity_open(&identity, directory), 0);
    assert_true(identity.not_after_us > 0);
    /* A file that is not there yet says nothing; one that issued it says that it is good. */
    assert_false(authority_identity_drop_foreign(&identity, other));
    assert_false(authority_identity_drop_foreign(&identity, own));
    EVP_PKEY_free(write_self_signed(other));
    assert_true(authority_identity_drop_foreign(&identity, other));
    assert_int_equal(identity.not_after_us, 0);
    unlink(own);
    unlink(key);
    unlink(other);
    rmdir(directory);
}

static void replicas_are_taken_apart(void **context) {
    static const char *const bad[] = {"",
                                      "https://",
                                      "http://a:1",
                                      "https://a:1,",
                                      "a,https:/",
                                      "https://a:1,,b",
                                      ",https://a:1",
                                      "https://a:1,http://b:2",
                                      "https://1,https://2,https://3,https://4,https://5,https://6,https://7,"
                                      "https://8,https://9"};
    char bases[AUTHORITY_REPLICAS_MAX][AUTHORITY_URL_LEN];
    (void)context;
    assert_int_equal(authority_replicas("https://a:1", bases), 1);
    assert_string_equal(bases[0], "https://a:1");
    assert_int_equal(authority_replicas("https://a:1,https://[::1]:2", bases), 2);
    assert_string_equal(bases[0], "https://a:1");
    assert_string_equal(bases[1], "https://[::1]:2");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(authority_replicas(bad[i], bases), -EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(next_hops_make_pairs, open_state, close_state),
        cmocka_unit_test_setup_teardown(an_answer_with_a_fault_is_asked_for_again, open_state, close_state),
        cmocka_unit_test_setup_teardown(keys_are_moved_to_the_local_clock_and_handed_over, open_state, close_state),
        cmocka_unit_test_setup_teardown(authorisations_come_and_go, open_state, close_state),
        cmocka_unit_test_setup_teardown(delay_classes_become_delay_priorities, open_state, close_state),
        cmocka_unit_test_setup_teardown(next_hops_may_carry_shim_addresses, open_state, close_state),
        cmocka_unit_test_setup_teardown(telephony_is_asked_for_without_a_file, open_state, close_state),
        cmocka_unit_test(the_shims_own_address_is_that_of_the_way),
        cmocka_unit_test(a_clock_that_is_off_is_said),
        cmocka_unit_test(the_code_of_a_record_is_that_of_the_services),
        cmocka_unit_test_setup_teardown(a_failed_signal_is_reported_once_for_its_sender, open_state, close_state),
        cmocka_unit_test_setup_teardown(keys_of_a_sender_that_started_anew_are_asked_for_at_once, open_state,
                                        close_state),
        cmocka_unit_test_setup_teardown(both_directions_with_a_neighbour_are_asked_for, open_state, close_state),
        cmocka_unit_test_setup_teardown(a_neighbour_that_answers_nothing_is_named_until_it_answers, open_state,
                                        close_state),
        cmocka_unit_test(a_request_is_for_a_fresh_key_that_only_the_owner_reads),
        cmocka_unit_test(a_request_is_repeated_with_the_same_key),
        cmocka_unit_test(a_token_is_read_from_its_file_or_words_say_why_not),
        cmocka_unit_test(a_certificate_of_another_authority_is_used_no_more),
        cmocka_unit_test(replicas_are_taken_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
