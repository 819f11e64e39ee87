/* Kafka by librdkafka, see streams.h; its CONFIGURATION.md names the settings. Reading uses the simple consumer:
 * explicit partitions, one queue, no group. */
#include "streams.h"

#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "event.h"
#include "lib/kafka/broker_identity.h"
#include "lib/kafka/kafka_properties.h"
#include "signing.h"

#define BATCH 64
#define KEY_BYTES 256
#define REPORT_TOPIC "chart.tunnel-report.v1"
#define REPORT_TYPE "chart.v1.TunnelReport"
#define CERTIFICATE "ssl.certificate.location"
#define LOOK_EVERY_US 1000000u
/* After the clients could not be made, as when the files are replaced at this moment. */
#define RETRY_US 5000000u

static const char *const IN_NAMES[STREAMS_TOPICS] = {
    [STREAMS_COMMAND] = "chart.tunnel-command.v1",
    [STREAMS_POLICY] = "chart.policy.v1",
};

/* What was made with one certificate. */
struct clients {
    rd_kafka_t *consumer, *producer;
    rd_kafka_queue_t *records, *consumer_events, *producer_events;
    rd_kafka_topic_t *in[STREAMS_TOPICS], *out;
    bool reading[STREAMS_TOPICS];
};

struct streams {
    const struct options *options;
    struct clients clients;
    struct broker_identity identity;
    uint64_t look_at_us;
    int64_t next_offset[STREAMS_TOPICS];
    bool connected;
    int descriptor;
    struct streams_handler handler;
    struct streams_counters counters;
    struct signing *signing; /* NULL: without an authority */
};

struct setting {
    const char *name, *value;
};

static const struct setting COMMON[] = {
    {"reconnect.backoff.ms", "100"},
    {"reconnect.backoff.max.ms", "1000"},
    {"socket.timeout.ms", "6000"},
    {"socket.keepalive.enable", "true"},
    {"socket.nagle.disable", "true"},
    {"log_level", "2"},
    {"topic.metadata.refresh.interval.ms", "10000"},
    {NULL, NULL},
};
static const struct setting CONSUMER[] = {
    {"fetch.wait.max.ms", "100"},     {"fetch.min.bytes", "1"},        {"fetch.error.backoff.ms", "100"},
    {"enable.partition.eof", "true"}, {"queued.min.messages", "1000"}, {NULL, NULL},
};
/* One request in flight keeps the order of the tunnel's reports over retries. */
static const struct setting PRODUCER[] = {
    {"linger.ms", "1"},
    {"max.in.flight.requests.per.connection", "1"},
    {"queue.buffering.max.messages", "1000"},
    {"retry.backoff.ms", "100"},
    {NULL, NULL},
};

static void connected(struct streams *streams) {
    if (!streams->connected)
        fprintf(stderr, "chart-tunnel: the broker answers\n");
    streams->connected = true;
}

static void disconnected(struct streams *streams, const char *why) {
    if (!streams->connected)
        return;
    streams->connected = false;
    streams->counters.disconnects++;
    fprintf(stderr, "chart-tunnel: the broker is away (%s); the tunnel keeps m until its lease ends\n", why);
}

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque) {
    (void)client;
    if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        disconnected(opaque, reason);
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    struct streams *streams = opaque;
    (void)client;
    if (!message->err) {
        streams->counters.delivered++;
        connected(streams);
        return;
    }
    streams->counters.dropped++;
    if (message->err == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT)
        disconnected(streams, "it does not acknowledge");
}

static bool set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[256];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof(error)) == RD_KAFKA_CONF_OK)
        return true;
    fprintf(stderr, "chart-tunnel: broker setting %s=%s: %s\n", name, value, error);
    return false;
}

/* Settings of security from the file that agents and services share; what the operator set by hand comes last. */
static bool set_all(rd_kafka_conf_t *conf, const struct options *options, const struct setting *own) {
    char client[128], name[128];
    snprintf(client, sizeof(client), "chart-tunnel-%s", options->tunnel);
    bool good = kafka_properties_apply(conf, stderr) == 0 && set(conf, "bootstrap.servers", options->broker) &&
                set(conf, "client.id", client);
    for (const struct setting *setting = COMMON; good && setting->name; setting++)
        good = set(conf, setting->name, setting->value);
    for (const struct setting *setting = own; good && setting->name; setting++)
        good = set(conf, setting->name, setting->value);
    for (size_t i = 0; good && i < options->broker_setting_count; i++) {
        const char *equals = strchr(options->broker_settings[i], '=');
        snprintf(name, sizeof(name), "%.*s", (int)(equals - options->broker_settings[i]), options->broker_settings[i]);
        good = set(conf, name, equals + 1);
    }
    return good;
}

static rd_kafka_t *make_client(struct streams *streams, rd_kafka_type_t type, const struct options *options) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char error[256] = "";
    rd_kafka_t *client = NULL;
    rd_kafka_conf_set_opaque(conf, streams);
    rd_kafka_conf_set_error_cb(conf, on_error);
    if (type == RD_KAFKA_PRODUCER)
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    if (set_all(conf, options, type == RD_KAFKA_PRODUCER ? PRODUCER : CONSUMER)) {
        client = rd_kafka_new(type, conf, error, sizeof(error));
        if (!client)
            fprintf(stderr, "chart-tunnel: broker client: %s\n", error);
    }
    if (!client)
        rd_kafka_conf_destroy(conf);
    return client;
}

static int open_reading(struct streams *streams, struct clients *clients) {
    clients->records = rd_kafka_queue_new(clients->consumer);
    for (int i = 0; i < STREAMS_TOPICS; i++) {
        rd_kafka_topic_conf_t *conf = rd_kafka_topic_conf_new();
        char error[256];
        (void)rd_kafka_topic_conf_set(conf, "auto.offset.reset", "earliest", error, sizeof(error));
        /* The topic takes the configuration over. */
        clients->in[i] = rd_kafka_topic_new(clients->consumer, IN_NAMES[i], conf);
        if (!clients->in[i])
            return -ENOMEM;
        if (rd_kafka_consume_start_queue(clients->in[i], 0, streams->next_offset[i], clients->records) < 0)
            return -EINVAL;
        clients->reading[i] = true;
    }
    return 0;
}

static int open_writing(struct clients *clients) {
    rd_kafka_topic_conf_t *conf = rd_kafka_topic_conf_new();
    char error[256];
    /* An old report is worth nothing once newer ones are there. */
    (void)rd_kafka_topic_conf_set(conf, "message.timeout.ms", "10000", error, sizeof(error));
    clients->out = rd_kafka_topic_new(clients->producer, REPORT_TOPIC, conf);
    return clients->out ? 0 : -ENOMEM;
}

static void close_reading(struct clients *clients) {
    for (int i = 0; i < STREAMS_TOPICS; i++) {
        if (clients->reading[i])
            rd_kafka_consume_stop(clients->in[i], 0);
        if (clients->in[i])
            rd_kafka_topic_destroy(clients->in[i]);
    }
    if (clients->records)
        rd_kafka_queue_destroy(clients->records);
    if (clients->consumer_events)
        rd_kafka_queue_destroy(clients->consumer_events);
    rd_kafka_destroy(clients->consumer);
}

static void close_writing(struct clients *clients, int flush_ms) {
    if (flush_ms > 0)
        rd_kafka_flush(clients->producer, flush_ms);
    rd_kafka_purge(clients->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_poll(clients->producer, 0);
    if (clients->out)
        rd_kafka_topic_destroy(clients->out);
    if (clients->producer_events)
        rd_kafka_queue_destroy(clients->producer_events);
    rd_kafka_destroy(clients->producer);
}

static void close_clients(struct clients *clients, int flush_ms) {
    if (clients->consumer)
        close_reading(clients);
    if (clients->producer)
        close_writing(clients, flush_ms);
    *clients = (struct clients){0};
}

static int open_clients(struct streams *streams, struct clients *ret) {
    static const uint64_t ONE = 1;
    struct clients clients = {0};
    int error = -EINVAL;
    /* Noted before it is read: one that comes in between is taken for a change. */
    broker_identity_use(&streams->identity);
    clients.consumer = make_client(streams, RD_KAFKA_CONSUMER, streams->options);
    clients.producer = clients.consumer ? make_client(streams, RD_KAFKA_PRODUCER, streams->options) : NULL;
    if (clients.producer)
        error = open_reading(streams, &clients);
    if (!error)
        error = open_writing(&clients);
    if (error) {
        close_clients(&clients, 0);
        return error;
    }
    clients.consumer_events = rd_kafka_queue_get_main(clients.consumer);
    clients.producer_events = rd_kafka_queue_get_main(clients.producer);
    rd_kafka_queue_io_event_enable(clients.records, streams->descriptor, &ONE, sizeof(ONE));
    rd_kafka_queue_io_event_enable(clients.consumer_events, streams->descriptor, &ONE, sizeof(ONE));
    rd_kafka_queue_io_event_enable(clients.producer_events, streams->descriptor, &ONE, sizeof(ONE));
    *ret = clients;
    return 0;
}

/* The file whose renewals are followed: what the operator set by hand comes before the shared file. */
static void find_identity(struct streams *streams) {
    static const char NAME[] = CERTIFICATE "=";
    const struct options *options = streams->options;
    broker_identity_open(&streams->identity);
    for (size_t i = 0; i < options->broker_setting_count; i++)
        if (strncmp(options->broker_settings[i], NAME, sizeof(NAME) - 1) == 0)
            snprintf(streams->identity.certificate, sizeof(streams->identity.certificate), "%s",
                     options->broker_settings[i] + sizeof(NAME) - 1);
}

int streams_open(const struct options *options, const struct streams_handler *handler, struct streams **ret) {
    struct streams *streams = calloc(1, sizeof(*streams));
    if (!streams)
        return -ENOMEM;
    streams->options = options;
    streams->handler = *handler;
    for (int i = 0; i < STREAMS_TOPICS; i++)
        streams->next_offset[i] = RD_KAFKA_OFFSET_BEGINNING;
    int error = 0;
    streams->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (streams->descriptor < 0)
        error = -errno;
    if (!error && options->authority)
        error = signing_open(options, &streams->signing);
    find_identity(streams);
    if (!error)
        error = open_clients(streams, &streams->clients);
    if (error < 0) {
        streams_close(streams, 0);
        return error;
    }
    *ret = streams;
    return 0;
}

void streams_close(struct streams *streams, int flush_ms) {
    if (!streams)
        return;
    close_clients(&streams->clients, streams->connected ? flush_ms : 0);
    if (streams->descriptor >= 0)
        close(streams->descriptor);
    signing_close(streams->signing);
    free(streams);
}

/* Clients with the certificate that is there now, in the place of those with the former one. Reading goes on where it
 * was; a report that is under way may be lost, and the next one says more. */
static void follow_identity(struct streams *streams, uint64_t now_us) {
    struct clients fresh;
    if (now_us < streams->look_at_us)
        return;
    streams->look_at_us = now_us + LOOK_EVERY_US;
    if (!broker_identity_changed(&streams->identity))
        return;
    struct broker_identity former = streams->identity;
    if (open_clients(streams, &fresh)) {
        streams->identity = former;
        streams->look_at_us = now_us + RETRY_US;
        return;
    }
    fprintf(stderr, "chart-tunnel: the certificate is another one: the broker is spoken to anew\n");
    close_clients(&streams->clients, 0);
    streams->clients = fresh;
}

int streams_fd(const struct streams *streams) {
    return streams->descriptor;
}

static void hand_out(struct streams *streams, const rd_kafka_message_t *message) {
    char key[KEY_BYTES];
    if (message->err) {
        if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
            connected(streams);
        return;
    }
    connected(streams);
    int topic = 0;
    while (topic < STREAMS_TOPICS && message->rkt != streams->clients.in[topic])
        topic++;
    if (topic == STREAMS_TOPICS)
        return;
    streams->next_offset[topic] = message->offset + 1;
    if (message->key_len == 0 || message->key_len >= sizeof(key)) {
        streams->counters.unreadable++;
        return;
    }
    snprintf(key, sizeof(key), "%.*s", (int)message->key_len, (const char *)message->key);
    streams->counters.read++;
    streams->handler.record(streams->handler.context, (enum streams_topic)topic, key, message->payload, message->len);
}

void streams_poll(struct streams *streams) {
    rd_kafka_message_t *messages[BATCH];
    uint64_t count;
    (void)!read(streams->descriptor, &count, sizeof(count));
    rd_kafka_poll(streams->clients.producer, 0);
    rd_kafka_poll(streams->clients.consumer, 0);
    ssize_t got = rd_kafka_consume_batch_queue(streams->clients.records, 0, messages, BATCH);
    for (ssize_t i = 0; i < got; i++) {
        hand_out(streams, messages[i]);
        rd_kafka_message_destroy(messages[i]);
    }
    /* More may wait, and the library tells only of an empty queue that fills; packets come first meanwhile. */
    count = 1;
    if (got == BATCH)
        (void)!write(streams->descriptor, &count, sizeof(count));
}

uint64_t streams_tick(struct streams *streams, uint64_t now_us) {
    uint64_t next_us = streams->signing ? signing_tick(streams->signing, now_us) : ITM_NEVER_US;
    follow_identity(streams, now_us);
    return next_us < streams->look_at_us ? next_us : streams->look_at_us;
}

bool streams_signing(const struct streams *streams) {
    return !streams->signing || signing_ready(streams->signing);
}

const char *streams_fault(const struct streams *streams) {
    return streams->signing ? signing_fault(streams->signing) : "";
}

int streams_report(struct streams *streams, const char *key, const void *value, size_t bytes) {
    char mac[RECORD_MAC_LEN];
    if (streams->signing && !signing_code(streams->signing, REPORT_TOPIC, key, value, bytes, mac)) {
        streams->counters.unsigned_reports++;
        return -EAGAIN;
    }
    rd_kafka_headers_t *headers = rd_kafka_headers_new(2);
    if (!headers)
        return -ENOMEM;
    rd_kafka_header_add(headers, "type", -1, REPORT_TYPE, -1);
    if (streams->signing)
        rd_kafka_header_add(headers, RECORD_MAC_HEADER, -1, mac, -1);
    if (rd_kafka_producev(streams->clients.producer, RD_KAFKA_V_RKT(streams->clients.out),
                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, strlen(key)),
                          RD_KAFKA_V_VALUE((void *)value, bytes), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END)) {
        rd_kafka_headers_destroy(headers);
        streams->counters.dropped++;
        return -ENOBUFS;
    }
    return 0;
}

bool streams_connected(const struct streams *streams) {
    return streams->connected;
}

struct streams_counters streams_counters(const struct streams *streams) {
    return streams->counters;
}
