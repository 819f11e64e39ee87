/* Kafka by librdkafka; see streams.h. Reading uses the library's simple consumer: explicit partitions, one queue, no
 * group. */
#include "streams/streams.h"

#include "authority/authority.h"
#include "core/log.h"
#include "grants/decide.h"
#include "streams/streams_client.h"
#include "streams/streams_held.h"

#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BATCH 256
#define MAX_BATCHES_PER_POLL 16
/* A request and a node, or a link: ids of decide.h. */
#define KEY_LEN (2 * DECIDE_ID_LEN)
#define TRACEPARENT_LEN 56
#define MAX_PARTITIONS 16
#define ANSWER_TIMEOUT_MS 500

static const char *const in_names[STREAMS_IN_COUNT] = {
    [STREAMS_TOPOLOGY] = "chart.topology.v1",         [STREAMS_POLICY] = "chart.policy.v1",
    [STREAMS_LINK_RATE] = "chart.link-rate.v1",       [STREAMS_FLOW_GRANT] = "chart.flow-grant.v1",
    [STREAMS_SESSION_RULE] = "chart.session-rule.v1", [STREAMS_PATH_TABLE] = "chart.path-table.v1",
};

/* message.timeout.ms 0: keep until delivered. A link load is worth nothing once the next ones are there. */
static const struct {
    const char *name;
    const char *type;
    const char *timeout_ms;
    const char *acks;
} out_topics[STREAMS_OUT_COUNT] = {
    [STREAMS_NODE_STATE] = {"chart.node-state.v1", "chart.v1.NodeState", "0", "all"},
    [STREAMS_LINK_LOAD] = {"chart.link-load.v1", "chart.v1.LinkLoadReport", "1000", "1"},
    [STREAMS_GRANT_STATUS] = {"chart.grant-status.v1", "chart.v1.GrantStatus", "0", "all"},
    [STREAMS_FLOW_RECORD] = {"chart.flow-record.v1", "chart.v1.FlowRecord", "60000", "all"},
};

struct in_topic {
    rd_kafka_topic_t *handle;
    int n_partitions;
    /* Where each partition ended when the broker first answered; INT64_MAX until then. The library's word that a
     * partition is at its end is not enough: it never comes while others write more often than a fetch waits. */
    int64_t end_offset[MAX_PARTITIONS];
    bool reached_end[MAX_PARTITIONS];
};

struct streams {
    rd_kafka_t *consumer;
    rd_kafka_t *producer;
    rd_kafka_queue_t *records;
    rd_kafka_queue_t *consumer_events;
    rd_kafka_queue_t *producer_events;
    struct in_topic in[STREAMS_IN_COUNT];
    rd_kafka_topic_t *out[STREAMS_OUT_COUNT];
    struct streams_handler handler;
    int fd;
    bool partitions_known;
    bool synced;
    bool connected;
    struct streams_counts counts;
    struct streams_held held;
};

const char *streams_out_name(enum streams_out topic) {
    return out_topics[topic].name;
}

static void mark_connected(struct streams *streams) {
    if (streams->connected)
        return;
    streams->connected = true;
    log_info("the broker answers");
    if (streams->handler.connected)
        streams->handler.connected(streams->handler.context);
}

static void mark_disconnected(struct streams *streams, const char *why) {
    if (!streams->connected)
        return;
    streams->connected = false;
    streams->counts.disconnects++;
    log_warning("the broker is away (%s); rates live on until their leases end", why);
}

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque) {
    (void)client;
    if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        mark_disconnected(opaque, reason);
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    struct streams *streams = opaque;
    char key[KEY_LEN];

    (void)client;
    if (!message->err) {
        streams->counts.delivered_records++;
        mark_connected(streams);
        return;
    }
    streams->counts.dropped_records++;
    if (message->err == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT)
        mark_disconnected(streams, "it does not acknowledge");
    if (!streams->handler.undelivered || message->err == RD_KAFKA_RESP_ERR__PURGE_QUEUE)
        return;
    snprintf(key, sizeof(key), "%.*s", (int)message->key_len, (const char *)message->key);
    for (int i = 0; i < STREAMS_OUT_COUNT; i++)
        if (strcmp(rd_kafka_topic_name(message->rkt), out_topics[i].name) == 0)
            streams->handler.undelivered((enum streams_out)i, key, streams->handler.context);
}

static int start_partition(struct streams *streams, struct in_topic *topic, int partition) {
    if (rd_kafka_consume_start_queue(topic->handle, partition, RD_KAFKA_OFFSET_BEGINNING, streams->records) < 0)
        return -EINVAL;
    topic->end_offset[partition] = INT64_MAX;
    topic->n_partitions = partition + 1;
    return 0;
}

static int open_reading(struct streams *streams) {
    streams->records = rd_kafka_queue_new(streams->consumer);
    for (int i = 0; i < STREAMS_IN_COUNT; i++) {
        rd_kafka_topic_conf_t *conf = rd_kafka_topic_conf_new();
        char error[256];

        if (rd_kafka_topic_conf_set(conf, "auto.offset.reset", "earliest", error, sizeof(error)) != RD_KAFKA_CONF_OK) {
            rd_kafka_topic_conf_destroy(conf);
            return -EINVAL;
        }
        /* The topic takes the configuration over. */
        streams->in[i].handle = rd_kafka_topic_new(streams->consumer, in_names[i], conf);
        if (!streams->in[i].handle)
            return -ENOMEM;
        /* Partition 0 is always there; the others are added when the broker answers. */
        if (start_partition(streams, &streams->in[i], 0) < 0)
            return -EINVAL;
    }
    return 0;
}

static int open_writing(struct streams *streams) {
    for (int i = 0; i < STREAMS_OUT_COUNT; i++) {
        rd_kafka_topic_conf_t *conf = rd_kafka_topic_conf_new();
        char error[256];

        if (rd_kafka_topic_conf_set(conf, "message.timeout.ms", out_topics[i].timeout_ms, error, sizeof(error)) ||
            rd_kafka_topic_conf_set(conf, "request.required.acks", out_topics[i].acks, error, sizeof(error))) {
            log_error("streams: %s", error);
            rd_kafka_topic_conf_destroy(conf);
            return -EINVAL;
        }
        /* The topic takes the configuration over. */
        streams->out[i] = rd_kafka_topic_new(streams->producer, out_topics[i].name, conf);
        if (!streams->out[i])
            return -ENOMEM;
    }
    return 0;
}

int streams_open(const char *bootstrap, const char *node, const struct streams_handler *handler, struct streams **ret) {
    static const uint64_t one = 1;
    struct streams *streams = calloc(1, sizeof(*streams));
    const struct streams_callbacks callbacks = {.error = on_error, .delivery = on_delivery, .opaque = streams};
    int err = -EINVAL;

    if (!streams)
        return -ENOMEM;
    streams->handler = *handler;
    streams->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (streams->fd < 0) {
        err = -errno;
        goto fail;
    }
    streams->consumer = streams_make_client(RD_KAFKA_CONSUMER, bootstrap, node, &callbacks);
    streams->producer = streams_make_client(RD_KAFKA_PRODUCER, bootstrap, node, &callbacks);
    if (!streams->consumer || !streams->producer)
        goto fail;
    err = open_reading(streams);
    if (!err)
        err = open_writing(streams);
    if (err)
        goto fail;
    streams->consumer_events = rd_kafka_queue_get_main(streams->consumer);
    streams->producer_events = rd_kafka_queue_get_main(streams->producer);
    rd_kafka_queue_io_event_enable(streams->records, streams->fd, &one, sizeof(one));
    rd_kafka_queue_io_event_enable(streams->consumer_events, streams->fd, &one, sizeof(one));
    rd_kafka_queue_io_event_enable(streams->producer_events, streams->fd, &one, sizeof(one));
    *ret = streams;
    return 0;
fail:
    streams_close(streams, 0);
    return err;
}

static void close_reading(struct streams *streams) {
    for (int i = 0; i < STREAMS_IN_COUNT; i++) {
        for (int p = 0; p < streams->in[i].n_partitions; p++)
            rd_kafka_consume_stop(streams->in[i].handle, p);
        if (streams->in[i].handle)
            rd_kafka_topic_destroy(streams->in[i].handle);
    }
    if (streams->records)
        rd_kafka_queue_destroy(streams->records);
    if (streams->consumer_events)
        rd_kafka_queue_destroy(streams->consumer_events);
    if (streams->consumer)
        rd_kafka_destroy(streams->consumer);
}

void streams_close(struct streams *streams, int flush_ms) {
    if (!streams)
        return;
    streams->handler = (struct streams_handler){0};
    if (streams->consumer)
        close_reading(streams);
    if (streams->producer) {
        if (flush_ms > 0 && streams->connected)
            rd_kafka_flush(streams->producer, flush_ms);
        rd_kafka_purge(streams->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
        rd_kafka_poll(streams->producer, 0);
        for (int i = 0; i < STREAMS_OUT_COUNT; i++)
            if (streams->out[i])
                rd_kafka_topic_destroy(streams->out[i]);
        if (streams->producer_events)
            rd_kafka_queue_destroy(streams->producer_events);
        rd_kafka_destroy(streams->producer);
    }
    if (streams->fd >= 0)
        close(streams->fd);
    streams_held_clear(&streams->held);
    free(streams);
}

int streams_fd(const struct streams *streams) {
    return streams->fd;
}

/* Ask where the partitions of a topic end now. False when the broker does not say. */
static bool note_ends(struct streams *streams, struct in_topic *topic, enum streams_in which) {
    int64_t low, high;

    for (int p = 0; p < topic->n_partitions; p++) {
        if (rd_kafka_query_watermark_offsets(streams->consumer, in_names[which], p, &low, &high, ANSWER_TIMEOUT_MS))
            return false;
        topic->end_offset[p] = high;
        topic->reached_end[p] |= low >= high;
    }
    return true;
}

/* The broker answered for the first time: read the partitions beyond the first, too, and learn where all end. */
static void add_partitions(struct streams *streams) {
    streams->partitions_known = true;
    for (int i = 0; i < STREAMS_IN_COUNT; i++) {
        const struct rd_kafka_metadata *metadata;
        struct in_topic *topic = &streams->in[i];
        int n;

        if (rd_kafka_metadata(streams->consumer, 0, topic->handle, &metadata, ANSWER_TIMEOUT_MS)) {
            streams->partitions_known = false;
            continue;
        }
        n = metadata->topic_cnt == 1 ? metadata->topics[0].partition_cnt : 0;
        rd_kafka_metadata_destroy(metadata);
        /* Of a platform that does not have it nothing is waited for; what comes later is read all the same. */
        if (!n && i == STREAMS_PATH_TABLE) {
            topic->reached_end[0] = true;
            continue;
        }
        for (int p = topic->n_partitions; p < n && p < MAX_PARTITIONS; p++)
            start_partition(streams, topic, p);
        streams->partitions_known &= note_ends(streams, topic, (enum streams_in)i);
    }
}

static struct in_topic *topic_of(struct streams *streams, const rd_kafka_message_t *message, enum streams_in *ret) {
    for (int i = 0; i < STREAMS_IN_COUNT; i++) {
        if (strcmp(rd_kafka_topic_name(message->rkt), in_names[i]) == 0) {
            *ret = (enum streams_in)i;
            return &streams->in[i];
        }
    }
    return NULL;
}

static void note_end(struct streams *streams, struct in_topic *topic, int partition) {
    mark_connected(streams);
    if (partition >= 0 && partition < MAX_PARTITIONS)
        topic->reached_end[partition] = true;
    if (!streams->partitions_known)
        add_partitions(streams);
    if (streams->synced || !streams->partitions_known)
        return;
    for (int i = 0; i < STREAMS_IN_COUNT; i++)
        for (int p = 0; p < streams->in[i].n_partitions; p++)
            if (!streams->in[i].reached_end[p])
                return;
    streams->synced = true;
}

static void hand_out(struct streams *streams, const rd_kafka_message_t *message) {
    struct streams_record record = {.value = message->payload, .length = message->len};
    struct in_topic *topic = topic_of(streams, message, &record.topic);
    char key[KEY_LEN], traceparent[TRACEPARENT_LEN];

    if (!topic)
        return;
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        note_end(streams, topic, message->partition);
        return;
    }
    if (message->err)
        return;
    mark_connected(streams);
    if (message->key_len == 0 || message->key_len >= sizeof(key)) {
        streams->counts.unreadable_records++;
        return;
    }
    snprintf(key, sizeof(key), "%.*s", (int)message->key_len, (const char *)message->key);
    streams_client_traceparent(message, traceparent, sizeof(traceparent));
    record.key = key;
    record.traceparent = traceparent;
    streams->counts.read_records++;
    streams->handler.record(&record, streams->handler.context);
    if (!streams->synced && message->offset + 1 >= topic->end_offset[message->partition])
        note_end(streams, topic, message->partition);
}

int streams_poll(struct streams *streams) {
    rd_kafka_message_t *messages[BATCH];
    uint64_t count;
    ssize_t n = read(streams->fd, &count, sizeof(count));
    int taken = 0;

    rd_kafka_poll(streams->producer, 0);
    rd_kafka_poll(streams->consumer, 0);
    for (int round = 0; round < MAX_BATCHES_PER_POLL; round++) {
        n = rd_kafka_consume_batch_queue(streams->records, 0, messages, BATCH);
        for (ssize_t i = 0; i < n; i++) {
            hand_out(streams, messages[i]);
            rd_kafka_message_destroy(messages[i]);
        }
        if (n <= 0)
            return taken;
        taken += (int)n;
    }
    /* More is waiting and the library tells only of an empty queue that fills. */
    count = 1;
    n = write(streams->fd, &count, sizeof(count));
    (void)n;
    return taken;
}

bool streams_synced(const struct streams *streams) {
    return streams->synced;
}

bool streams_connected(const struct streams *streams) {
    return streams->connected;
}

/* mac: the code of the record; NULL: this node has no authority. */
static int produce(struct streams *streams, enum streams_out topic, const char *key, const void *value, size_t length,
                   const char *traceparent, const char *mac) {
    rd_kafka_headers_t *headers = rd_kafka_headers_new(3);
    rd_kafka_resp_err_t err;

    if (!headers)
        return -ENOMEM;
    rd_kafka_header_add(headers, "type", -1, out_topics[topic].type, -1);
    if (traceparent && *traceparent)
        rd_kafka_header_add(headers, "traceparent", -1, traceparent, -1);
    if (mac)
        rd_kafka_header_add(headers, RECORD_MAC_HEADER, -1, mac, -1);
    err = rd_kafka_producev(streams->producer, RD_KAFKA_V_RKT(streams->out[topic]),
                            RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, strlen(key)),
                            RD_KAFKA_V_VALUE((void *)value, length), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
    if (err) {
        rd_kafka_headers_destroy(headers);
        streams->counts.dropped_records++;
        return -ENOBUFS;
    }
    streams->counts.written_records[topic]++;
    return 0;
}

static bool produce_held(struct streams *streams, const struct streams_held_record *record) {
    char mac[RECORD_MAC_LEN];

    if (!authority_sign_record(out_topics[record->topic].name, record->key, record->value, record->length, mac))
        return false;
    (void)produce(streams, record->topic, record->key, record->value, record->length, record->traceparent, mac);
    return true;
}

/* There is a key now: what waited for it goes first. */
static void release_held(struct streams *streams) {
    size_t count = streams->held.count;

    if (count)
        log_info("%zu records that waited for the node's key are written", count);
    while (streams->held.first && produce_held(streams, streams->held.first))
        streams_held_free(streams_held_take(&streams->held));
}

int streams_send(struct streams *streams, enum streams_out topic, const char *key, const void *value, size_t length,
                 const char *traceparent) {
    char mac[RECORD_MAC_LEN];

    if (!authority_must_sign())
        return produce(streams, topic, key, value, length, traceparent, NULL);
    if (!authority_sign_record(out_topics[topic].name, key, value, length, mac))
        return streams_held_put(&streams->held, topic, key, value, length, traceparent);
    release_held(streams);
    return produce(streams, topic, key, value, length, traceparent, mac);
}

struct streams_counts streams_counts(const struct streams *streams) {
    struct streams_counts counts = streams->counts;

    counts.waiting_records = (uint64_t)rd_kafka_outq_len(streams->producer) + streams->held.count;
    counts.dropped_records += streams->held.dropped;
    return counts;
}
