/* The process of one application, see host.h. */
#define _GNU_SOURCE
#include "host.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "exchange.h"
#include "lib/caps/caps.h"
#include "loader.h"

static struct itm_application application;
static const uint8_t *arena;

static int answer(const struct exchange_answer *answered) {
    ssize_t sent = send(EXCHANGE_SOCKET, answered, sizeof(*answered), MSG_NOSIGNAL);
    return sent == (ssize_t)sizeof(*answered) ? 0 : -EPIPE;
}

/* What an application without bounds could do to the machine; and it ends when whoever started it does. */
static int confine(void) {
    const struct rlimit none = {0, 0};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || setrlimit(RLIMIT_CORE, &none))
        return -errno;
#ifndef __SANITIZE_ADDRESS__ /* the sanitizer maps far more than any program uses */
    const struct rlimit memory = {HOST_MEMORY_BYTES, HOST_MEMORY_BYTES};
    if (setrlimit(RLIMIT_AS, &memory))
        return -errno;
#endif
    return caps_drop(NULL, 0);
}

static int open_application(const char *file, const char *argument, struct exchange_answer *ret) {
    int error = loader_load(file, argument, &application, ret->sentence);
    if (error)
        return error;
    ret->kind = EXCHANGE_READY;
    ret->events = application.events;
    ret->period_us = application.period_us;
    snprintf(ret->name, sizeof(ret->name), "%s", application.name);
    return 0;
}

static void handle_event(const struct exchange_request *request, struct exchange_answer *ret) {
    struct itm_event event = {
        .kind = request->event,
        .now_us = request->now_us,
        .elapsed_us = request->elapsed_us,
        .lost_packets = request->lost_packets,
        .inputs = &request->inputs,
    };
    ret->kind = EXCHANGE_DONE;
    ret->count = request->count;
    if (!request->count)
        itm_inform(&application, &event);
    for (uint32_t i = 0; i < request->count; i++) {
        const struct exchange_packet *packet = &request->packets[i];
        event.packet = arena + (size_t)packet->slot * EXCHANGE_SLOT_BYTES + EXCHANGE_SLOT_PACKET;
        event.packet_bytes = packet->bytes;
        event.offload = offload_none(&packet->offload) ? NULL : &packet->offload;
        (void)itm_ask(&application, &event, &ret->actions[i]);
    }
}

static void handle_configure(const char *argument, struct exchange_answer *ret) {
    int error = application.configure ? application.configure(application.state, argument) : -EOPNOTSUPP;
    ret->kind = error ? EXCHANGE_REFUSED : EXCHANGE_DONE;
    if (error == -EOPNOTSUPP)
        snprintf(ret->sentence, sizeof(ret->sentence), "it takes no parameters while it runs: replace it");
    else if (error)
        snprintf(ret->sentence, sizeof(ret->sentence), "it refuses the argument: %s", strerror(-error));
}

int host_run(const char *file, const char *argument) {
    static struct exchange_request request;
    static struct exchange_answer answered;
    answered.kind = EXCHANGE_REFUSED;
    int error = confine();
    if (error)
        snprintf(answered.sentence, sizeof(answered.sentence), "its process cannot be confined: %s", strerror(-error));
    arena = error ? MAP_FAILED : mmap(NULL, EXCHANGE_ARENA_BYTES, PROT_READ, MAP_SHARED, EXCHANGE_ARENA, 0);
    if (!error && arena == MAP_FAILED)
        snprintf(answered.sentence, sizeof(answered.sentence), "no memory for packets: %s", strerror(errno));
    if (arena == MAP_FAILED || open_application(file, argument, &answered) < 0) {
        (void)answer(&answered);
        return 1;
    }
    while (answer(&answered) == 0 && recv(EXCHANGE_SOCKET, &request, sizeof(request), 0) > 0) {
        memset(&answered, 0, sizeof(answered));
        answered.number = request.number;
        if (request.kind == EXCHANGE_CONFIGURE)
            handle_configure(request.argument, &answered);
        else
            handle_event(&request, &answered);
    }
    return 0;
}
