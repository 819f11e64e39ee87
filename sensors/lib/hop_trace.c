/* Finding the hops of a path; see hop_trace.h. */
#include "hop_trace.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "pacing.h"

#define NS_PER_MS 1000000.0
/* Hops that may be probed beyond the last one that answered; then the answers are awaited. */
#define AHEAD 8u

struct tracer {
    struct hop_socket *hop;
    const struct hop_trace_settings *settings;
    struct hop_trace *trace;
    unsigned destination_ttl; /* 0: not known yet */
    unsigned last_ttl;        /* highest that answered */
    unsigned waiting;         /* probes without an answer that may still come */
    int64_t deadline_ns;
    int64_t sent_ns[HOP_TTL_MAX * HOP_QUERIES_MAX + 1]; /* by tag; 0: not sent or answered */
};

void hop_trace_declare(const struct hop_trace_settings *settings, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    double round_ms = settings->max_hops * settings->interval_ms + settings->timeout_ms;

    *ret_bytes = (uint64_t)settings->max_hops * settings->queries * settings->packet_bytes;
    /* The first round waits once more before it gives up. */
    *ret_duration_ms = (uint64_t)ceil(settings->queries * round_ms + settings->timeout_ms);
}

static unsigned ttl_of(uint16_t tag) {
    return (tag - 1u) % HOP_TTL_MAX + 1;
}

static void take(struct tracer *tracer, const struct hop_reply *reply, int64_t at_ns) {
    unsigned ttl = ttl_of(reply->tag);
    struct hop *hop = &tracer->trace->hops[ttl - 1];

    if (reply->tag >= sizeof(tracer->sent_ns) / sizeof(tracer->sent_ns[0]) || tracer->sent_ns[reply->tag] == 0)
        return;
    if (hop->answered < HOP_QUERIES_MAX)
        hop->rtts_us[hop->answered++] = fmax(0, (double)(at_ns - tracer->sent_ns[reply->tag]) / 1e3);
    tracer->sent_ns[reply->tag] = 0;
    tracer->waiting--;
    if (hop->address.s_addr && hop->address.s_addr != reply->address.s_addr)
        hop->several = true;
    else
        hop->address = reply->address;
    if (ttl > tracer->last_ttl)
        tracer->last_ttl = ttl;
    if (reply->answer == HOP_EXPIRED)
        return;
    if (reply->answer == HOP_REACHED)
        tracer->trace->reached = true;
    else
        tracer->trace->unreachable = reply->code;
    if (tracer->destination_ttl == 0 || ttl < tracer->destination_ttl)
        tracer->destination_ttl = ttl;
}

/* Take answers until the moment, or until none is awaited any more. */
static void listen_until(struct tracer *tracer, int64_t until_ns, bool only_while_waiting) {
    struct hop_reply reply;
    int64_t at_ns;

    if (until_ns > tracer->deadline_ns)
        until_ns = tracer->deadline_ns;
    while ((!only_while_waiting || tracer->waiting) && hop_socket_receive(tracer->hop, until_ns, &reply, &at_ns))
        take(tracer, &reply, at_ns);
}

static void await_answers(struct tracer *tracer) {
    listen_until(tracer, pacing_now_ns() + (int64_t)(tracer->settings->timeout_ms * NS_PER_MS), true);
    tracer->waiting = 0;
}

static int send_round(struct tracer *tracer, unsigned query) {
    for (unsigned ttl = 1; ttl <= tracer->settings->max_hops; ttl++) {
        uint16_t tag = (uint16_t)(query * HOP_TTL_MAX + ttl);
        int64_t next_ns = pacing_now_ns() + (int64_t)(tracer->settings->interval_ms * NS_PER_MS);
        int64_t sent_ns;

        if (ttl > tracer->last_ttl + AHEAD && !tracer->destination_ttl)
            await_answers(tracer);
        if (tracer->destination_ttl ? ttl > tracer->destination_ttl : ttl > tracer->last_ttl + AHEAD)
            break;
        if (pacing_now_ns() >= tracer->deadline_ns)
            break;
        sent_ns = hop_socket_send(tracer->hop, (uint8_t)ttl, tag, tracer->settings->packet_bytes);
        if (sent_ns < 0 && sent_ns != -EAGAIN && sent_ns != -ENOBUFS)
            return (int)sent_ns;
        tracer->trace->hops[ttl - 1].sent++;
        if (sent_ns > 0) {
            tracer->sent_ns[tag] = sent_ns;
            tracer->waiting++;
        }
        listen_until(tracer, next_ns, false);
    }
    await_answers(tracer);
    return 0;
}

int hop_trace_run(struct hop_socket *hop, const struct hop_trace_settings *settings, struct hop_trace *ret_trace) {
    struct tracer tracer = {.hop = hop, .settings = settings, .trace = ret_trace};
    uint64_t bytes, duration_ms;
    int error = 0;

    memset(ret_trace, 0, sizeof(*ret_trace));
    ret_trace->unreachable = -1;
    hop_trace_declare(settings, &bytes, &duration_ms);
    tracer.deadline_ns = pacing_now_ns() + (int64_t)((double)duration_ms * NS_PER_MS);
    for (unsigned query = 0; query < settings->queries && error == 0; query++) {
        error = send_round(&tracer, query);
        /* A second round finds what the first one lost; nobody at all stays silent three times. */
        if (tracer.last_ttl == 0 && query == 1)
            break;
    }
    ret_trace->count = tracer.destination_ttl ? tracer.destination_ttl : tracer.last_ttl;
    return error;
}
