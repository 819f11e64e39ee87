/* Traffic controllers from files at one end of a tunnel: each in a process of its own (host.h), asked in the order in
 * which they were loaded, before the tunnel itself. An operator loads, configures, switches, replaces and removes them
 * while packets go on. One that ends, answers nonsense or is too slow (guard.h) is taken out, and its packets pass. */
#ifndef ITM_APPLICATIONS_H
#define ITM_APPLICATIONS_H

#include <limits.h>

#include "event.h"
#include "exchange.h"
#include "guard.h"
#include "pacer.h"
#include "process.h"

#define APPLICATIONS_MAX 8
#define APPLICATIONS_FAULT_BYTES (EXCHANGE_TEXT_BYTES + 128)
/* It has to say within so long that it is open. */
#define APPLICATIONS_START_US 5000000U
/* Losses are told at most so often. */
#define APPLICATIONS_LOSS_US 10000U

enum application_state {
    APPLICATION_STARTING, /* its process has not said yet that it is open */
    APPLICATION_ON,
    APPLICATION_OFF,   /* runs, and is asked nothing */
    APPLICATION_FAILED /* taken out; `fault` says why */
};

/* A file, and the process that runs it. */
struct application_source {
    char file[PATH_MAX], argument[EXCHANGE_TEXT_BYTES];
    uint64_t limit_us;
    struct process process;
    uint64_t started_us;
};

struct application {
    char name[EXCHANGE_NAME_BYTES];
    enum application_state state;
    struct application_source source, next; /* next: it takes the place of source when it is open */
    bool replacing;
    unsigned events;
    uint64_t period_us, timer_last_us, timer_next_us;
    struct guard guard;
    struct itm_counters counters;
    uint64_t replacements, failures, longest_us; /* longest_us: the tunnel waited for an answer */
    char fault[APPLICATIONS_FAULT_BYTES];
};

/* Packets in the shared memory, up to EXCHANGE_PACKETS, by slot. */
struct applications_batch {
    uint32_t count;
    size_t bytes[EXCHANGE_PACKETS]; /* of the packet, without the device's header */
    struct offload offloads[EXCHANGE_PACKETS];
    struct itm_action actions[EXCHANGE_PACKETS];
};

struct applications {
    struct application all[APPLICATIONS_MAX];
    size_t count;
    int arena; /* -1 until the first is loaded */
    uint8_t *packets;
    struct itm_inputs inputs; /* kept right by the end */
    struct applications_batch batch;
    struct pacer pacer;
    uint64_t lost_packets, lost_told_us;
    struct exchange_request request;
    struct exchange_answer answer;
};

void applications_init(struct applications *applications);
void applications_close(struct applications *applications);
/* Starts a file under a name, with state STARTING: 0, -EEXIST, -ENOSPC, -EINVAL for a name, file, argument or limit
 * that cannot be, or what starting a process failed with. limit_us 0: GUARD_LIMIT_US. */
int applications_load(struct applications *applications, const char *name, const char *file, const char *argument,
                      uint64_t limit_us, uint64_t now_us);
/* The same for one that there is: it goes on until the new one is open; without that it stays. -ENOENT: no such name;
 * -EALREADY: a replacement is on its way. One that failed is started anew like this. */
int applications_replace(struct applications *applications, const char *name, const char *file, const char *argument,
                         uint64_t limit_us, uint64_t now_us);
/* New parameters: 0, -ENOENT, -ENOTCONN when it does not run, or -EINVAL with a sentence in its fault. */
int applications_configure(struct applications *applications, const char *name, const char *argument);
/* 0, -ENOENT, or -ENOTCONN when it does not run. */
int applications_switch(struct applications *applications, const char *name, bool on, uint64_t now_us);
/* 0 or -ENOENT. */
int applications_unload(struct applications *applications, const char *name);
/* NULL when there is none of that name. */
struct application *applications_find(struct applications *applications, const char *name);
/* Waits until none starts any more: 0, or -ECANCELED when one failed, with the sentence in its fault. */
int applications_await(struct applications *applications);

/* Whether any application wants packets of this kind now: then they are read into applications_slot and put. */
bool applications_want(const struct applications *applications, enum itm_event_kind kind);
/* Where the next packet of the batch goes, OFFLOAD_DEVICE_BYTES before it for the device's header; EXCHANGE_SLOT_BYTES
 * less EXCHANGE_SLOT_PACKET are there. The batch must not be full. */
uint8_t *applications_slot(struct applications *applications, uint32_t slot);
/* The packet in the next slot belongs to the batch. */
void applications_put(struct applications *applications, size_t bytes, const struct offload *offload);
/* Asks about the batch: actions are its verdicts. What was marked is marked; what is paced waits, and counts as TAKE.
 */
void applications_decide(struct applications *applications, enum itm_event_kind kind, uint64_t now_us);
/* Events without a packet. */
void applications_feedback(struct applications *applications, uint64_t now_us);
/* Losses are gathered and told with the next tick. */
void applications_lost(struct applications *applications, uint64_t packets);
/* Starts, timers, losses, paced packets. Returns when it wants to be called again at the latest. */
uint64_t applications_tick(struct applications *applications, uint64_t now_us, pacer_go *go, void *context);

#endif
