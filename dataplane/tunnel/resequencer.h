/* The resequencing buffer of the destination: packets that came over m connections leave in the order in which the
 * origin numbered them (Guirguis et al., section 2; the bound is ours). A packet waits for those before it, but no
 * longer than hold_us and only while fewer than capacity numbers are between: then the missing ones are given up. One
 * that comes after its number was given up is delivered at once, late; one whose number was delivered is dropped, as
 * far back as capacity numbers: the origin sends twice what is stuck. Pure: times come in, packets go out through a
 * function. */
#ifndef ITM_RESEQUENCER_H
#define ITM_RESEQUENCER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESEQUENCER_NEVER_US UINT64_MAX

struct held_packet {
    struct held_packet *newer, *older; /* by time of arrival */
    uint64_t sequence, arrived_us;
    size_t bytes;
    uint8_t data[];
};

struct resequencer {
    struct held_packet **slots; /* by sequence modulo capacity */
    uint64_t capacity;
    uint64_t hold_us;
    uint64_t expected; /* next number to deliver */
    bool *given_up;    /* by number modulo capacity, of the last capacity numbers before expected */
    struct held_packet *oldest, *newest;
    void (*deliver)(void *context, const uint8_t *packet, size_t bytes);
    void *context;
    uint64_t held, held_maximum;
    uint64_t delivered, late, skipped, duplicates;
};

/* 0, -EINVAL for a capacity of 0, -ENOMEM. */
int resequencer_init(struct resequencer *resequencer, uint64_t capacity, uint64_t hold_us,
                     void (*deliver)(void *context, const uint8_t *packet, size_t bytes), void *context);
void resequencer_free(struct resequencer *resequencer);
/* Delivers what is held and starts a new sequence. */
void resequencer_restart(struct resequencer *resequencer, uint64_t expected);
/* A packet came: 0, or -ENOMEM (it is delivered out of order then). */
int resequencer_put(struct resequencer *resequencer, uint64_t sequence, const uint8_t *packet, size_t bytes,
                    uint64_t now_us);
/* Time has come to now_us: gives up what is due. Returns when the next packet is due, RESEQUENCER_NEVER_US for none. */
uint64_t resequencer_tick(struct resequencer *resequencer, uint64_t now_us);

#endif
