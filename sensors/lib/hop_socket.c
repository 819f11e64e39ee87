/* Probes of one flow; see hop_socket.h. */
#include "hop_socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "pacing.h"
#include "probe_socket.h"

/* The address that the system would send from, and for UDP a port of our own. */
static int choose_source(struct hop_socket *hop, const union address *destination, struct failure *failure) {
    union address local;
    uint16_t identifier;

    hop->port_holder = probe_socket_connect(destination, &local, failure);
    if (hop->port_holder < 0)
        return -1;
    hop->flow.source = local.v4.sin_addr;
    hop->flow.source_port = ntohs(local.v4.sin_port);
    if (hop->flow.protocol == HOP_ICMP) {
        if (getrandom(&identifier, sizeof(identifier), 0) != (ssize_t)sizeof(identifier))
            return failure_set(failure, FAILURE_OTHER, "no random numbers from the kernel");
        hop->flow.source_port = identifier;
    }
    return 0;
}

int hop_socket_open(struct hop_socket *hop, const char *destination, enum hop_protocol protocol, uint16_t port,
                    struct failure *failure) {
    union address address;

    memset(hop, 0, sizeof(*hop));
    hop->sender = hop->receiver = hop->port_holder = -1;
    if (address_resolve(destination, port, &address, failure) < 0)
        return -1;
    if (address.any.sa_family != AF_INET)
        return failure_set(failure, FAILURE_USAGE, "%.200s is no IPv4 address, and hops are probed by IPv4 only",
                           destination);
    hop->flow.protocol = protocol;
    hop->flow.destination = address.v4.sin_addr;
    hop->flow.destination_port = port;
    if (choose_source(hop, &address, failure) < 0 || (hop->sender = probe_socket_raw(IPPROTO_RAW, failure)) < 0 ||
        (hop->receiver = probe_socket_raw(IPPROTO_ICMP, failure)) < 0) {
        hop_socket_close(hop);
        return -1;
    }
    return 0;
}

void hop_socket_close(struct hop_socket *hop) {
    int descriptors[] = {hop->sender, hop->receiver, hop->port_holder};

    for (size_t i = 0; i < sizeof(descriptors) / sizeof(descriptors[0]); i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    hop->sender = hop->receiver = hop->port_holder = -1;
}

int64_t hop_socket_send(struct hop_socket *hop, uint8_t ttl, uint16_t tag, size_t length) {
    union address destination = {.v4 = {.sin_family = AF_INET, .sin_addr = hop->flow.destination}};
    uint8_t bytes[HOP_PACKET_MAX_BYTES];
    int64_t departure_ns;

    hop_packet_make(&hop->flow, ttl, tag, bytes, length);
    departure_ns = probe_socket_send(hop->sender, bytes, length, &destination);
    hop->probes++;
    hop->bytes += length;
    return departure_ns;
}

static bool wait_readable(int descriptor, int64_t deadline_ns) {
    struct pollfd poll_for = {.fd = descriptor, .events = POLLIN};
    int64_t left_ns = deadline_ns - pacing_now_ns();
    struct timespec timeout;

    if (left_ns < 0)
        left_ns = 0;
    timeout = (struct timespec){.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000};
    return ppoll(&poll_for, 1, &timeout, NULL) > 0;
}

bool hop_socket_receive(struct hop_socket *hop, int64_t deadline_ns, struct hop_reply *ret_reply, int64_t *ret_at_ns) {
    uint8_t bytes[2048];

    /* The socket gets the ICMP packets of the whole host: go on while any are there, but never past the moment. */
    while (wait_readable(hop->receiver, deadline_ns)) {
        struct probe_arrival arrival;
        int length = probe_socket_receive(hop->receiver, bytes, sizeof(bytes), &arrival);

        if (length >= 0 && !arrival.truncated && hop_packet_read(&hop->flow, bytes, (size_t)length, ret_reply)) {
            *ret_at_ns = arrival.at_ns;
            return true;
        }
        if (pacing_now_ns() >= deadline_ns)
            return false;
    }
    return false;
}
