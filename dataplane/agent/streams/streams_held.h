/* Records that wait until this node has the key to sign them with: those that matter later too, in their order, and no
 * more than there is room for. Link loads are left out: the next ones say more. */
#pragma once

#include <stddef.h>

#include "streams/streams.h"

/* Of a start without its authority: a state, the newest status of each grant, the newest flow records. */
#define STREAMS_HELD_MAX 4096

struct streams_held_record {
    struct streams_held_record *next;
    enum streams_out topic;
    char *key;
    void *value;
    size_t length;
    char *traceparent;
};

struct streams_held {
    struct streams_held_record *first;
    struct streams_held_record *last;
    size_t count;
    /* Left out for want of room. */
    uint64_t dropped;
};

/* Keep a record, its octets copied. A node state, and a status of the same grant, replaces the one before; when there
 * is no room the oldest goes. 0 or -ENOMEM. */
int streams_held_put(struct streams_held *held, enum streams_out topic, const char *key, const void *value,
                     size_t length, const char *traceparent);
/* Take the oldest out, to be freed with streams_held_free; NULL: none. */
struct streams_held_record *streams_held_take(struct streams_held *held);
void streams_held_free(struct streams_held_record *record);
void streams_held_clear(struct streams_held *held);
