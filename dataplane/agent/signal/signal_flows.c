/* See signal_flows.h. */
#include "signal/signal_flows.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "qos.h"
#include "signal/signal_keys.h"
#include "signal_socket.h"

/* Entries looked at; more of them would hold the agent up for milliseconds. */
#define ENTRIES_MAX 2048
#define NS_PER_MS 1000000ull

static const char *const state_names[] = {
    [CHART_SOCKET_NONE] = "none",       [CHART_SOCKET_ASKED] = "asked",   [CHART_SOCKET_AGREED] = "agreed",
    [CHART_SOCKET_REFUSED] = "refused", [CHART_SOCKET_LEGACY] = "legacy",
};

static void write_end(const uint64_t *address, uint16_t port, char *ret, size_t size) {
    struct in6_addr in6;
    char text[INET6_ADDRSTRLEN] = "";
    bool ipv4;

    memcpy(&in6, address, sizeof(in6));
    ipv4 = IN6_IS_ADDR_V4MAPPED(&in6);
    if (ipv4)
        inet_ntop(AF_INET, &in6.s6_addr[12], text, sizeof(text));
    else
        inet_ntop(AF_INET6, &in6, text, sizeof(text));
    snprintf(ret, size, ipv4 ? "%s:%u" : "[%s]:%u", text, ntohs(port));
}

static uint16_t element_towards(const struct signal_tables *tables, const uint64_t *address) {
    struct chart_signal_prefix key = {.bits = 128};
    struct chart_signal_hop hop;

    memcpy(key.address, address, sizeof(key.address));
    return bpf_map_lookup_elem(tables->fds.next_hops, &key, &hop) ? 0 : hop.element;
}

static const char *state_of(const struct chart_signal_half *half, uint64_t now_ns) {
    if (half->role != CHART_ROLE_ORIGIN && half->slot > now_ns / CHART_SLOT_NS)
        return "kept";
    if (half->role != CHART_ROLE_ORIGIN)
        return half->role == CHART_ROLE_LAST ? "answered" : "idle";
    if (half->state == CHART_SOCKET_AGREED && half->expires_ns <= now_ns)
        return "expired";
    return half->state < sizeof(state_names) / sizeof(state_names[0]) ? state_names[half->state] : "unknown";
}

static uint64_t rate_of(const struct chart_qos *qos) {
    return chart_rate_decode(qos->guaranteed_rate) + chart_rate_decode(qos->available_rate);
}

static void describe(const struct signal_tables *tables, const struct chart_signal_key *key,
                     const struct chart_signal_half *half, bool high_sends, uint64_t now_ns, struct signal_flow *ret) {
    const uint64_t *source = high_sends ? (const uint64_t *)key->high : (const uint64_t *)key->low;
    const uint64_t *destination = high_sends ? (const uint64_t *)key->low : (const uint64_t *)key->high;
    bool origin = half->role == CHART_ROLE_ORIGIN, last = half->role == CHART_ROLE_LAST;
    uint32_t sequence;

    *ret = (struct signal_flow){
        .protocol = key->protocol,
        .role = origin ? "origin" : (last ? "last" : "transit"),
        .state = state_of(half, now_ns),
        .carrier = half->carrier == CHART_CARRIER_SHIM ? "shim" : "option",
        .element = element_towards(tables, last ? source : destination),
        .kept_bps = half->slot > now_ns / CHART_SLOT_NS ? half->held_bps : 0,
        .agreed_bps = rate_of(origin ? &half->agreed : &half->asked),
        .age_ms = half->last_ns < now_ns ? (uint32_t)((now_ns - half->last_ns) / NS_PER_MS) : 0,
        .lease_ms = origin && half->expires_ns > now_ns ? (uint32_t)((half->expires_ns - now_ns) / NS_PER_MS) : 0,
    };
    write_end(source, high_sends ? key->high_port : key->low_port, ret->source, sizeof(ret->source));
    write_end(destination, high_sends ? key->low_port : key->high_port, ret->destination, sizeof(ret->destination));
    if (ret->element && signal_tables_sequence(tables, ret->element, &ret->key_epoch, &sequence))
        ret->key_epoch = 0;
}

static bool lately(const struct signal_tables *tables, const struct chart_signal_half *half, uint64_t now_ns) {
    if (half->role == CHART_ROLE_NONE || !half->last_ns)
        return false;
    if (half->role == CHART_ROLE_ORIGIN && half->state == CHART_SOCKET_NONE)
        return false;
    /* A signal may have come since the time was looked at. */
    return half->last_ns >= now_ns || now_ns - half->last_ns < tables->config.idle_ns;
}

size_t signal_tables_flows(const struct signal_tables *tables, struct signal_flow *ret, size_t max) {
    struct chart_signal_key key, next;
    struct chart_signal_flow flow;
    uint64_t now_ns = signal_monotonic_ns();
    size_t n = 0;
    bool begun = false;

    for (size_t seen = 0; seen < ENTRIES_MAX && n < max; seen++) {
        if (bpf_map_get_next_key(tables->fds.flows, begun ? &key : NULL, &next))
            break;
        key = next;
        begun = true;
        if (bpf_map_lookup_elem(tables->fds.flows, &key, &flow))
            continue;
        for (size_t i = 0; i < 2 && n < max; i++)
            if (lately(tables, &flow.halves[i], now_ns))
                describe(tables, &key, &flow.halves[i], i == 1, now_ns, &ret[n++]);
    }
    return n;
}
