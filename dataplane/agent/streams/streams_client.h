/* How the agent's Kafka clients are set up (librdkafka's CONFIGURATION.md names the settings). */
#pragma once

#include <librdkafka/rdkafka.h>

struct streams_callbacks {
    void (*error)(rd_kafka_t *client, int error, const char *reason, void *opaque);
    /* Producers only. */
    void (*delivery)(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque);
    void *opaque;
};

/* A consumer or producer for the broker at `bootstrap`; connects in the background. NULL when a setting is refused. */
rd_kafka_t *streams_make_client(rd_kafka_type_t type, const char *bootstrap, const char *node,
                                const struct streams_callbacks *callbacks);

/* The record's header `traceparent`; "" without one. */
void streams_client_traceparent(const rd_kafka_message_t *message, char *ret, size_t size);
