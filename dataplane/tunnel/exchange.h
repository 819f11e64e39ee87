/* What a tunnel's end and the process of an application say to each other: one request, one answer, over a
 * SOCK_SEQPACKET pair. Packets are not copied: they lie in memory that the end writes and the application reads. Both
 * sides are the same program, so structures travel as they are. */
#ifndef ITM_EXCHANGE_H
#define ITM_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include "event.h"
#include "frame.h"

/* The descriptors of an application's process. */
#define EXCHANGE_SOCKET 3
#define EXCHANGE_ARENA 4

#define EXCHANGE_PACKETS 64
/* A packet's place in the shared memory, the device's header before it. */
#define EXCHANGE_SLOT_BYTES (FRAME_PAYLOAD_MAX + 64)
#define EXCHANGE_SLOT_PACKET 16
#define EXCHANGE_ARENA_BYTES ((size_t)EXCHANGE_PACKETS * EXCHANGE_SLOT_BYTES)
#define EXCHANGE_TEXT_BYTES 1024
#define EXCHANGE_NAME_BYTES 32

enum exchange_kind {
    EXCHANGE_EVENT,     /* request: an event, with packets or without */
    EXCHANGE_CONFIGURE, /* request: an argument */
    EXCHANGE_READY,     /* answer, unasked, once: the application is open */
    EXCHANGE_DONE,      /* answer: the actions, one for each packet */
    EXCHANGE_REFUSED    /* answer: a sentence, to CONFIGURE or instead of READY */
};

struct exchange_packet {
    uint32_t slot, bytes;
    struct offload offload;
};

struct exchange_request {
    enum exchange_kind kind;
    uint32_t number; /* the answer has the same */
    enum itm_event_kind event;
    uint32_t count; /* of packets */
    uint64_t now_us, elapsed_us, lost_packets;
    struct itm_inputs inputs;
    union {
        struct exchange_packet packets[EXCHANGE_PACKETS];
        char argument[EXCHANGE_TEXT_BYTES];
    };
};

struct exchange_answer {
    enum exchange_kind kind;
    uint32_t number, count;
    unsigned events;    /* READY: which ones it wants */
    uint64_t period_us; /* READY */
    union {
        struct itm_action actions[EXCHANGE_PACKETS];
        char sentence[EXCHANGE_TEXT_BYTES];
        char name[EXCHANGE_NAME_BYTES]; /* READY: what the file calls itself */
    };
};

#endif
