/* The end that asks: which signal is due ahead of this packet, and what an answer changes (Brassil et al., The CHART
 * System, sections 2 and 4: request, response, confirm, renewals every 128 packets or every second). */
#pragma once

#include "signal_link.bpf.h"

#define NOTHING_DUE 0xff

/* Look at a flow anew: is there anything to ask for it? */
SIGNAL_FUNCTION int signal_judge(struct chart_signal_half *half, const struct signal_packet *packet,
                                 const struct chart_socket_request *request, __u64 now_ns) {
    const struct chart_signal_config *config = signal_configuration();
    struct chart_qos qos;
    __u16 rule;
    bool asks;

    if (!half || !packet || !config)
        return 0;
    half->generation = config->generation;
    if (half->role == CHART_ROLE_TRANSIT || half->role == CHART_ROLE_LAST)
        return 0;
    asks = signal_find_ask(packet, config, request, &qos, &rule) && signal_authorise(&qos, packet, now_ns);
    if (asks && config->mode == CHART_SIGNALLING_OBSERVE)
        signal_count(CHART_COUNT_WOULD_ASK);
    if (asks) {
        if (half->role != CHART_ROLE_ORIGIN) {
            half->state = CHART_SOCKET_NONE;
            half->next_ns = 0;
        }
        half->role = CHART_ROLE_ORIGIN;
        qos.lowered = 0;
        half->asked = qos;
        half->rule = rule;
    } else if (half->role == CHART_ROLE_ORIGIN && half->state != CHART_SOCKET_NONE) {
        half->closed = 1; /* withdrawn: say so with the next packet */
    } else {
        half->role = CHART_ROLE_NONE;
    }
    return 0;
}

static __always_inline void signal_asked(struct chart_signal_half *half, __u64 now_ns, __u64 wait_ns) {
    half->last_ns = now_ns;
    half->next_ns = now_ns + wait_ns;
    half->packets = 0;
}

/* The status of the signal that is due ahead of this packet, or NOTHING_DUE. The caller sends it. */
SIGNAL_FUNCTION int signal_due(struct chart_signal_half *half, __u32 tcp_flags, __u64 rtt_ns, __u64 now_ns) {
    const struct chart_signal_config *config = signal_configuration();
    __u64 wait_ns = rtt_ns + rtt_ns / 4;

    if (!half || !config)
        return NOTHING_DUE;
    if (wait_ns < config->retry_ns)
        wait_ns = config->retry_ns;
    if ((tcp_flags & TCP_SYN) && half->state != CHART_SOCKET_ASKED && now_ns >= half->next_ns) {
        /* A new connection, perhaps of ports that were used before. */
        half->state = CHART_SOCKET_NONE;
        half->closed = 0;
        half->expires_ns = 0;
    }
    if (half->state != CHART_SOCKET_NONE && (half->closed || (tcp_flags & (TCP_FIN | TCP_RST)))) {
        half->state = CHART_SOCKET_NONE;
        half->role = CHART_ROLE_NONE; /* until a SYN or a new request */
        half->expires_ns = 0;
        half->closed = 0;
        return CHART_CLOSE;
    }
    if (half->state == CHART_SOCKET_AGREED && now_ns < half->expires_ns) {
        if (half->confirm) {
            half->confirm = 0;
            return CHART_CONFIRM;
        }
        /* Every so many packets, every second, and again when the one before stayed without an answer. */
        if (half->packets < config->renew_packets && now_ns < half->last_ns + config->renew_ns &&
            (!half->tries || now_ns < half->next_ns))
            return NOTHING_DUE;
        half->tries = 1;
        signal_asked(half, now_ns, wait_ns);
        return CHART_RENEGOTIATE;
    }
    if (now_ns < half->next_ns)
        return NOTHING_DUE;
    if (half->state != CHART_SOCKET_ASKED) {
        half->tries = 0;
        half->state = CHART_SOCKET_ASKED;
    }
    if (half->tries >= config->tries) {
        half->state = CHART_SOCKET_LEGACY;
        signal_asked(half, now_ns, config->legacy_ns);
        return NOTHING_DUE;
    }
    half->tries++;
    signal_asked(half, now_ns, wait_ns);
    return CHART_REQUEST;
}

/* The carrier of a request: the option, or the shim when the option stayed without an answer `tries` / 2 times in a
 * row; once when the hop answered to none of the last `tries` options of whichever flows, so that short flows get to
 * the shim too. Signals that follow take the carrier that was answered. */
static __always_inline __u8 signal_choose_carrier(struct chart_signal_half *half, const struct chart_signal_hop *hop,
                                                  struct chart_signal_out *out, __u8 status,
                                                  const struct chart_signal_config *config, __u64 now_ns) {
    if (status != CHART_REQUEST || half->tries == 0)
        return half->carrier;
    bool silent = out->unanswered >= config->tries && half->tries > 1;
    if (hop->has_shim && (now_ns < out->shim_until_ns || silent || half->tries > config->tries / 2))
        half->carrier = CHART_CARRIER_SHIM;
    else
        half->carrier = CHART_CARRIER_OPTION;
    if (half->carrier == CHART_CARRIER_OPTION)
        __sync_fetch_and_add(&out->unanswered, 1);
    return half->carrier;
}

/* An answer came. True: the rate is to be told to the socket. */
static __always_inline bool signal_answered(struct chart_signal_half *half, const struct chart_qos *qos,
                                            const struct chart_signal_config *config, __u64 now_ns) {
    bool first = qos->status == CHART_RESPONSE;

    if (half->role != CHART_ROLE_ORIGIN || (half->state != CHART_SOCKET_ASKED && half->state != CHART_SOCKET_AGREED)) {
        signal_count(CHART_COUNT_UNEXPECTED);
        return false;
    }
    half->tries = 0;
    if (qos->status == CHART_REJECT) {
        half->state = CHART_SOCKET_REFUSED;
        /* By then flows of lower classes have renewed, and what was taken from them is free. */
        half->next_ns =
            now_ns + (CHART_CLASS_OF(half->asked.preemption_priority) ? 2 * config->renew_ns : config->legacy_ns);
        half->expires_ns = 0;
        half->changes++;
        signal_count(CHART_COUNT_REJECTED);
        return true;
    }
    if (half->state != CHART_SOCKET_AGREED || half->agreed.guaranteed_rate != qos->guaranteed_rate ||
        half->agreed.available_rate != qos->available_rate)
        half->changes++;
    /* What was offered is confirmed when it is new; a renewal of the same rate is its own confirm. */
    if (first || half->agreed.guaranteed_rate != qos->guaranteed_rate)
        half->confirm = 1;
    half->agreed = *qos;
    half->state = CHART_SOCKET_AGREED;
    half->expires_ns = now_ns + config->rate_ns;
    return true;
}
