/* The destination: frames from any connection through the resequencing buffer to the TUN device, and a report per
 * measurement period back to the origin (Guirguis et al., section 2.2, "Monitor"). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "application_control.h"
#include "applications.h"
#include "control.h"
#include "ends.h"
#include "exporter.h"
#include "inlets.h"
#include "lib/notify/notify.h"
#include "loop.h"
#include "privileges.h"
#include "resequencer.h"
#include "state.h"
#include "tun.h"

#define SHORTEST_PERIOD_US 10000U

struct destination {
    const struct options *options;
    int epoll, tun;
    uint64_t now_us, started_us;
    struct control control;
    struct exporter *exporter;
    struct tls *tls;
    struct inlets inlets;
    struct applications applications; /* that look at packets before they leave */
    uint64_t lost_told_packets;
    struct resequencer resequencer;
    uint64_t period_us, period_start_us;
    uint64_t bytes_before, packets_before; /* counted when the period, the session began */
    uint64_t bytes_session, delivered_before, late_before, skipped_before;
    uint64_t expire_at_us;
    struct report report;
    uint64_t device_failures;
};

static void add_state(void *context, cJSON *answer) {
    const struct destination *destination = context;
    const struct resequencer *resequencer = &destination->resequencer;
    const struct inlets_counters *counted = &destination->inlets.counters;
    cJSON_AddStringToObject(answer, "role", "destination");
    cJSON_AddStringToObject(answer, "tun", destination->options->tun);
    cJSON_AddStringToObject(answer, "listen", destination->options->endpoint_text);
    cJSON_AddBoolToObject(answer, "tls", destination->tls != NULL);
    state_add(answer, "uptime_us", loop_now_us() - destination->started_us);
    state_add(answer, "period_us", destination->period_us);
    cJSON *counters = cJSON_AddObjectToObject(answer, "counters");
    state_add(counters, "received_bytes", counted->received_bytes);
    state_add(counters, "received_packets", counted->received_packets);
    state_add(counters, "delivered_packets", resequencer->delivered);
    state_add(counters, "late_packets", resequencer->late);
    state_add(counters, "skipped_packets", resequencer->skipped);
    state_add(counters, "duplicate_packets", resequencer->duplicates);
    state_add(counters, "device_failures", destination->device_failures);
    state_add(counters, "connections_accepted", counted->accepted);
    state_add(counters, "connections_refused", counted->refused);
    state_add(counters, "connections_broken", counted->broken);
    state_add(counters, "malformed_streams", counted->malformed);
    state_add(counters, "sessions", counted->sessions);
    cJSON *gauges = cJSON_AddObjectToObject(answer, "gauges");
    state_add(gauges, "connections_established", inlets_count(&destination->inlets));
    state_add(gauges, "held_packets", resequencer->held);
    application_add_state(answer, &destination->applications);
    cJSON_AddStringToObject(answer, "last_error", destination->inlets.last_error);
}

static const char *not_ready(void *context) {
    const struct destination *destination = context;
    return inlets_count(&destination->inlets) ? NULL : "no origin is connected";
}

static void answer(void *context, const cJSON *command, cJSON *answered, const char **ret_error) {
    if (control_names(command, "command", "get"))
        add_state(context, answered);
    else if (control_names(command, "command", "application"))
        application_answer(&((struct destination *)context)->applications, command, loop_now_us(), ret_error);
    else if (control_names(command, "command", "quit"))
        loop_end();
    else
        *ret_error = "command must be get, application or quit";
}

/* To the device, the device's header before the packet. */
static void put_out(struct destination *destination, const uint8_t *bytes, size_t count) {
    if (write(destination->tun, bytes, count) != (ssize_t)count)
        destination->device_failures++;
}

static void go_paced(void *context, const uint8_t *packet, size_t bytes, const struct offload *offload) {
    static uint8_t buffer[OFFLOAD_DEVICE_BYTES + FRAME_PAYLOAD_MAX];
    const struct offload nothing = {0};
    offload_write_device(offload ? offload : &nothing, buffer);
    memcpy(buffer + OFFLOAD_DEVICE_BYTES, packet, bytes);
    put_out(context, buffer, OFFLOAD_DEVICE_BYTES + bytes);
}

/* Asks applications about the packets that wait for it. There is no other path here: what is diverted goes on. */
static void let_out(struct destination *destination) {
    struct applications *applications = &destination->applications;
    struct applications_batch *batch = &applications->batch;
    if (!batch->count)
        return;
    applications_decide(applications, ITM_DEPARTURE, destination->now_us);
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->actions[i].verdict == ITM_PASS || batch->actions[i].verdict == ITM_DIVERT)
            put_out(destination, applications_slot(applications, i) - OFFLOAD_DEVICE_BYTES,
                    OFFLOAD_DEVICE_BYTES + batch->bytes[i]);
    batch->count = 0;
}

static void deliver(void *context, const uint8_t *packet, size_t bytes) {
    struct destination *destination = context;
    struct applications *applications = &destination->applications;
    struct offload offload;
    if (!applications->batch.count && !applications_want(applications, ITM_DEPARTURE)) {
        put_out(destination, packet, bytes);
        return;
    }
    if (applications->batch.count == EXCHANGE_PACKETS)
        let_out(destination);
    memcpy(applications_slot(applications, applications->batch.count) - OFFLOAD_DEVICE_BYTES, packet, bytes);
    offload_read_device(packet, &offload);
    applications_put(applications, bytes - OFFLOAD_DEVICE_BYTES, &offload);
}

static void take_packet(void *context, uint64_t sequence, const uint8_t *bytes, size_t count) {
    struct destination *destination = context;
    (void)resequencer_put(&destination->resequencer, sequence, bytes, count, destination->now_us);
}

static void begin_session(void *context, const struct hello *hello) {
    struct destination *destination = context;
    resequencer_restart(&destination->resequencer, hello->next_sequence);
    destination->period_us = hello->period_us > SHORTEST_PERIOD_US ? hello->period_us : SHORTEST_PERIOD_US;
    destination->period_start_us = destination->now_us;
    destination->bytes_before = destination->bytes_session = destination->inlets.counters.received_bytes;
    destination->packets_before = destination->inlets.counters.received_packets;
    destination->delivered_before = destination->resequencer.delivered;
    destination->late_before = destination->resequencer.late;
    destination->skipped_before = destination->resequencer.skipped;
    memset(&destination->report, 0, sizeof(destination->report));
}

static void end_period(struct destination *destination) {
    const struct inlets_counters *counted = &destination->inlets.counters;
    struct report *report = &destination->report;
    struct resequencer *resequencer = &destination->resequencer;
    report->number++;
    report->interval_us = (uint32_t)(destination->now_us - destination->period_start_us);
    report->received_bytes = counted->received_bytes - destination->bytes_before;
    report->received_bytes_total = counted->received_bytes - destination->bytes_session;
    report->received_packets_total = counted->received_packets - destination->packets_before;
    report->delivered_packets_total = resequencer->delivered - destination->delivered_before;
    report->late_packets_total = resequencer->late - destination->late_before;
    report->skipped_packets_total = resequencer->skipped - destination->skipped_before;
    report->held_packets_maximum = resequencer->held_maximum;
    report->connections = inlets_count(&destination->inlets);
    inlets_send_report(&destination->inlets, report);
    destination->bytes_before = counted->received_bytes;
    destination->period_start_us = destination->now_us;
    resequencer->held_maximum = resequencer->held;
}

static uint64_t next_time_us(struct destination *destination) {
    uint64_t next_us = resequencer_tick(&destination->resequencer, destination->now_us);
    let_out(destination);
    if (destination->resequencer.skipped > destination->lost_told_packets)
        applications_lost(&destination->applications,
                          destination->resequencer.skipped - destination->lost_told_packets);
    destination->lost_told_packets = destination->resequencer.skipped;
    uint64_t tick_us = applications_tick(&destination->applications, destination->now_us, go_paced, destination);
    next_us = tick_us < next_us ? tick_us : next_us;
    if (destination->inlets.has_session) {
        if (destination->now_us - destination->period_start_us >= destination->period_us)
            end_period(destination);
        uint64_t end_us = destination->period_start_us + destination->period_us;
        next_us = end_us < next_us ? end_us : next_us;
    }
    if (destination->now_us >= destination->expire_at_us) {
        inlets_expire(&destination->inlets, destination->now_us);
        destination->expire_at_us = destination->now_us + INLET_HELLO_TIMEOUT_US / 5;
    }
    return next_us;
}

static void serve(struct destination *destination, const struct epoll_event *event) {
    static uint8_t discarded[OFFLOAD_DEVICE_BYTES + FRAME_PAYLOAD_MAX];
    uint64_t data = event->data.u64;
    if (TAG_OF(data) == TAG_CONNECTION)
        inlets_event(&destination->inlets, INDEX_OF(data), destination->now_us);
    else if (TAG_OF(data) == TAG_LISTENER)
        inlets_accept(&destination->inlets, destination->now_us);
    else if (TAG_OF(data) == TAG_TUN)
        /* This end only puts out: what the kernel routes here has no way back. */
        (void)!read(destination->tun, discarded, sizeof(discarded));
    else if (TAG_OF(data) == TAG_EXPORTER)
        exporter_run(destination->exporter);
    else
        (void)loop_control(destination->epoll, &destination->control, data);
}

static int run(struct destination *destination) {
    struct epoll_event events[LOOP_EVENTS];
    notify_ready();
    while (!loop_ended()) {
        destination->now_us = loop_now_us();
        uint64_t next_us = next_time_us(destination);
        int count = epoll_wait(destination->epoll, events, LOOP_EVENTS, loop_timeout_ms(next_us, destination->now_us));
        if (count < 0 && errno != EINTR) {
            perror("chart-tunnel: epoll_wait");
            return 1;
        }
        destination->now_us = loop_now_us();
        notify_alive_at(destination->now_us);
        for (int i = 0; i < count; i++)
            serve(destination, &events[i]);
    }
    return 0;
}

static int start(struct destination *destination) {
    const struct options *options = destination->options;
    const struct inlets_handler handler = {begin_session, take_packet, destination};
    const struct exporter_source source = {add_state, not_ready, destination};
    char fault[TLS_FAULT_BYTES];
    if (options->tls.certificate && tls_open(&options->tls, true, &destination->tls, fault) < 0) {
        fprintf(stderr, "chart-tunnel: %s\n", fault);
        return -EINVAL;
    }
    destination->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (destination->epoll < 0)
        return -errno;
    int error = resequencer_init(&destination->resequencer, options->resequence_packets, options->resequence_us,
                                 deliver, destination);
    if (!error)
        error = inlets_open(&destination->inlets, options, destination->tls, destination->epoll, TAG_LISTENER,
                            TAG_CONNECTION, &handler);
    if (!error)
        error = control_open(&destination->control, options->control, answer, destination);
    if (!error)
        error = loop_watch(destination->epoll, destination->control.listener, EPOLLIN, TAG_CONTROL);
    if (!error && options->metrics)
        error = exporter_open(options, &source, destination->epoll, &destination->exporter);
    if (error)
        return error;
    destination->tun = tun_open(options->tun, options->mtu_bytes, options->offload);
    error =
        destination->tun < 0 ? destination->tun : loop_watch(destination->epoll, destination->tun, EPOLLIN, TAG_TUN);
    if (!error)
        error = privileges_drop(options->user, false);
    if (!error)
        error = privileges_become(options->user, false);
    return error ? error : application_load_options(&destination->applications, options, loop_now_us());
}

int destination_run(const struct options *options) {
    struct destination *destination = calloc(1, sizeof(*destination));
    if (!destination)
        return 1;
    destination->options = options;
    destination->epoll = destination->tun = destination->inlets.listener = -1;
    control_init(&destination->control);
    destination->started_us = loop_now_us();
    applications_init(&destination->applications);
    int error = start(destination);
    if (error < 0)
        fprintf(stderr, "chart-tunnel: the destination cannot start: %s\n", strerror(-error));
    int status = error < 0 ? 1 : run(destination);
    exporter_close(destination->exporter);
    control_close(&destination->control);
    inlets_close(&destination->inlets);
    tls_close(destination->tls);
    resequencer_free(&destination->resequencer);
    applications_close(&destination->applications);
    if (destination->tun >= 0)
        close(destination->tun);
    if (destination->epoll >= 0)
        close(destination->epoll);
    free(destination);
    return status;
}
