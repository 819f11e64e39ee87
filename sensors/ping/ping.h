/* ping: round-trip time, jitter and loss by ICMP echo, or by UDP echo to a sensor-responder (CHART System, section 6).
 * One run is a state machine, so that a process serves several at once. */
#ifndef CHART_SENSORS_PING_H
#define CHART_SENSORS_PING_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "keyring.h"
#include "options.h"
#include "record.h"

#define PING_COUNT_MAX 10000

struct ping_parameters {
    struct common_parameters common;
    char protocol[OPTION_TEXT_BYTES]; /* "icmp" or "udp" */
    uint64_t count;
    double interval_ms;
    double timeout_ms;
    uint64_t packet_bytes; /* whole IP packet */
};

extern const struct option_table PING_OPTIONS;
void ping_defaults(struct ping_parameters *parameters);
/* What options cannot say one by one; -1 and `usage` otherwise. */
int ping_check(const struct ping_parameters *parameters, struct failure *failure);
/* Most bytes and time that a run takes. */
void ping_declare(const struct ping_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms);

struct ping_run;

/* Start a run; `keyring` may be NULL for ICMP and must outlive the run. NULL and a failure when it cannot start. */
struct ping_run *ping_run_start(const struct ping_parameters *parameters, const struct keyring *keyring,
                                struct failure *failure);
void ping_run_free(struct ping_run *run);
int ping_run_descriptor(const struct ping_run *run);
/* CLOCK_MONOTONIC ns at which ping_run_advance() must be called next. */
int64_t ping_run_due_ns(const struct ping_run *run);
/* Send what is due, give up what is overdue. */
void ping_run_advance(struct ping_run *run);
/* Take what the socket holds. */
void ping_run_receive(struct ping_run *run);
bool ping_run_finished(const struct ping_run *run);
/* Summary of a finished run: fills metrics and counts; -1 and a failure when no reply came. */
int ping_run_summary(const struct ping_run *run, struct record *record, struct failure *failure);
/* Round-trip time of probe `index` in us, negative when it was lost. */
double ping_run_rtt_us(const struct ping_run *run, uint64_t index);

#endif
