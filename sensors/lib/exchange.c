/* Sending trains and fetching arrival times; see exchange.h. */
#include "exchange.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "pacing.h"
#include "probe_socket.h"
#include "wire.h"

#define NS_PER_MS 1000000LL
#define HELLO_TRIES 4
/* More than the RTT that an answer may take: scheduling at the far end, queues that our own trains left. Grows from try
 * to try, because a slow path may hold a second of them. */
#define ANSWER_SLACK_NS (50 * NS_PER_MS)
#define ANSWER_SLACK_GROWTH 3

uint32_t exchange_largest_packet(const struct exchange *exchange) {
    return 1500 - (WIRE_IPV6_UDP_BYTES - WIRE_IPV4_UDP_BYTES) * (exchange->header_bytes == WIRE_IPV6_UDP_BYTES);
}

static size_t fetch_length(size_t packets) {
    return WIRE_HEADER_BYTES + packets * WIRE_TRAIN_ENTRY_BYTES;
}

uint64_t exchange_fetch_bytes(size_t packets) {
    return fetch_length(packets) + WIRE_IPV6_UDP_BYTES;
}

uint32_t exchange_smallest_packet(const struct exchange *exchange) {
    return WIRE_HEADER_BYTES + exchange->header_bytes;
}

uint32_t exchange_packet_bytes(const struct train_plan *plan, size_t index) {
    return plan->other_bytes[index] ? plan->other_bytes[index] : plan->packet_bytes;
}

uint64_t exchange_train_bytes(const struct train_plan *plan) {
    uint64_t bytes = 0;

    for (size_t k = 0; k < plan->packets; k++)
        bytes += exchange_packet_bytes(plan, k);
    return bytes;
}

/* Wait until something can be read or the moment has come; false in the latter case. */
static bool wait_readable(const struct exchange *exchange, int64_t deadline_ns) {
    struct pollfd poll_for = {.fd = exchange->descriptor, .events = POLLIN};
    int64_t left_ns = deadline_ns - pacing_now_ns();
    struct timespec timeout;

    if (left_ns <= 0)
        return false;
    timeout = (struct timespec){.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000};
    return ppoll(&poll_for, 1, &timeout, NULL) > 0;
}

static void discard_departures(struct exchange *exchange, int *network_error) {
    int64_t departure_ns;
    int error;

    while ((error = probe_socket_departure(exchange->descriptor, &departure_ns)) != -EAGAIN)
        if (error < 0)
            *network_error = -error;
}

/* Next authentic answer before the moment; false when there is none. */
static bool receive_answer(struct exchange *exchange, int64_t deadline_ns, uint8_t *bytes, struct wire_header *header,
                           int *network_error) {
    while (wait_readable(exchange, deadline_ns)) {
        struct probe_arrival arrival;
        int length = probe_socket_receive(exchange->descriptor, bytes, WIRE_DATAGRAM_MAX_BYTES, &arrival);

        if (length >= 0 && session_read(&exchange->session, bytes, (size_t)length, header) == 0)
            return true;
        if (length < 0 && length != -EAGAIN)
            *network_error = -length;
        if (length < 0)
            discard_departures(exchange, network_error);
    }
    return false;
}

static int say_hello(struct exchange *exchange, double timeout_ms, const char *destination, struct failure *failure) {
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES];
    struct wire_header header;
    int network_error = 0;

    for (int i = 0; i < HELLO_TRIES; i++) {
        int64_t sent_ns = pacing_now_ns();
        int64_t deadline_ns = sent_ns + (int64_t)(timeout_ms * NS_PER_MS) / HELLO_TRIES;

        if (session_make_hello(&exchange->session, bytes) < 0)
            return failure_set(failure, FAILURE_OTHER, "cannot sign a probe");
        if (send(exchange->descriptor, bytes, WIRE_HEADER_BYTES, MSG_DONTWAIT) < 0)
            network_error = errno;
        exchange->bytes += WIRE_HEADER_BYTES + exchange->header_bytes;
        while (receive_answer(exchange, deadline_ns, bytes, &header, &network_error))
            if (header.type == WIRE_WELCOME) {
                exchange->rtt_ns = pacing_now_ns() - sent_ns;
                return 0;
            }
    }
    return session_unanswered(&exchange->session, destination, network_error, failure);
}

int exchange_open(struct exchange *exchange, const char *destination, uint16_t port, const struct keyring *keyring,
                  double timeout_ms, struct failure *failure) {
    union address remote;
    union address local;

    memset(exchange, 0, sizeof(*exchange));
    exchange->descriptor = -1;
    if (address_resolve(destination, port, &remote, failure) < 0)
        return -1;
    exchange->header_bytes = remote.any.sa_family == AF_INET6 ? WIRE_IPV6_UDP_BYTES : WIRE_IPV4_UDP_BYTES;
    exchange->buffer = malloc((size_t)TRAIN_PACKETS_MAX * WIRE_DATAGRAM_MAX_BYTES);
    if (!exchange->buffer)
        return failure_set(failure, FAILURE_OTHER, "out of memory");
    exchange->descriptor = probe_socket_connect(&remote, &local, failure);
    if (exchange->descriptor < 0 || session_init(&exchange->session, keyring, &local, &remote, failure) < 0 ||
        say_hello(exchange, timeout_ms, destination, failure) < 0) {
        exchange_close(exchange);
        return -1;
    }
    return 0;
}

void exchange_close(struct exchange *exchange) {
    if (exchange->descriptor >= 0)
        close(exchange->descriptor);
    free(exchange->buffer);
    exchange->buffer = NULL;
    exchange->descriptor = -1;
}

/* Replace the clock readings before each send by the kernel's departure times, which lie between two readings. */
static void apply_departures(struct exchange *exchange, int64_t *sent_ns, size_t count, int64_t ended_ns) {
    int64_t departure_ns;
    size_t k = 0;
    int error;

    while ((error = probe_socket_departure(exchange->descriptor, &departure_ns)) != -EAGAIN) {
        if (error < 0)
            continue;
        while (k < count && departure_ns >= (k + 1 < count ? sent_ns[k + 1] : ended_ns))
            k++;
        if (k < count && departure_ns >= sent_ns[k])
            sent_ns[k++] = departure_ns;
    }
}

static size_t payload_bytes(const struct exchange *exchange, const struct train_plan *plan, size_t index) {
    return exchange_packet_bytes(plan, index) - exchange->header_bytes;
}

/* All made before the first leaves: signing takes time. */
static int make_packets(struct exchange *exchange, const struct train_flight *flight) {
    for (size_t k = 0; k < flight->plan.packets; k++) {
        struct wire_header header = {
            .type = WIRE_CHIRP,
            .train = flight->train,
            .index = (uint16_t)k,
            .count = (uint16_t)flight->plan.packets,
        };

        if (session_make(&exchange->session, &header, payload_bytes(exchange, &flight->plan, k),
                         exchange->buffer + k * WIRE_DATAGRAM_MAX_BYTES) < 0)
            return -EINVAL;
    }
    return 0;
}

/* The stretch that must be exact; 0 or a negative errno. `ret_sent_ns` are readings right before each send. */
static int send_packets(struct exchange *exchange, const struct train_plan *plan, int64_t *ret_sent_ns) {
    int64_t start_ns = pacing_now_ns() + PACING_SPIN_NS;
    struct pacing_priority before;
    bool precise = pacing_begin_precise(&before);
    int result = 0;

    for (size_t k = 0; k < plan->packets && result == 0; k++) {
        pacing_wait_until(start_ns + (int64_t)(plan->departures_us[k] * 1000));
        ret_sent_ns[k] = pacing_wall_ns();
        if (send(exchange->descriptor, exchange->buffer + k * WIRE_DATAGRAM_MAX_BYTES, payload_bytes(exchange, plan, k),
                 MSG_DONTWAIT) < 0 &&
            errno != ENOBUFS && errno != EAGAIN)
            result = -errno;
        exchange->bytes += exchange_packet_bytes(plan, k);
        exchange->packets++;
    }
    if (precise)
        pacing_end_precise(&before);
    return result;
}

int exchange_send(struct exchange *exchange, struct train_flight *flight, struct failure *failure) {
    const struct train_plan *plan = &flight->plan;
    int64_t sent_ns[TRAIN_PACKETS_MAX];
    int network_error = 0;
    int error;

    flight->train = ++exchange->trains;
    flight->fetched = false;
    if (make_packets(exchange, flight) < 0)
        return failure_set(failure, FAILURE_OTHER, "cannot sign a probe");
    discard_departures(exchange, &network_error);
    error = send_packets(exchange, plan, sent_ns);
    if (error < 0)
        return failure_from_errno(failure, -error, "sending a train");
    apply_departures(exchange, sent_ns, plan->packets, pacing_wall_ns());
    flight->sent_at_ns = sent_ns[0];
    for (size_t k = 0; k < plan->packets; k++)
        flight->packets[k] = (struct train_packet){.sent_us = (double)(sent_ns[k] - sent_ns[0]) / 1e3};
    return 0;
}

static void take_train(struct train_flight *flight, const uint8_t *bytes, const struct wire_header *header) {
    struct wire_train_entry entries[TRAIN_PACKETS_MAX];
    int count = wire_decode_train(bytes, header, entries, TRAIN_PACKETS_MAX);

    if (count < 0)
        return;
    for (int i = 0; i < count; i++) {
        if (entries[i].index >= flight->plan.packets)
            continue;
        flight->packets[entries[i].index].arrived = true;
        flight->packets[entries[i].index].arrived_us = entries[i].after_first_ns / 1e3;
    }
    flight->arrived_at_ns = (int64_t)header->time_ns;
    flight->fetched = true;
}

static void request_trains(struct exchange *exchange, const struct train_flight *flights, unsigned count) {
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES];

    for (unsigned i = 0; i < count; i++) {
        struct wire_header header = {.type = WIRE_FETCH, .train = flights[i].train};
        size_t length = fetch_length(flights[i].plan.packets);

        if (flights[i].fetched || session_make(&exchange->session, &header, length, bytes) < 0)
            continue;
        /* A request that is not sent is asked again with the others that got no answer. */
        (void)send(exchange->descriptor, bytes, length, MSG_DONTWAIT);
        exchange->bytes += length + exchange->header_bytes;
        pacing_wait_until(pacing_now_ns() + NS_PER_MS / 2);
    }
}

unsigned exchange_collect(struct exchange *exchange, struct train_flight *flights, unsigned count, unsigned tries) {
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES];
    struct wire_header header;
    int64_t slack_ns = ANSWER_SLACK_NS;
    unsigned missing = count;
    int network_error = 0;

    for (unsigned i = 0; i < count; i++)
        missing -= flights[i].fetched;
    for (unsigned attempt = 0; attempt < tries && missing; attempt++) {
        int64_t deadline_ns;

        request_trains(exchange, flights, count);
        deadline_ns = pacing_now_ns() + exchange->rtt_ns * 3 / 2 + slack_ns;
        slack_ns *= ANSWER_SLACK_GROWTH;
        while (missing && receive_answer(exchange, deadline_ns, bytes, &header, &network_error)) {
            for (unsigned i = 0; header.type == WIRE_TRAIN && i < count; i++) {
                if (flights[i].fetched || flights[i].train != header.train)
                    continue;
                take_train(&flights[i], bytes, &header);
                missing -= flights[i].fetched;
            }
        }
    }
    return missing;
}
