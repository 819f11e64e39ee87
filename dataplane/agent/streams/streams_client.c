/* The settings of the Kafka clients; see streams_client.h. */
#include "streams/streams_client.h"

#include <stdbool.h>
#include <stdio.h>

#include "core/log.h"
#include "lib/kafka/kafka_properties.h"

#define CLIENT_ID_LEN 128

struct setting {
    const char *name;
    const char *value;
};

/* Latency first: a grant reaches the kernel and its status the reservations within a few milliseconds. */
static const struct setting common_settings[] = {
    {"reconnect.backoff.ms", "100"},
    {"reconnect.backoff.max.ms", "1000"},
    {"socket.timeout.ms", "6000"},
    {"socket.keepalive.enable", "true"},
    {"socket.nagle.disable", "true"},
    {"topic.metadata.refresh.interval.ms", "10000"},
    {"log_level", "2"},
    {NULL, NULL},
};
static const struct setting consumer_settings[] = {
    {"fetch.wait.max.ms", "100"},     {"fetch.min.bytes", "1"},         {"fetch.error.backoff.ms", "100"},
    {"enable.partition.eof", "true"}, {"queued.min.messages", "20000"}, {NULL, NULL},
};
/* One request in flight keeps the order of a key over retries. */
static const struct setting producer_settings[] = {
    {"linger.ms", "1"},
    {"max.in.flight.requests.per.connection", "1"},
    {"queue.buffering.max.messages", "50000"},
    {"queue.buffering.max.kbytes", "32768"},
    {"retry.backoff.ms", "100"},
    {NULL, NULL},
};

rd_kafka_t *streams_make_client(rd_kafka_type_t type, const char *bootstrap, const char *node,
                                const struct streams_callbacks *callbacks) {
    const struct setting *const lists[] = {common_settings,
                                           type == RD_KAFKA_PRODUCER ? producer_settings : consumer_settings};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char client_id[CLIENT_ID_LEN], error[256];
    rd_kafka_t *client;
    bool good;

    if (kafka_properties_apply(conf, stderr)) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    snprintf(client_id, sizeof(client_id), "chart-agent-%s", node);
    good = rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof(error)) == RD_KAFKA_CONF_OK &&
           rd_kafka_conf_set(conf, "client.id", client_id, error, sizeof(error)) == RD_KAFKA_CONF_OK;
    for (int i = 0; i < 2; i++)
        for (const struct setting *s = lists[i]; good && s->name; s++)
            good = rd_kafka_conf_set(conf, s->name, s->value, error, sizeof(error)) == RD_KAFKA_CONF_OK;
    rd_kafka_conf_set_opaque(conf, callbacks->opaque);
    rd_kafka_conf_set_error_cb(conf, callbacks->error);
    if (type == RD_KAFKA_PRODUCER)
        rd_kafka_conf_set_dr_msg_cb(conf, callbacks->delivery);
    client = good ? rd_kafka_new(type, conf, error, sizeof(error)) : NULL;
    if (!client) {
        log_error("streams: %s", error);
        rd_kafka_conf_destroy(conf);
    }
    return client;
}

void streams_client_traceparent(const rd_kafka_message_t *message, char *ret, size_t size) {
    rd_kafka_headers_t *headers;
    const void *value;
    size_t length;

    ret[0] = '\0';
    if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR &&
        rd_kafka_header_get_last(headers, "traceparent", &value, &length) == RD_KAFKA_RESP_ERR_NO_ERROR && value &&
        length < size)
        snprintf(ret, size, "%.*s", (int)length, (const char *)value);
}
