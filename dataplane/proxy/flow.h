/* Whose connection a first packet begins, and a table of such. Pure. */
#ifndef PROXY_FLOW_H
#define PROXY_FLOW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct flow {
    /* IPv4 as ::ffff:a.b.c.d; ports in host order. */
    uint8_t client[16], server[16];
    uint16_t client_port, server_port;
    uint8_t family; /* AF_INET or AF_INET6 */
    uint8_t zero[3];
};

/* The flow of a packet from its IP header on, and its DSCP. 0, or -EINVAL: no first packet of TCP, or cut short. */
int flow_of_packet(const uint8_t *packet, size_t bytes, struct flow *ret, uint8_t *ret_dscp);
/* From the two addresses of an accepted socket. 0, or -EAFNOSUPPORT. */
int flow_of_sockets(const struct sockaddr_storage *client, const struct sockaddr_storage *server, struct flow *ret);
/* One end as a socket address; its length. */
socklen_t flow_address(const struct flow *flow, int of_server, struct sockaddr_storage *ret);

#define TABLE_NONE UINT32_MAX

/* Indices by flow: buckets with chains, all memory taken at the start. */
struct table {
    uint32_t *buckets, *next;
    const struct flow **flows;
    uint32_t mask, capacity;
    uint64_t seed;
};

/* For indices below capacity; seed: random, so that nobody outside can make long chains. 0 or -ENOMEM. */
int table_init(struct table *table, uint32_t capacity, uint64_t seed);
void table_free(struct table *table);
/* The flow must stay where it is until it is removed, and not be there yet. */
void table_put(struct table *table, uint32_t index, const struct flow *flow);
void table_remove(struct table *table, uint32_t index);
/* TABLE_NONE: not there. */
uint32_t table_find(const struct table *table, const struct flow *flow);

#endif
