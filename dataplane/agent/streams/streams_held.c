/* See streams_held.h. */
#include "streams/streams_held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void streams_held_free(struct streams_held_record *record) {
    if (!record)
        return;
    free(record->key);
    free(record->value);
    free(record->traceparent);
    free(record);
}

struct streams_held_record *streams_held_take(struct streams_held *held) {
    struct streams_held_record *record = held->first;

    if (!record)
        return NULL;
    held->first = record->next;
    if (!held->first)
        held->last = NULL;
    held->count--;
    return record;
}

void streams_held_clear(struct streams_held *held) {
    while (held->first)
        streams_held_free(streams_held_take(held));
}

/* What a newer record of its key makes worthless. */
static void remove_older(struct streams_held *held, enum streams_out topic, const char *key) {
    struct streams_held_record *before = NULL, *record = held->first;

    while (record && (record->topic != topic || strcmp(record->key, key) != 0)) {
        before = record;
        record = record->next;
    }
    if (!record)
        return;
    if (before)
        before->next = record->next;
    else
        held->first = record->next;
    if (held->last == record)
        held->last = before;
    held->count--;
    streams_held_free(record);
}

int streams_held_put(struct streams_held *held, enum streams_out topic, const char *key, const void *value,
                     size_t length, const char *traceparent) {
    struct streams_held_record *record;

    if (topic == STREAMS_LINK_LOAD)
        return 0;
    if (topic != STREAMS_FLOW_RECORD)
        remove_older(held, topic, key);
    if (held->count == STREAMS_HELD_MAX) {
        streams_held_free(streams_held_take(held));
        held->dropped++;
    }
    record = calloc(1, sizeof(*record));
    if (!record)
        return -ENOMEM;
    record->topic = topic;
    record->key = strdup(key);
    record->value = malloc(length ? length : 1);
    record->traceparent = strdup(traceparent ? traceparent : "");
    record->length = length;
    if (!record->key || !record->value || !record->traceparent) {
        streams_held_free(record);
        return -ENOMEM;
    }
    memcpy(record->value, value, length);
    if (held->last)
        held->last->next = record;
    else
        held->first = record;
    held->last = record;
    held->count++;
    return 0;
}
