/* The origin's end of the streams: reads chart.tunnel-command.v1 and chart.policy.v1 from their beginning (compacted,
 * one partition each), writes chart.tunnel-report.v1. One descriptor for epoll; librdkafka's threads do the waiting, so
 * that a broker that is away disturbs no packet. Reports that cannot be written within 10 s are dropped and counted. */
#ifndef ITM_STREAMS_H
#define ITM_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

enum streams_topic { STREAMS_COMMAND, STREAMS_POLICY, STREAMS_TOPICS };

struct streams_handler {
    /* A record; value NULL: a tombstone. Borrowed for the call. */
    void (*record)(void *context, enum streams_topic topic, const char *key, const uint8_t *value, size_t bytes);
    void *context;
};

struct streams_counters {
    /* unsigned_reports: not written for want of the node's key. */
    uint64_t read, unreadable, delivered, dropped, disconnects, unsigned_reports;
};

struct streams;

/* Returns at once, with or without a broker: 0, or -EINVAL (a setting is refused; a sentence on standard error),
 * -ENOMEM. */
int streams_open(const struct options *options, const struct streams_handler *handler, struct streams **ret);
/* Gives reports up to flush_ms to get out. */
void streams_close(struct streams *streams, int flush_ms);
/* Readable when streams_poll has something to do; call it every second besides. */
int streams_fd(const struct streams *streams);
void streams_poll(struct streams *streams);
/* Keeps the key to sign reports with. Returns when to call it again. */
uint64_t streams_tick(struct streams *streams, uint64_t now_us);
/* With an authority there is a key to sign reports with; without one always. And why not, a sentence; "": nothing. */
bool streams_signing(const struct streams *streams);
const char *streams_fault(const struct streams *streams);
/* The value is copied: 0, -ENOBUFS when the queue is full, or -EAGAIN: the node's key is not there, and the report is
 * left out, since the next one says more. */
int streams_report(struct streams *streams, const char *key, const void *value, size_t bytes);
/* The broker answered lately. */
bool streams_connected(const struct streams *streams);
struct streams_counters streams_counters(const struct streams *streams);

#endif
