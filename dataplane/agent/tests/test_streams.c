/* Tests of streams.h and messages.h against the client library's own mock broker (rdkafka_mock.h), and of metrics.h
 * over loopback. Polls to a bound: no sleeps but epoll waits. */
#define _GNU_SOURCE
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "authority/authority.h"
#include "chart/v1/flow_grant.pb-c.h"
#include "chart/v1/grant_status.pb-c.h"
#include "chart/v1/policy.pb-c.h"
#include "chart/v1/topology.pb-c.h"
#include "core/log.h"
#include "lib/metrics/metrics.h"
#include "streams/messages.h"
#include "streams/streams.h"
#include "streams/streams_held.h"

#define LIMIT_S 20
#define NOW 1700000000000000ll
#define TRACE "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"

void agent_log(const char *level, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "%s: ", level);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

struct seen {
    int records[STREAMS_IN_COUNT];
    int tombstones, connected, undelivered;
    char key[80], traceparent[80];
    struct decide *decide;
    struct messages_link link; /* but its texts */
    char link_interface[32], link_advice_prefix[32];
    struct messages_policy policy;
    int last_take;
};

static void on_link(const struct messages_link *link, void *context) {
    struct seen *seen = context;

    snprintf(seen->link_interface, sizeof(seen->link_interface), "%s", link->interface);
    seen->link = *link;
    snprintf(seen->link_advice_prefix, sizeof(seen->link_advice_prefix), "%s",
             link->n_advice_prefixes == 1 ? link->advice_prefixes[0] : "");
}

static void on_policy(const struct messages_policy *policy, void *context) {
    struct seen *seen = context;

    seen->policy = *policy;
}

static void on_record(const struct streams_record *record, void *context) {
    struct seen *seen = context;
    const struct messages_intake intake = {
        .decide = seen->decide, .node = "alpha", .now_us = NOW, .link = on_link, .policy = on_policy, .context = seen};

    seen->records[record->topic]++;
    seen->tombstones += record->value == NULL;
    snprintf(seen->key, sizeof(seen->key), "%s", record->key);
    snprintf(seen->traceparent, sizeof(seen->traceparent), "%s", record->traceparent);
    seen->last_take = messages_take(&intake, record);
}

static void on_connected(void *context) {
    ((struct seen *)context)->connected++;
}

static void on_undelivered(enum streams_out topic, const char *key, void *context) {
    (void)topic, (void)key;
    ((struct seen *)context)->undelivered++;
}

struct world {
    rd_kafka_t *host;
    rd_kafka_mock_cluster_t *cluster;
    struct streams *streams;
    struct seen seen;
};

static int world_setup(void **state) {
    static const char *const topics[] = {"chart.topology.v1",    "chart.policy.v1",       "chart.link-rate.v1",
                                         "chart.flow-grant.v1",  "chart.grant-status.v1", "chart.link-load.v1",
                                         "chart.session-rule.v1"};
    struct world *world = calloc(1, sizeof(*world));
    char error[256];

    world->host = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), error, sizeof(error));
    world->cluster = rd_kafka_mock_cluster_new(world->host, 1);
    for (size_t i = 0; i < sizeof(topics) / sizeof(topics[0]); i++)
        rd_kafka_mock_topic_create(world->cluster, topics[i], i == 3 ? 2 : 1, 1);
    world->seen.decide = decide_new("alpha");
    decide_set_untold_mode(world->seen.decide, DECIDE_MODE_ENFORCE);
    *state = world;
    return 0;
}

static int world_teardown(void **state) {
    struct world *world = *state;

    streams_close(world->streams, 1000);
    rd_kafka_mock_cluster_destroy(world->cluster);
    rd_kafka_destroy(world->host);
    decide_free(world->seen.decide);
    free(world);
    return 0;
}

static void open_streams(struct world *world) {
    const struct streams_handler handler = {
        .record = on_record, .undelivered = on_undelivered, .connected = on_connected, .context = &world->seen};

    assert_int_equal(streams_open(rd_kafka_mock_cluster_bootstraps(world->cluster), "alpha", &handler, &world->streams),
                     0);
}

/* Follow the streams until the condition holds. */
#define UNTIL(world, condition)                                                                                        \
    do {                                                                                                               \
        time_t end = time(NULL) + LIMIT_S;                                                                             \
        while (!(condition)) {                                                                                         \
            struct pollfd fd = {.fd = streams_fd((world)->streams), .events = POLLIN};                                 \
            poll(&fd, 1, 100);                                                                                         \
            streams_poll((world)->streams);                                                                            \
            assert_true(time(NULL) < end);                                                                             \
        }                                                                                                              \
    } while (0)

static rd_kafka_t *make_producer(struct world *world) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char error[256];

    rd_kafka_conf_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(world->cluster), error,
                      sizeof(error));
    return rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));
}

static void produce(rd_kafka_t *producer, const char *topic, int partition, const char *key,
                    const ProtobufCMessage *message) {
    size_t length = message ? protobuf_c_message_get_packed_size(message) : 0;
    uint8_t *value = malloc(length + 1);
    rd_kafka_headers_t *headers = rd_kafka_headers_new(1);

    if (message)
        protobuf_c_message_pack(message, value);
    rd_kafka_header_add(headers, "traceparent", -1, TRACE, -1);
    assert_int_equal(
        rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                          RD_KAFKA_V_KEY(key, strlen(key)), RD_KAFKA_V_VALUE(message ? value : NULL, length),
                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END),
        0);
    assert_int_equal(rd_kafka_flush(producer, 10000), 0);
    free(value);
}

static Chart__V1__FlowGrant grant_message(char **links, Chart__V1__FlowSelector *selector) {
    Chart__V1__FlowGrant grant = CHART__V1__FLOW_GRANT__INIT;

    chart__v1__flow_selector__init(selector);
    selector->destination_prefix = "10.0.0.2/32";
    selector->protocol = 6;
    grant.request_id = "r1";
    grant.generation = 3;
    grant.selector = selector;
    grant.n_link_ids = 1;
    grant.link_ids = links;
    grant.guaranteed_bps = 5000000;
    grant.valid_until_us = NOW + 60000000;
    return grant;
}

static void reads_every_partition_and_tombstones(void **state) {
    struct world *world = *state;
    char *links[] = {"alpha:to-bravo"};
    Chart__V1__FlowSelector selector;
    Chart__V1__FlowGrant grant = grant_message(links, &selector);
    rd_kafka_t *producer = make_producer(world);

    produce(producer, "chart.flow-grant.v1", 0, "r1", &grant.base);
    produce(producer, "chart.flow-grant.v1", 1, "r2", &grant.base);
    open_streams(world);
    UNTIL(world, streams_synced(world->streams));
    assert_int_equal(world->seen.records[STREAMS_FLOW_GRANT], 2);
    assert_int_equal(world->seen.connected, 1);
    assert_int_equal(world->seen.last_take, 1);
    assert_string_equal(world->seen.traceparent, TRACE);
    assert_int_equal(decide_counts(world->seen.decide).grants, 2);
    produce(producer, "chart.flow-grant.v1", 1, "r2", NULL);
    UNTIL(world, world->seen.tombstones == 1);
    assert_string_equal(world->seen.key, "r2");
    assert_int_equal(world->seen.last_take, 1);
    rd_kafka_destroy(producer);
}

static void writes_with_headers(void **state) {
    struct world *world = *state;
    const struct decide_status status = {.request_id = "r1",
                                         .generation = 3,
                                         .state = DECIDE_FAILED,
                                         .reason = "because",
                                         .link_down = true,
                                         .traceparent = TRACE};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_message_t *message = NULL;
    rd_kafka_headers_t *headers;
    Chart__V1__GrantStatus *read;
    const void *value;
    size_t length;
    char error[256];

    open_streams(world);
    assert_int_equal(messages_send_status(world->streams, "alpha", &status), 0);
    UNTIL(world, streams_counts(world->streams).delivered_records == 1);
    rd_kafka_conf_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(world->cluster), error,
                      sizeof(error));
    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof(error));
    rd_kafka_topic_t *topic = rd_kafka_topic_new(consumer, "chart.grant-status.v1", NULL);
    rd_kafka_consume_start(topic, 0, RD_KAFKA_OFFSET_BEGINNING);
    for (int i = 0; !message && i < 100; i++)
        message = rd_kafka_consume(topic, 0, 100);
    assert_non_null(message);
    assert_int_equal(message->err, 0);
    assert_memory_equal(message->key, "r1,alpha", 8);
    assert_int_equal(rd_kafka_message_headers(message, &headers), 0);
    assert_int_equal(rd_kafka_header_get_last(headers, "type", &value, &length), 0);
    assert_string_equal(value, "chart.v1.GrantStatus");
    assert_int_equal(rd_kafka_header_get_last(headers, "traceparent", &value, &length), 0);
    assert_string_equal(value, TRACE);
    read = chart__v1__grant_status__unpack(NULL, message->len, message->payload);
    assert_non_null(read);
    assert_int_equal(read->state, CHART__V1__GRANT_STATE__GRANT_STATE_FAILED);
    assert_string_equal(read->reason, "because");
    assert_true(read->link_down);
    chart__v1__grant_status__free_unpacked(read, NULL);
    rd_kafka_message_destroy(message);
    rd_kafka_consume_stop(topic, 0);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(consumer);
}

static void a_broker_away_drops_loads_and_keeps_statuses(void **state) {
    struct world *world = *state;
    const struct decide_status status = {.request_id = "r1", .state = DECIDE_APPLIED, .reason = "", .traceparent = ""};
    const struct link_load load = {.link_id = "alpha:to-bravo"};
    const struct messages_load_report report = {.node = "alpha", .loads = &load, .n_loads = 1};

    open_streams(world);
    UNTIL(world, streams_synced(world->streams));
    rd_kafka_mock_broker_set_down(world->cluster, 1);
    UNTIL(world, !streams_connected(world->streams));
    assert_int_equal(messages_send_status(world->streams, "alpha", &status), 0);
    assert_int_equal(messages_send_loads(world->streams, &report), 0);
    UNTIL(world, streams_counts(world->streams).dropped_records == 1);
    assert_int_equal(streams_counts(world->streams).waiting_records, 1);
    rd_kafka_mock_broker_set_up(world->cluster, 1);
    UNTIL(world, streams_counts(world->streams).delivered_records == 1);
    assert_true(streams_connected(world->streams));
    assert_int_equal(world->seen.connected, 2);
    assert_int_equal(streams_counts(world->streams).disconnects, 1);
}

static bool has_key;

static bool sign(const char *topic, const char *key, const void *value, size_t length, char ret[RECORD_MAC_LEN]) {
    static const uint8_t octets[32];

    return has_key && record_mac("alpha", 1, octets, topic, key, value, length, ret);
}

/* What waited for the node's key goes out with it: the newest state and statuses, flow records, no loads. */
static void records_wait_for_the_key(void **state) {
    struct world *world = *state;

    open_streams(world);
    authority_use_signer(sign);
    has_key = false;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(streams_send(world->streams, STREAMS_GRANT_STATUS, "r1,alpha", "x", 1, TRACE), 0);
        assert_int_equal(streams_send(world->streams, STREAMS_LINK_LOAD, "alpha", "x", 1, NULL), 0);
    }
    assert_int_equal(streams_send(world->streams, STREAMS_GRANT_STATUS, "r2,alpha", "x", 1, NULL), 0);
    assert_int_equal(streams_counts(world->streams).written_records[STREAMS_GRANT_STATUS], 0);
    assert_int_equal(streams_counts(world->streams).waiting_records, 2);
    has_key = true;
    assert_int_equal(streams_send(world->streams, STREAMS_LINK_LOAD, "alpha", "x", 1, NULL), 0);
    assert_int_equal(streams_counts(world->streams).written_records[STREAMS_GRANT_STATUS], 2);
    assert_int_equal(streams_counts(world->streams).written_records[STREAMS_LINK_LOAD], 1);
    UNTIL(world, streams_counts(world->streams).delivered_records == 3);
    authority_use_signer(NULL);
}

static void records_that_wait_are_bounded(void **state) {
    struct streams_held held = {0};
    struct streams_held_record *record;
    char key[32];

    (void)state;
    for (int i = 0; i < STREAMS_HELD_MAX + 2; i++) {
        snprintf(key, sizeof(key), "f%d", i);
        assert_int_equal(streams_held_put(&held, STREAMS_FLOW_RECORD, "alpha", key, strlen(key), NULL), 0);
    }
    assert_int_equal(held.count, STREAMS_HELD_MAX);
    assert_int_equal(held.dropped, 2);
    /* The oldest went; a state replaces the one before and is the last. */
    assert_int_equal(streams_held_put(&held, STREAMS_NODE_STATE, "alpha", "old", 3, NULL), 0);
    assert_int_equal(streams_held_put(&held, STREAMS_NODE_STATE, "alpha", "new", 3, TRACE), 0);
    assert_int_equal(held.count, STREAMS_HELD_MAX);
    record = streams_held_take(&held);
    assert_memory_equal(record->value, "f3", 2);
    streams_held_free(record);
    assert_memory_equal(held.last->value, "new", 3);
    assert_string_equal(held.last->traceparent, TRACE);
    streams_held_clear(&held);
    assert_null(streams_held_take(&held));
    assert_int_equal(held.count, 0);
}

static void ten_thousand_keys_within_five_seconds(void **state) {
    struct world *world = *state;
    char *links[] = {"alpha:to-bravo"};
    Chart__V1__FlowSelector selector;
    Chart__V1__FlowGrant grant = grant_message(links, &selector);
    size_t length = chart__v1__flow_grant__get_packed_size(&grant);
    uint8_t *value = malloc(length);
    rd_kafka_t *producer = make_producer(world);
    struct timespec start, end;

    chart__v1__flow_grant__pack(&grant, value);
    for (int i = 0; i < 10000; i++) {
        char key[32];

        snprintf(key, sizeof(key), "request-%d", i);
        assert_int_equal(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC("chart.flow-grant.v1"), RD_KAFKA_V_PARTITION(0),
                                           RD_KAFKA_V_KEY(key, strlen(key)), RD_KAFKA_V_VALUE(value, length),
                                           RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END),
                         0);
    }
    assert_int_equal(rd_kafka_flush(producer, 20000), 0);
    rd_kafka_destroy(producer);
    free(value);
    clock_gettime(CLOCK_MONOTONIC, &start);
    open_streams(world);
    UNTIL(world, streams_synced(world->streams));
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(decide_counts(world->seen.decide).grants > 9000);
    print_message("whole state of %zu grants after %.2f s\n", decide_counts(world->seen.decide).grants,
                  (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
    assert_true(end.tv_sec - start.tv_sec < 5);
}

static int take(struct seen *seen, enum streams_in topic, const char *key, const ProtobufCMessage *message) {
    uint8_t value[1024];
    struct streams_record record = {.topic = topic, .key = key, .traceparent = ""};

    if (message) {
        record.length = protobuf_c_message_pack(message, value);
        record.value = value;
    }
    on_record(&record, seen);
    return seen->last_take;
}

static void topology_of_this_node_only(void **state) {
    struct seen *seen = &((struct world *)*state)->seen;
    Chart__V1__TopologyEntity entity = CHART__V1__TOPOLOGY_ENTITY__INIT;
    Chart__V1__Link link = CHART__V1__LINK__INIT;
    char prefix[] = "10.4.0.0/16", *prefixes[] = {prefix};

    link.interface = "to-bravo";
    link.capacity_bps = 7;
    link.scone = true;
    link.quick_start = true;
    link.quick_start_threshold = 0.75;
    link.quick_start_share = 0.5;
    link.scone_police = true;
    link.advice_prefixes = prefixes;
    link.n_advice_prefixes = 1;
    entity.entity_case = CHART__V1__TOPOLOGY_ENTITY__ENTITY_LINK;
    entity.link = &link;
    assert_int_equal(take(seen, STREAMS_TOPOLOGY, "bravo:to-bravo", &entity.base), 0);
    assert_int_equal(take(seen, STREAMS_TOPOLOGY, "alph:to-bravo", &entity.base), 0);
    assert_int_equal(take(seen, STREAMS_TOPOLOGY, "alpha", &entity.base), 0);
    assert_string_equal(seen->link_interface, "");
    assert_int_equal(take(seen, STREAMS_TOPOLOGY, "alpha:to-bravo", &entity.base), 1);
    assert_string_equal(seen->link_interface, "to-bravo");
    assert_int_equal(seen->link.capacity_bps, 7);
    assert_true(seen->link.scone);
    assert_true(seen->link.scone_police);
    assert_true(seen->link.quick_start_threshold == 0.75);
    assert_true(seen->link.quick_start_share == 0.5);
    assert_string_equal(seen->link_advice_prefix, "10.4.0.0/16");
    assert_true(seen->link.quick_start);
    assert_int_equal(take(seen, STREAMS_TOPOLOGY, "alpha:to-bravo", NULL), 1);
    assert_string_equal(seen->link_interface, "");
    assert_false(seen->link.scone);
    assert_false(seen->link.quick_start);
}

static void policies_and_garbage(void **state) {
    struct seen *seen = &((struct world *)*state)->seen;
    static const uint8_t garbage[] = {0xff, 0xff, 0xff};
    struct streams_record record = {.key = "default", .value = garbage, .length = 3, .traceparent = ""};
    Chart__V1__Policy policy = CHART__V1__POLICY__INIT;

    policy.enforcement = CHART__V1__ENFORCEMENT_MODE__ENFORCEMENT_MODE_OFF;
    assert_int_equal(take(seen, STREAMS_POLICY, "default", &policy.base), 1);
    assert_int_equal(decide_mode(seen->decide), DECIDE_MODE_OFF);
    policy.enforcement = CHART__V1__ENFORCEMENT_MODE__ENFORCEMENT_MODE_UNSPECIFIED;
    assert_int_equal(take(seen, STREAMS_POLICY, "default", &policy.base), 1);
    assert_int_equal(decide_mode(seen->decide), DECIDE_MODE_OBSERVE);
    assert_int_equal(take(seen, STREAMS_POLICY, "default", NULL), 0);
    /* Path tables of other nodes are not read; what is garbage under the own key: test_messages_paths. */
    for (int topic = STREAMS_POLICY; topic < STREAMS_IN_COUNT; topic++) {
        record.topic = (enum streams_in)topic;
        on_record(&record, seen);
        assert_int_equal(seen->last_take, topic == STREAMS_PATH_TABLE ? 0 : -EBADMSG);
    }
}

static void what_new_connections_ask_for(void **state) {
    struct seen *seen = &((struct world *)*state)->seen;
    Chart__V1__Policy policy = CHART__V1__POLICY__INIT;

    take(seen, STREAMS_POLICY, "alpha", &policy.base);
    assert_false(seen->policy.says_quick_start);
    policy.quick_start_case = CHART__V1__POLICY__QUICK_START_QUICK_START_REQUEST_BPS;
    take(seen, STREAMS_POLICY, "alpha", &policy.base);
    assert_true(seen->policy.says_quick_start);
    assert_int_equal(seen->policy.quick_start_bps, 0);
    policy.quick_start_request_bps = 80000000;
    take(seen, STREAMS_POLICY, "alpha", &policy.base);
    assert_int_equal(seen->policy.quick_start_bps, 80000000);
    take(seen, STREAMS_POLICY, "alpha", NULL);
    assert_false(seen->policy.says_quick_start);
}

static int keep_reason(const struct decide_status *status, void *context) {
    snprintf(context, DECIDE_REASON_LEN, "%s", status->reason);
    return 0;
}

static void selectors_that_make_no_sense_fail_with_a_reason(void **state) {
    struct seen *seen = &((struct world *)*state)->seen;
    char *links[] = {"alpha:to-bravo"}, reason[DECIDE_REASON_LEN] = "";
    Chart__V1__FlowSelector selector;
    Chart__V1__FlowGrant grant = grant_message(links, &selector);

    grant.valid_until_us = NOW + 60000000;
    selector.source_prefix = "fe80::/10";
    assert_int_equal(take(seen, STREAMS_FLOW_GRANT, "r1", &grant.base), 1);
    decide_statuses(seen->decide, NOW, keep_reason, reason);
    assert_string_equal(reason, "source_prefix and destination_prefix are of two address families");
    selector.source_prefix = "nonsense";
    take(seen, STREAMS_FLOW_GRANT, "r1", &grant.base);
    decide_statuses(seen->decide, NOW, keep_reason, reason);
    assert_string_equal(reason, "source_prefix \"nonsense\" is no address or prefix");
    selector.source_prefix = "";
    selector.destination_port = 70000;
    take(seen, STREAMS_FLOW_GRANT, "r1", &grant.base);
    decide_statuses(seen->decide, NOW, keep_reason, reason);
    assert_string_equal(reason, "protocol, port or DSCP of the selector is out of range");
}

static int keep_destinations(const struct decide_applied *grants, int n, char *ret, size_t size) {
    char text[INET6_ADDRSTRLEN];
    ret[0] = '\0';
    for (int i = 0; n == 1 && i <= grants->selector.n_more_destinations; i++) {
        const struct decide_prefix *one =
            i ? &grants->selector.more_destinations[i - 1] : &grants->selector.destination;
        size_t used = strlen(ret);
        inet_ntop(one->family, one->address, text, sizeof(text));
        snprintf(ret + used, size - used, "%s/%d ", text, one->bits);
    }
    return n;
}

static void every_prefix_of_an_end_counts(void **state) {
    struct seen *seen = &((struct world *)*state)->seen;
    char *links[] = {"alpha:to-bravo"}, reason[DECIDE_REASON_LEN] = "", found[200];
    char *several[] = {"10.0.0.2/32", "10.9.0.0/16", "fd00::2/128"}, *many[DECIDE_PREFIXES_MAX + 1];
    const struct decide_link link = {.id = "alpha:to-bravo", .ifindex = 3, .up = true, .capacity_bps = 100000000};
    const struct decide_applied *table;
    int64_t next_us;
    Chart__V1__FlowSelector selector;
    Chart__V1__FlowGrant grant = grant_message(links, &selector);

    grant.valid_until_us = NOW + 60000000;
    selector.n_destination_prefixes = 3;
    selector.destination_prefixes = several;
    decide_set_links(seen->decide, &link, 1);
    assert_int_equal(take(seen, STREAMS_FLOW_GRANT, "r1", &grant.base), 1);
    int n = decide_desired(seen->decide, NOW, &table, &next_us);
    assert_int_equal(keep_destinations(table, n, found, sizeof(found)), 1);
    assert_string_equal(found, "10.0.0.2/32 10.9.0.0/16 fd00::2/128 ");
    selector.n_source_prefixes = DECIDE_PREFIXES_MAX + 1;
    selector.source_prefixes = many;
    for (int i = 0; i <= DECIDE_PREFIXES_MAX; i++)
        many[i] = "10.0.0.1";
    grant.generation++;
    take(seen, STREAMS_FLOW_GRANT, "r1", &grant.base);
    decide_statuses(seen->decide, NOW, keep_reason, reason);
    assert_string_equal(reason, "source_prefixes are 17, at most 16 match");
}

static void render(FILE *out, void *context) {
    fprintf(out, "chart_agent_test_total %d\n", *(int *)context);
}

static const char *not_ready(void *context) {
    return *(int *)context ? NULL : "not \"yet\"";
}

static void get(struct metrics *metrics, const char *request, char *answer, size_t size) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)metrics_port(metrics))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t have = 0;
    ssize_t n = 1;

    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    for (int i = 0; n != 0 && i < 100; i++) {
        struct pollfd fds[] = {{.fd = metrics_fd(metrics), .events = POLLIN}, {.fd = fd, .events = POLLIN}};

        poll(fds, 2, 100);
        metrics_run(metrics);
        n = recv(fd, answer + have, size - have - 1, MSG_DONTWAIT);
        have += n > 0 ? (size_t)n : 0;
    }
    answer[have] = '\0';
    close(fd);
}

static void metrics_answers(void **state) {
    (void)state;
    int value = 0;
    const struct metrics_source source = {.render = render, .not_ready = not_ready, .context = &value};
    struct metrics *metrics = NULL;
    char answer[2048];

    assert_int_equal(metrics_open("nowhere", &source, &metrics), -EINVAL);
    assert_int_equal(metrics_open("127.0.0.1:99999", &source, &metrics), -EINVAL);
    assert_int_equal(metrics_open("127.0.0.1:0", &source, &metrics), 0);
    get(metrics, "GET /readyz HTTP/1.0\r\n\r\n", answer, sizeof(answer));
    assert_non_null(strstr(answer, " 503 "));
    assert_non_null(strstr(answer, "\"reason\":\"not \\\"yet\\\"\""));
    value = 42;
    get(metrics, "GET /readyz HTTP/1.0\r\n\r\n", answer, sizeof(answer));
    assert_non_null(strstr(answer, " 200 "));
    get(metrics, "GET /metrics HTTP/1.0\r\n\r\n", answer, sizeof(answer));
    assert_non_null(strstr(answer, "chart_agent_test_total 42\n"));
    get(metrics, "GET /healthz HTTP/1.0\r\n\r\n", answer, sizeof(answer));
    assert_non_null(strstr(answer, " 200 "));
    get(metrics, "GET /other HTTP/1.0\r\n\r\n", answer, sizeof(answer));
    assert_non_null(strstr(answer, " 404 "));
    get(metrics, "POST /metrics HTTP/1.0\r\nContent-Length: 0\r\n\r\n", answer, sizeof(answer));
    assert_non_null(strstr(answer, " 405 "));
    metrics_close(metrics);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_every_partition_and_tombstones, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(writes_with_headers, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_broker_away_drops_loads_and_keeps_statuses, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(records_wait_for_the_key, world_setup, world_teardown),
        cmocka_unit_test(records_that_wait_are_bounded),
        cmocka_unit_test_setup_teardown(ten_thousand_keys_within_five_seconds, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(topology_of_this_node_only, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(policies_and_garbage, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_new_connections_ask_for, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(selectors_that_make_no_sense_fail_with_a_reason, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(every_prefix_of_an_end_counts, world_setup, world_teardown),
        cmocka_unit_test(metrics_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
