/* The elastic tunnel's five functions, see elastic.h. */
#include "elastic.h"

#include <errno.h>
#include <string.h>

static uint32_t classify(void *state, const struct itm_event *event) {
    struct elastic *elastic = state;
    struct packet_key key;
    if (packet_parse(event->packet, event->packet_bytes, &key) == 0)
        for (uint32_t i = 0; i < elastic->options->class_count; i++)
            if (selector_matches(&elastic->options->classes[i].selector, &key))
                return i;
    elastic->unclassified_packets++;
    return ITM_CLASS_NONE;
}

static void log_event(void *state, const struct itm_event *event, uint32_t class_id) {
    struct elastic *elastic = state;
    if (class_id == ITM_CLASS_NONE)
        return;
    elastic->offered_packets++;
    elastic->offered_bytes_now += event->packet_bytes;
}

static struct itm_action process(void *state, const struct itm_event *event, uint32_t class_id) {
    struct elastic *elastic = state;
    int result = scheduler_put(&elastic->scheduler, class_id, event->packet, event->packet_bytes, event->offload);
    return (struct itm_action){result < 0 ? ITM_DROP : ITM_TAKE, 0};
}

static void class_update(void *state, const struct itm_event *event, uint32_t class_id) {
    struct elastic *elastic = state;
    (void)class_id;
    if (event->kind != ITM_TIMER || !event->elapsed_us)
        return;
    elastic_backlog(elastic, elastic->backlogged, event->now_us);
    elastic->offered_bytes = elastic->offered_bytes_now;
    elastic->backlogged_us = elastic->backlogged_us_now;
    elastic->offered_bytes_now = elastic->backlogged_us_now = 0;
    for (uint32_t i = 0; i < elastic->scheduler.count; i++) {
        uint64_t sent_bytes = elastic->scheduler.classes[i].sent_bytes;
        elastic->rate_bps[i] = (sent_bytes - elastic->sent_bytes_seen[i]) * 8000000 / event->elapsed_us;
        elastic->sent_bytes_seen[i] = sent_bytes;
    }
}

static void controller_update(void *state, const struct itm_event *event) {
    struct elastic *elastic = state;
    if (event->kind == ITM_TIMER)
        elasticity_period(&elastic->elasticity, event->now_us);
}

void elastic_divert(struct elastic *elastic, uint32_t path, const uint8_t *packet, size_t bytes,
                    const struct offload *offload) {
    if (scheduler_put(&elastic->scheduler, path, packet, bytes, offload) == -EINVAL) {
        elastic->unclassified_packets++;
        return;
    }
    elastic->offered_packets++;
    elastic->offered_bytes_now += bytes;
}

void elastic_backlog(struct elastic *elastic, bool backlogged, uint64_t now_us) {
    if (elastic->backlogged)
        elastic->backlogged_us_now += now_us - elastic->looked_at_us;
    elastic->backlogged = backlogged;
    elastic->looked_at_us = now_us;
}

uint64_t elastic_dropped(const struct elastic *elastic) {
    uint64_t dropped = 0;
    for (uint32_t i = 0; i < elastic->scheduler.count; i++)
        dropped += elastic->scheduler.classes[i].dropped_packets;
    return dropped;
}

int elastic_init(struct elastic *elastic, const struct options *options) {
    memset(elastic, 0, sizeof(*elastic));
    elastic->options = options;
    elastic->elasticity.connections = options->connections;
    int error = scheduler_init(&elastic->scheduler, options->class_count, options->queue_bytes);
    for (uint32_t i = 0; !error && i < options->class_count; i++)
        error = scheduler_set_weight(&elastic->scheduler, i, options->classes[i].weight);
    return error;
}

void elastic_free(struct elastic *elastic) {
    scheduler_free(&elastic->scheduler);
}

struct itm_application elastic_application(struct elastic *elastic) {
    return (struct itm_application){
        .name = ELASTIC_NAME,
        .state = elastic,
        .events = 1U << ITM_ARRIVAL,
        .period_us = elastic->options->period_us,
        .classify = classify,
        .log = log_event,
        .process = process,
        .class_update = class_update,
        .controller_update = controller_update,
    };
}
