/* The agent's end of the streams (architecture.md, "Streams"): reads six compacted topics from their beginning,
 * without a group, and writes node states, link loads, grant statuses and flow records. One descriptor for epoll; no
 * thread of its own.
 *
 * A broker that is away disturbs nothing: reading goes on where it stopped, link loads older than a second are dropped,
 * statuses and node states wait. So they do while this node has an authority and no key of it. Headers: `type` names
 * the message, `traceparent` (W3C Trace Context) carries a trace on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum streams_in {
    STREAMS_TOPOLOGY,
    STREAMS_POLICY,
    STREAMS_LINK_RATE,
    STREAMS_FLOW_GRANT,
    STREAMS_SESSION_RULE,
    /* A platform of before has none. */
    STREAMS_PATH_TABLE,
    STREAMS_IN_COUNT
};
enum streams_out {
    STREAMS_NODE_STATE,
    STREAMS_LINK_LOAD,
    STREAMS_GRANT_STATUS,
    STREAMS_FLOW_RECORD,
    STREAMS_OUT_COUNT
};

/* A record read; everything is borrowed for the call. value NULL: a tombstone. */
struct streams_record {
    enum streams_in topic;
    const char *key;
    const uint8_t *value;
    size_t length;
    /* "" when the record had none. */
    const char *traceparent;
};

struct streams_handler {
    void (*record)(const struct streams_record *record, void *context);
    /* A grant status or node state was given up by the client library; its key. */
    void (*undelivered)(enum streams_out topic, const char *key, void *context);
    /* The broker answers again after it did not. */
    void (*connected)(void *context);
    void *context;
};

struct streams_counts {
    uint64_t read_records;
    uint64_t unreadable_records;
    uint64_t written_records[STREAMS_OUT_COUNT];
    uint64_t delivered_records;
    uint64_t dropped_records;
    uint64_t waiting_records;
    uint64_t disconnects;
};

struct streams;

/* bootstrap "HOST:PORT[,...]". Returns at once, with or without a broker. 0, -EINVAL (configuration refused) or
 * -ENOMEM. */
int streams_open(const char *bootstrap, const char *node, const struct streams_handler *handler, struct streams **ret);

/* Gives statuses up to flush_ms to get out. */
void streams_close(struct streams *streams, int flush_ms);

/* Readable when streams_poll has something to do; call it every second besides. */
int streams_fd(const struct streams *streams);

/* Hand out what arrived, at most a few thousand records a call. Returns how many. */
int streams_poll(struct streams *streams);

/* Every compacted topic was read to its end at least once: the state is whole. */
bool streams_synced(const struct streams *streams);

/* The broker answered lately. */
bool streams_connected(const struct streams *streams);

/* Write one record; the value is copied. 0, or -ENOBUFS when the queue is full. traceparent may be NULL or "". */
int streams_send(struct streams *streams, enum streams_out topic, const char *key, const void *value, size_t length,
                 const char *traceparent);

struct streams_counts streams_counts(const struct streams *streams);

const char *streams_out_name(enum streams_out topic);
