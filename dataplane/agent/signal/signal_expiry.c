/* See signal_expiry.h. */
#include "signal/signal_expiry.h"

#include "signal_socket.h"

/* A user that a signal just found is written to within microseconds. */
#define USER_GRACE_SLOTS 2u

static bool half_over(const struct chart_signal_half *half, uint64_t now_ns, uint64_t grace_ns) {
    if (half->slot > now_ns / CHART_SLOT_NS)
        return false;
    if (half->role == CHART_ROLE_ORIGIN) {
        if (half->state == CHART_SOCKET_AGREED && half->expires_ns > now_ns)
            return false;
        if (half->state != CHART_SOCKET_NONE && half->next_ns > now_ns)
            return false;
    }
    return now_ns >= half->last_ns && now_ns - half->last_ns >= grace_ns;
}

bool signal_flow_over(const struct chart_signal_flow *flow, const struct chart_signal_config *config, uint64_t now_ns,
                      bool pressed) {
    uint64_t grace_ns = pressed ? config->commitment_ns : config->idle_ns;

    return half_over(&flow->halves[0], now_ns, grace_ns) && half_over(&flow->halves[1], now_ns, grace_ns);
}

bool signal_user_over(const struct chart_signal_user *user, uint64_t now_ns) {
    uint64_t slot = now_ns / CHART_SLOT_NS;

    /* A link lets a slot pass when it begins; slot 0: the entry is being made at this moment. */
    return user->slot && user->slot + USER_GRACE_SLOTS <= slot && user->counted <= slot;
}
