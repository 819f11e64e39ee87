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
 * Events are synchronous (a packet at a hook) or periodic (time passed; there is no packet, classify and process are
 * left out). Any function may be NULL. Nothing here does input or output, reads a clock or allocates: what drives the
 * dispatcher brings packets and times, so an application is tested with made-up ones.
 *
 * See template/application.c for a first application, elastic.c for the elastic tunnel. */
#ifndef ITM_EVENT_H
#define ITM_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload.h"

#define ITM_APPLICATIONS 16
#define ITM_CLASS_NONE UINT32_MAX
#define ITM_NEVER_US UINT64_MAX

/* Where a packet can be met; an application names its hooks as a set of 1U << hook. */
enum itm_hook {
    ITM_HOOK_INGRESS,  /* a user's packet enters the controller; in chart-tunnel: at the origin */
    ITM_HOOK_EGRESS,   /* a user's packet is about to leave towards its receiver; in chart-tunnel: at the destination */
    ITM_HOOK_FEEDBACK, /* what comes back from the other end (acknowledgements, for proxies and shared bottlenecks); not
                          raised by chart-tunnel, which carries one direction */
    ITM_HOOKS
};

enum itm_event_kind { ITM_EVENT_PACKET, ITM_EVENT_PERIODIC };

struct itm_event {
    enum itm_event_kind kind;
    enum itm_hook hook;    /* of a packet */
    uint64_t now_us;       /* monotonic */
    uint64_t elapsed_us;   /* of a periodic event: since this application's last one */
    const uint8_t *packet; /* from its IP header on; valid during the call only */
    size_t packet_bytes;
    const struct offload *offload; /* what the kernel left undone on it; NULL: nothing */
};

enum itm_verdict {
    ITM_PASS,  /* the next application is asked; in the end the packet goes on as if nobody had looked */
    ITM_TAKE,  /* the application has it (queued, sent); nobody else is asked */
    ITM_DROP,  /* gone; nobody else is asked */
    ITM_DIVERT /* goes on, over the path named in the action (isolation of long from short flows, of classes) */
};

struct itm_action {
    enum itm_verdict verdict;
    uint32_t path; /* with ITM_DIVERT: index of a path, meaning agreed with whoever dispatches */
};

struct itm_application {
    const char *name;
    void *state;        /* handed to every function */
    unsigned hooks;     /* synchronous events wanted: set of 1U << enum itm_hook, 0 for none */
    uint64_t period_us; /* periodic event wanted, 0 for none */
    uint32_t (*classify)(void *state, const struct itm_event *event);
    void (*log)(void *state, const struct itm_event *event, uint32_t class_id);
    struct itm_action (*process)(void *state, const struct itm_event *event, uint32_t class_id);
    void (*class_update)(void *state, const struct itm_event *event, uint32_t class_id);
    void (*controller_update)(void *state, const struct itm_event *event);
};

struct itm_counters {
    uint64_t packets, passed, taken, dropped, diverted, periods;
};

struct itm_registration {
    struct itm_application application;
    struct itm_counters counters;
    uint64_t last_us, next_us;
    bool off; /* registered, but no event is raised */
};

struct itm_dispatcher {
    struct itm_registration registrations[ITM_APPLICATIONS];
    size_t count;
};

void itm_dispatcher_init(struct itm_dispatcher *dispatcher);
/* Copies the application; its first period ends period_us from now. Returns 0, -EINVAL when it has no name, wants no
 * event or an unknown hook, -EEXIST when its name is taken, -ENOSPC when there are ITM_APPLICATIONS. */
int itm_register(struct itm_dispatcher *dispatcher, const struct itm_application *application, uint64_t now_us);
/* 0, or -ENOENT. */
int itm_unregister(struct itm_dispatcher *dispatcher, const char *name);
/* Changes the period of an application from now on, 0 stops it: 0, or -ENOENT. */
int itm_set_period(struct itm_dispatcher *dispatcher, const char *name, uint64_t period_us, uint64_t now_us);
/* Switches an application off, or on again with a new period: 0, or -ENOENT. */
int itm_switch(struct itm_dispatcher *dispatcher, const char *name, bool on, uint64_t now_us);
/* A packet is at a hook: what becomes of it. */
struct itm_action itm_packet(struct itm_dispatcher *dispatcher, enum itm_hook hook, const uint8_t *packet,
                             size_t packet_bytes, const struct offload *offload, uint64_t now_us);
/* Time has come to now_us: raises the periodic events that are due, each at most once (a late caller finds the time
 * that passed in elapsed_us). Returns when the next one is due, ITM_NEVER_US for never. */
uint64_t itm_tick(struct itm_dispatcher *dispatcher, uint64_t now_us);
/* NULL when there is none of that name. */
const struct itm_counters *itm_counters(const struct itm_dispatcher *dispatcher, const char *name);

#endif
