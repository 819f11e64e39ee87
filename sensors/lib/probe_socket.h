/* Probe sockets with kernel timestamps.
 *
 * Arrival: SO_TIMESTAMPNS, taken by the kernel when the device hands the packet over, before any queue or wake-up.
 * Departure: SOF_TIMESTAMPING_TX_SCHED, taken by the kernel when the packet enters the queue discipline. It needs
 * nothing from the device, and unlike the driver's own timestamp it lies before the local queue, which belongs to the
 * path that is measured. When a timestamp does not come back, the clock read right before the send stands in for it. */
#ifndef CHART_SENSORS_PROBE_SOCKET_H
#define CHART_SENSORS_PROBE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address.h"
#include "failure.h"

/* Large enough for a few hundred full packets while the reader is not scheduled. */
#define PROBE_SOCKET_RECEIVE_BYTES (4 << 20)

struct probe_arrival {
    union address source;
    union address destination; /* where the packet was sent to (port of the socket); sockets opened to listen only */
    int64_t at_ns;             /* CLOCK_REALTIME */
    size_t length;
    bool truncated;
};

/* Unconnected UDP socket bound to an address, with timestamps and destination information, non-blocking. */
int probe_socket_listen(const union address *address, struct failure *failure);
/* UDP socket connected to an address, with timestamps of both directions, non-blocking; `ret_local` is its own end. */
int probe_socket_connect(const union address *address, union address *ret_local, struct failure *failure);
/* ICMP echo socket connected to an address: datagram kind where allowed, else raw (`*ret_raw`). */
int probe_socket_icmp(const union address *address, bool *ret_raw, struct failure *failure);

/* Raw IPv4 socket, non-blocking: IPPROTO_RAW sends packets with their own IP header and times departures, IPPROTO_ICMP
 * receives the host's ICMP answers and errors with theirs. */
int probe_socket_raw(int protocol, struct failure *failure);
/* Send a packet to an address; its departure (CLOCK_REALTIME, the kernel's where it gives one), or a negative errno. */
int64_t probe_socket_send(int socket, const void *bytes, size_t length, const union address *destination);

/* Receive one packet; number of bytes, -EAGAIN when none waits, or a negative errno, with an ICMP error turned into
 * that of the network (-ECONNREFUSED, -EHOSTUNREACH...). */
int probe_socket_receive(int socket, void *buffer, size_t size, struct probe_arrival *ret_arrival);
/* Answer from a listening socket, from `source` to `destination`. */
int probe_socket_reply(int socket, const void *bytes, size_t length, const union address *source,
                       const union address *destination);
/* Next departure timestamp, in order of sending. It lies between the clock before and after its send call, which is how
 * the caller finds the packet it belongs to. -EAGAIN when none waits; a negative errno when an ICMP error waits. */
int probe_socket_departure(int socket, int64_t *ret_at_ns);

#endif
