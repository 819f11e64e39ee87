/* Asking for a rate and learning it: the socket options of the program `signal` (dataplane/bpf/signal_socket.h). */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "chart.h"
#include "clock.h"
#include "signal_socket.h"

const char *chart_ask_complaint(const struct chart_ask *ask) {
    if (!ask)
        return "there is no ask";
    if (!ask->guaranteed_bps && !ask->available_bps)
        return "guaranteed_bps or available_bps must be above 0 (chart_withdraw asks for nothing)";
    if (ask->guaranteed_bps == CHART_ALL)
        return "guaranteed_bps must be a number; only available_bps may be as much as there is";
    if (ask->burst_tolerance > CHART_BURST_TOLERANCE_MAX)
        return "burst_tolerance is 0 to 15";
    if ((unsigned)ask->service > CHART_SERVICE_VARIABLE)
        return "service is available, guaranteed, maximum or variable";
    return NULL;
}

static int set_request(int fd, const struct chart_socket_request *request) {
    return setsockopt(fd, CHART_SOL_SIGNAL, CHART_SO_REQUEST, request, sizeof(*request)) ? -errno : 0;
}

int chart_request(int fd, const struct chart_ask *ask) {
    struct chart_socket_request request = {0};
    if (chart_ask_complaint(ask))
        return -EINVAL;
    request.guaranteed_bps = ask->guaranteed_bps;
    request.available_bps = ask->available_bps;
    request.preemption_priority = ask->preemption_priority;
    request.delay_priority = ask->delay_priority;
    request.burst_tolerance = ask->burst_tolerance;
    request.service = (__u8)ask->service;
    return set_request(fd, &request);
}

int chart_withdraw(int fd) {
    const struct chart_socket_request nothing = {0};
    return set_request(fd, &nothing);
}

int chart_get_rate(int fd, struct chart_rate *ret) {
    struct chart_socket_rate told;
    socklen_t size = sizeof(told);
    if (getsockopt(fd, CHART_SOL_SIGNAL, CHART_SO_RATE, &told, &size))
        return -errno;
    if (size != sizeof(told))
        return -EPROTO;
    *ret = (struct chart_rate){
        .guaranteed_bps = told.guaranteed_bps,
        .available_bps = told.available_bps,
        .expires_ns = told.expires_ns,
        .state = (enum chart_state)told.state,
        .changes = told.changes,
    };
    if (told.state == CHART_SOCKET_AGREED && chart_now_ns() < told.expires_ns)
        ret->bps = told.guaranteed_bps + told.available_bps;
    return 0;
}

const char *chart_error_text(int error) {
    switch (error) {
    case 0:
        return "no error";
    case -ENOPROTOOPT:
    case -EOPNOTSUPP:
        return "no CHART agent serves this process: it must run in the cgroup of a chart-agent with --signal-file or "
               "an authority (`chart run -- COMMAND` does that)";
    case -EINVAL:
        return "the ask is not one the network understands: rates above 0, burst tolerance 0 to 15, a known service";
    case -EPROTO:
        return "the agent is of another version than this library";
    default:
        return strerror(-error);
    }
}

const char *chart_state_name(enum chart_state state) {
    static const char *const names[] = {"none", "asked", "agreed", "refused", "legacy"};
    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}
