/* The event API of traffic controllers: Guirguis et al., Providing Soft Bandwidth Guarantees Using Elastic TCP-based
 * Tunnels, section 4.2; Matta and Bestavros, QoS Controllers for the Internet, section IV.
 *
 * An application registers five functions and the events it wants. When such an event occurs they are called in this
 * order, for one application after the other in the order of registration:
 *
 *   classify           which class a packet belongs to, or ITM_CLASS_NONE: not this application's packet
 *   log                record what was seen, in the class or elsewhere
 *   process            what becomes of the packet: the verdict
 *   class_update       change classes from what was logged (rates, bottleneck groups, long or short)
 *   controller_update  change the controller's own parameters from the state of the system
 *
 * Events with a packet (arrival, departure) ask for a verdict. Events without one (loss, feedback, timer) leave
 * classify and process out. Any function may be NULL. Nothing here does input or output, reads a clock or allocates:
 * what drives the dispatcher brings packets and times, so an application is tested with made-up ones.
 *
 * An application from a file runs in a process of its own (host.h, applications.h); the tunnel itself (elastic.c) is
 * one in the tunnel's process. See template/application.c for a first one, template/pacing.c for a controller. */
#ifndef ITM_EVENT_H
#define ITM_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload.h"

#define ITM_APPLICATIONS 16
#define ITM_GROUPS 32
#define ITM_CLASS_NONE UINT32_MAX
#define ITM_NEVER_US UINT64_MAX

/* An application names the events that it wants as a set of 1U << kind; the timer by its period. */
enum itm_event_kind {
    ITM_ARRIVAL,   /* a user's packet enters; in chart-tunnel: at the origin */
    ITM_DEPARTURE, /* a user's packet is about to leave towards its receiver; in chart-tunnel: at the destination */
    ITM_LOSS, /* packets were lost: dropped in a queue of the tunnel, given up at its end, retransmitted by its TCP */
    ITM_FEEDBACK, /* the other end reported what it received; in chart-tunnel: at the origin, once per period */
    ITM_TIMER,    /* the application's period has passed */
    ITM_EVENTS
};

/* One group of flows: in chart-tunnel a customer. */
struct itm_group {
    uint64_t rate_bps;              /* of user packets that left the queue, over the last period */
    uint64_t queue_bytes;           /* waiting now */
    uint64_t dropped_packets_total; /* from its queue */
};

/* What is known of the system; 0 where nothing is. The connections of a tunnel share its path, so their RTT and loss
 * are those of all groups. */
struct itm_inputs {
    uint64_t rate_bps;       /* that arrived at the other end, frames included, over its last period */
    uint32_t rtt_us;         /* mean of the connections */
    uint32_t rtt_minimum_us; /* least since the start */
    double loss_ratio;       /* segments that TCP sent again over segments sent, 0 to 1, over the last period */
    uint32_t connections;    /* that carry packets */
    uint32_t group_count;
    struct itm_group groups[ITM_GROUPS];
};

struct itm_event {
    enum itm_event_kind kind;
    uint64_t now_us;                 /* monotonic */
    uint64_t elapsed_us;             /* of a timer: since this application's last one */
    uint64_t lost_packets;           /* of a loss: since the last one; segments where TCP lost them */
    const uint8_t *packet;           /* from its IP header on; valid during the call only, not to be written to */
    size_t packet_bytes;             /* 0: the event has no packet */
    const struct offload *offload;   /* what the kernel left undone on it; NULL: nothing */
    const struct itm_inputs *inputs; /* NULL: nothing is known */
};

enum itm_verdict {
    ITM_PASS,   /* the next application is asked; in the end the packet goes on as if nobody had looked */
    ITM_TAKE,   /* the application has it (queued, sent); nobody else is asked */
    ITM_DROP,   /* gone; nobody else is asked */
    ITM_DIVERT, /* goes on over the path named in the action (isolation of long from short flows, of classes) */
    ITM_MARK,   /* its DS field is written (mark.h); the next application is asked */
    ITM_PACE,   /* waits as long as the action says, then goes on; nobody else is asked */
    ITM_VERDICTS
};

struct itm_action {
    enum itm_verdict verdict;
    /* DIVERT: index of a path, in chart-tunnel of a customer. MARK: DSCP << 2, and ITM_MARK_CE or 0. PACE: us. */
    uint32_t value;
};

#define ITM_MARK_CE 3U               /* congestion experienced, where the packet's sender takes part in ECN */
#define ITM_PACE_LONGEST_US 1000000U /* longer is taken for this */

struct itm_application {
    const char *name;
    void *state;        /* handed to every function */
    unsigned events;    /* wanted beside the timer: set of 1U << enum itm_event_kind, 0 for none */
    uint64_t period_us; /* of the timer, 0 for none */
    uint32_t (*classify)(void *state, const struct itm_event *event);
    void (*log)(void *state, const struct itm_event *event, uint32_t class_id);
    struct itm_action (*process)(void *state, const struct itm_event *event, uint32_t class_id);
    void (*class_update)(void *state, const struct itm_event *event, uint32_t class_id);
    void (*controller_update)(void *state, const struct itm_event *event);
    /* New parameters while it runs: 0, or a negative errno with nothing changed. NULL: it takes none. */
    int (*configure)(void *state, const char *argument);
};

struct itm_counters {
    uint64_t packets;                /* that it was asked about */
    uint64_t verdicts[ITM_VERDICTS]; /* by enum itm_verdict */
    uint64_t events;                 /* without a packet: losses, feedback, timers */
};

struct itm_registration {
    struct itm_application application;
    struct itm_counters counters;
    uint64_t last_us, next_us;
};

struct itm_dispatcher {
    struct itm_registration registrations[ITM_APPLICATIONS];
    size_t count;
};

void itm_dispatcher_init(struct itm_dispatcher *dispatcher);
/* Copies the application; its first period ends period_us from now. Returns 0, -EINVAL when it has no name, wants no
 * event or an unknown one, -EEXIST when its name is taken, -ENOSPC when there are ITM_APPLICATIONS. */
int itm_register(struct itm_dispatcher *dispatcher, const struct itm_application *application, uint64_t now_us);
/* 0, or -ENOENT. */
int itm_unregister(struct itm_dispatcher *dispatcher, const char *name);
/* Changes the period of an application from now on, 0 stops it: 0, or -ENOENT. */
int itm_set_period(struct itm_dispatcher *dispatcher, const char *name, uint64_t period_us, uint64_t now_us);
/* The five functions for one event with a packet. False when it is not this application's packet; the action is PASS
 * then. */
bool itm_ask(const struct itm_application *application, const struct itm_event *event, struct itm_action *ret);
/* The same for an event without a packet. */
void itm_inform(const struct itm_application *application, const struct itm_event *event);
/* An event with a packet: what becomes of it. MARK of one application is overwritten by that of the next. */
struct itm_action itm_packet(struct itm_dispatcher *dispatcher, const struct itm_event *event);
/* Time has come to now_us: raises the timers that are due, each at most once (a late caller finds the time
 * that passed in elapsed_us). Returns when the next one is due, ITM_NEVER_US for never. */
uint64_t itm_tick(struct itm_dispatcher *dispatcher, uint64_t now_us);
/* NULL when there is none of that name. */
const struct itm_counters *itm_counters(const struct itm_dispatcher *dispatcher, const char *name);

#endif
