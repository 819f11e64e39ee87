/* The resequencing buffer, see resequencer.h. */
#include "resequencer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int resequencer_init(struct resequencer *resequencer, uint64_t capacity, uint64_t hold_us,
                     void (*deliver)(void *context, const uint8_t *packet, size_t bytes), void *context) {
    memset(resequencer, 0, sizeof(*resequencer));
    if (!capacity)
        return -EINVAL;
    resequencer->slots = calloc(capacity, sizeof(struct held_packet *));
    resequencer->given_up = calloc(capacity, sizeof(bool));
    if (!resequencer->slots || !resequencer->given_up) {
        resequencer_free(resequencer);
        return -ENOMEM;
    }
    resequencer->capacity = capacity;
    resequencer->hold_us = hold_us;
    resequencer->deliver = deliver;
    resequencer->context = context;
    return 0;
}

void resequencer_free(struct resequencer *resequencer) {
    struct held_packet *packet = resequencer->oldest;
    while (packet) {
        struct held_packet *next = packet->newer;
        free(packet);
        packet = next;
    }
    free(resequencer->slots);
    free(resequencer->given_up);
    memset(resequencer, 0, sizeof(*resequencer));
}

/* The next number is done with. */
static void pass(struct resequencer *resequencer, bool given_up) {
    resequencer->given_up[resequencer->expected++ % resequencer->capacity] = given_up;
}

static void release(struct resequencer *resequencer, struct held_packet *packet) {
    if (packet->older)
        packet->older->newer = packet->newer;
    else
        resequencer->oldest = packet->newer;
    if (packet->newer)
        packet->newer->older = packet->older;
    else
        resequencer->newest = packet->older;
    resequencer->slots[packet->sequence % resequencer->capacity] = NULL;
    resequencer->held--;
    resequencer->delivered++;
    resequencer->deliver(resequencer->context, packet->data, packet->bytes);
    free(packet);
}

/* Delivers whatever is in order now. */
static void run_on(struct resequencer *resequencer) {
    struct held_packet *packet;
    while (resequencer->held && (packet = resequencer->slots[resequencer->expected % resequencer->capacity])) {
        release(resequencer, packet);
        pass(resequencer, false);
    }
}

/* The next number, whether its packet is there or not. */
static void deliver_or_skip(struct resequencer *resequencer) {
    struct held_packet *packet = resequencer->slots[resequencer->expected % resequencer->capacity];
    if (packet)
        release(resequencer, packet);
    else
        resequencer->skipped++;
    pass(resequencer, !packet);
}

/* Makes `upto` the next number, giving up the missing ones before it. */
static void give_up(struct resequencer *resequencer, uint64_t upto) {
    while (resequencer->expected < upto) {
        uint64_t missing = upto - resequencer->expected;
        if (!resequencer->held && missing > resequencer->capacity) {
            /* Further back nothing is remembered. */
            resequencer->skipped += missing - resequencer->capacity;
            resequencer->expected = upto - resequencer->capacity;
        }
        deliver_or_skip(resequencer);
    }
}

void resequencer_restart(struct resequencer *resequencer, uint64_t expected) {
    /* Until nothing is held, not up to a number: the origin may number up to the end of the range. */
    while (resequencer->held)
        deliver_or_skip(resequencer);
    resequencer->expected = expected;
    /* What a connection brings from before this was not delivered here. */
    memset(resequencer->given_up, true, resequencer->capacity * sizeof(bool));
}

/* A packet whose number is done with: late, or for the second time. */
static void put_behind(struct resequencer *resequencer, uint64_t sequence, const uint8_t *packet, size_t bytes) {
    bool *given_up = &resequencer->given_up[sequence % resequencer->capacity];
    if (resequencer->expected - sequence <= resequencer->capacity) {
        if (!*given_up) {
            resequencer->duplicates++;
            return;
        }
        *given_up = false;
    }
    resequencer->late++;
    resequencer->delivered++;
    resequencer->deliver(resequencer->context, packet, bytes);
}

static int hold(struct resequencer *resequencer, uint64_t sequence, const uint8_t *packet, size_t bytes,
                uint64_t now_us) {
    struct held_packet *held = malloc(sizeof(*held) + bytes);
    if (!held) {
        resequencer->delivered++;
        resequencer->late++;
        resequencer->deliver(resequencer->context, packet, bytes);
        return -ENOMEM;
    }
    memcpy(held->data, packet, bytes);
    held->bytes = bytes;
    held->sequence = sequence;
    held->arrived_us = now_us;
    held->newer = NULL;
    held->older = resequencer->newest;
    if (resequencer->newest)
        resequencer->newest->newer = held;
    else
        resequencer->oldest = held;
    resequencer->newest = held;
    resequencer->slots[sequence % resequencer->capacity] = held;
    if (++resequencer->held > resequencer->held_maximum)
        resequencer->held_maximum = resequencer->held;
    return 0;
}

int resequencer_put(struct resequencer *resequencer, uint64_t sequence, const uint8_t *packet, size_t bytes,
                    uint64_t now_us) {
    if (sequence < resequencer->expected) {
        put_behind(resequencer, sequence, packet, bytes);
        return 0;
    }
    if (sequence - resequencer->expected >= resequencer->capacity) {
        give_up(resequencer, sequence - resequencer->capacity + 1);
        run_on(resequencer);
    }
    if (sequence == resequencer->expected) {
        pass(resequencer, false);
        resequencer->delivered++;
        resequencer->deliver(resequencer->context, packet, bytes);
        run_on(resequencer);
        return 0;
    }
    if (resequencer->slots[sequence % resequencer->capacity]) {
        resequencer->duplicates++;
        return 0;
    }
    return hold(resequencer, sequence, packet, bytes, now_us);
}

uint64_t resequencer_tick(struct resequencer *resequencer, uint64_t now_us) {
    while (resequencer->oldest && now_us - resequencer->oldest->arrived_us >= resequencer->hold_us) {
        give_up(resequencer, resequencer->oldest->sequence);
        run_on(resequencer);
    }
    return resequencer->oldest ? resequencer->oldest->arrived_us + resequencer->hold_us : RESEQUENCER_NEVER_US;
}
