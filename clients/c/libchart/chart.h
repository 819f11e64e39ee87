/* libchart: ask the network for an explicit rate for a socket, learn what it agreed to, and keep to it.
 *
 * TCP, fast start: ask before connect(). The request rides ahead of the SYN and the connection begins at its rate; the
 * kernel paces it, nothing else is to be done.
 *
 *     int fd = socket(AF_INET, SOCK_STREAM, 0);
 *     struct chart_ask ask = {.available_bps = CHART_ALL};
 *     int error = chart_request(fd, &ask);
 *     if (error)
 *         fprintf(stderr, "no rate: %s\n", chart_error_text(error));   // and go on: it is ordinary TCP then
 *     connect(fd, ...);
 *
 * UDP: connect the socket, ask, and send with chart_paced_send(), which waits until the rate allows the next datagram.
 * Rates change while a flow runs: poll chart_watch_fd(), or give chart_paced_open() a callback.
 *
 * Rates are bits per second with IP headers counted; times are nanoseconds of CLOCK_MONOTONIC. Functions return 0 or a
 * negative errno, and leave what `ret` points to untouched on error. They may be called from any thread; one watch or
 * one paced flow belongs to one thread at a time. Brassil et al., The CHART System, sections 2 and 5. */
#ifndef CHART_H
#define CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As much as the path may give. */
#define CHART_ALL UINT64_MAX
#define CHART_BURST_TOLERANCE_MAX 15

enum chart_service_class {
    CHART_SERVICE_AVAILABLE = 0,
    CHART_SERVICE_GUARANTEED = 1,
    CHART_SERVICE_MAXIMUM = 2,
    CHART_SERVICE_VARIABLE = 3,
};

struct chart_ask {
    uint64_t guaranteed_bps;
    uint64_t available_bps;
    uint8_t preemption_priority; /* 255 the highest; bounded by what the sender is authorised for */
    uint8_t delay_priority;
    uint8_t burst_tolerance; /* n: bursts of (n + 1) / 4 round trips */
    enum chart_service_class service;
};

enum chart_state {
    CHART_STATE_NONE = 0,    /* nothing was asked */
    CHART_STATE_ASKED = 1,   /* no answer yet */
    CHART_STATE_AGREED = 2,  /* a rate, until it expires */
    CHART_STATE_REFUSED = 3, /* the path cannot give what was asked; it is asked again later */
    CHART_STATE_LEGACY = 4,  /* no answer: the path has no CHART; it is asked again later */
};

struct chart_rate {
    uint64_t bps; /* what may be sent now: the sum of the two while they hold, else 0 */
    uint64_t guaranteed_bps;
    uint64_t available_bps;
    uint64_t expires_ns; /* moves with every renewal, about once a second */
    enum chart_state state;
    uint32_t changes; /* counts changes of the two rates */
};

/* Ask for a rate for this socket, TCP or UDP, connected or not; asking again changes what is asked.
 * -EINVAL: the ask is wrong (chart_ask_complaint says how). -ENOPROTOOPT, -EOPNOTSUPP: no agent serves this process. */
int chart_request(int fd, const struct chart_ask *ask);
/* Ask for nothing any more; the path gives up the rate with the next packet. */
int chart_withdraw(int fd);
/* What the path agreed to. A UDP socket must be connected for it. */
int chart_get_rate(int fd, struct chart_rate *ret);

/* What is wrong with an ask, in words; NULL: nothing. */
const char *chart_ask_complaint(const struct chart_ask *ask);
/* A sentence for a negative errno of this library. */
const char *chart_error_text(int error);
/* "none", "asked", "agreed", "refused", "legacy". */
const char *chart_state_name(enum chart_state state);

/* Changes of a socket's rate as events. The descriptor becomes readable every 10 ms, so it costs a look in each. */
struct chart_watch;
int chart_watch_open(int fd, struct chart_watch **ret);
void chart_watch_close(struct chart_watch *watch);
int chart_watch_fd(const struct chart_watch *watch);
/* Call when the descriptor is readable. 1: the rate or its state is another than at the last event, also when a rate
 * ended without renewal; 0: it is not. */
int chart_watch_next(struct chart_watch *watch, struct chart_rate *ret);

/* Sending datagrams at the rate. Without a rate (not answered yet, refused, ended, no agent) at fallback_bps. */
struct chart_paced;
struct chart_paced_options {
    uint64_t fallback_bps; /* must be above 0: requests ride on datagrams, and a silent flow would never get a rate */
    void (*changed)(void *context, const struct chart_rate *rate); /* called from within the functions below */
    void *context;
};
/* The socket must be connected; it stays the caller's. -EINVAL: fallback_bps is 0. -ENOTCONN. */
int chart_paced_open(int fd, const struct chart_paced_options *options, struct chart_paced **ret);
void chart_paced_close(struct chart_paced *paced);
/* For an event loop: 0: a datagram may go now; otherwise how many nanoseconds to wait, at most 10 ms (then ask again:
 * the rate may have changed). */
uint64_t chart_paced_wait_ns(struct chart_paced *paced);
/* Waits for its turn, then send(). Returns what was sent or a negative errno; -EINTR when a signal came while waiting.
 */
int64_t chart_paced_send(struct chart_paced *paced, const void *data, size_t length, int flags);
/* The rate as it was seen last. */
struct chart_rate chart_paced_rate(const struct chart_paced *paced);

#ifdef __cplusplus
}
#endif

#endif
