/* Sending probes of one flow with a limited TTL and receiving what comes back; needs CAP_NET_RAW. IPv4. */
#ifndef CHART_SENSORS_HOP_SOCKET_H
#define CHART_SENSORS_HOP_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"
#include "hop_packet.h"

struct hop_socket {
    int sender;
    int receiver;
    int port_holder; /* keeps the source port from being given to anybody else */
    struct hop_flow flow;
    uint64_t bytes; /* IP bytes sent */
    uint64_t probes;
};

int hop_socket_open(struct hop_socket *hop, const char *destination, enum hop_protocol protocol, uint16_t port,
                    struct failure *failure);
void hop_socket_close(struct hop_socket *hop);
/* Send a probe; its departure (CLOCK_REALTIME), or a negative errno. */
int64_t hop_socket_send(struct hop_socket *hop, uint8_t ttl, uint16_t tag, size_t length);
/* Next answer to a probe of ours before the moment (CLOCK_MONOTONIC), with its arrival (CLOCK_REALTIME). */
bool hop_socket_receive(struct hop_socket *hop, int64_t deadline_ns, struct hop_reply *ret_reply, int64_t *ret_at_ns);

#endif
