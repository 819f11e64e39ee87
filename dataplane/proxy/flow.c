/* See flow.h. */
#include "flow.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static void map_ipv4(uint8_t *ret, const void *address) {
    memcpy(ret, mapped, sizeof(mapped));
    memcpy(ret + sizeof(mapped), address, 4);
}

static int read_tcp(const uint8_t *packet, size_t bytes, struct flow *flow) {
    struct tcphdr tcp;
    if (bytes < sizeof(tcp))
        return -EINVAL;
    memcpy(&tcp, packet, sizeof(tcp));
    if (!tcp.syn || tcp.ack || tcp.rst || tcp.fin)
        return -EINVAL;
    flow->client_port = ntohs(tcp.source);
    flow->server_port = ntohs(tcp.dest);
    return 0;
}

static int read_ipv4(const uint8_t *packet, size_t bytes, struct flow *flow, uint8_t *ret_dscp) {
    struct iphdr ip;
    if (bytes < sizeof(ip))
        return -EINVAL;
    memcpy(&ip, packet, sizeof(ip));
    size_t header = (size_t)ip.ihl * 4;
    if (ip.protocol != IPPROTO_TCP || header < sizeof(ip) || header > bytes || (ntohs(ip.frag_off) & IP_OFFMASK))
        return -EINVAL;
    flow->family = AF_INET;
    map_ipv4(flow->client, &ip.saddr);
    map_ipv4(flow->server, &ip.daddr);
    *ret_dscp = ip.tos >> 2;
    return read_tcp(packet + header, bytes - header, flow);
}

/* Past the options that each hop and the destination reads. */
static int read_ipv6(const uint8_t *packet, size_t bytes, struct flow *flow, uint8_t *ret_dscp) {
    struct ip6_hdr ip;
    if (bytes < sizeof(ip))
        return -EINVAL;
    memcpy(&ip, packet, sizeof(ip));
    uint8_t next = ip.ip6_nxt;
    size_t at = sizeof(ip);
    while (next == IPPROTO_HOPOPTS || next == IPPROTO_DSTOPTS || next == IPPROTO_ROUTING) {
        if (at + 2 > bytes)
            return -EINVAL;
        next = packet[at];
        at += ((size_t)packet[at + 1] + 1) * 8;
    }
    if (next != IPPROTO_TCP || at > bytes)
        return -EINVAL;
    flow->family = AF_INET6;
    memcpy(flow->client, &ip.ip6_src, 16);
    memcpy(flow->server, &ip.ip6_dst, 16);
    *ret_dscp = (ntohl(ip.ip6_flow) >> 22) & 0x3f;
    return read_tcp(packet + at, bytes - at, flow);
}

int flow_of_packet(const uint8_t *packet, size_t bytes, struct flow *ret, uint8_t *ret_dscp) {
    struct flow flow = {0};
    uint8_t dscp = 0;
    int error = -EINVAL;
    if (bytes && packet[0] >> 4 == 4)
        error = read_ipv4(packet, bytes, &flow, &dscp);
    else if (bytes && packet[0] >> 4 == 6)
        error = read_ipv6(packet, bytes, &flow, &dscp);
    if (!error) {
        *ret = flow;
        *ret_dscp = dscp;
    }
    return error;
}

static int read_address(const struct sockaddr_storage *from, uint8_t *address, uint16_t *port) {
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
        map_ipv4(address, &v4->sin_addr);
        *port = ntohs(v4->sin_port);
    } else if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
        memcpy(address, &v6->sin6_addr, 16);
        *port = ntohs(v6->sin6_port);
    } else {
        return -EAFNOSUPPORT;
    }
    return 0;
}

int flow_of_sockets(const struct sockaddr_storage *client, const struct sockaddr_storage *server, struct flow *ret) {
    struct flow flow = {.family = (uint8_t)client->ss_family};
    if (client->ss_family != server->ss_family || read_address(client, flow.client, &flow.client_port) ||
        read_address(server, flow.server, &flow.server_port))
        return -EAFNOSUPPORT;
    *ret = flow;
    return 0;
}

socklen_t flow_address(const struct flow *flow, int of_server, struct sockaddr_storage *ret) {
    const uint8_t *address = of_server ? flow->server : flow->client;
    uint16_t port = htons(of_server ? flow->server_port : flow->client_port);
    memset(ret, 0, sizeof(*ret));
    if (flow->family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
        v4->sin_family = AF_INET;
        v4->sin_port = port;
        memcpy(&v4->sin_addr, address + sizeof(mapped), 4);
        return sizeof(*v4);
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = port;
    memcpy(&v6->sin6_addr, address, 16);
    return sizeof(*v6);
}

int table_init(struct table *table, uint32_t capacity, uint64_t seed) {
    uint32_t count = 64;
    while (count < capacity)
        count *= 2;
    *table = (struct table){.mask = count - 1, .capacity = capacity, .seed = seed};
    table->buckets = malloc(count * sizeof(*table->buckets));
    table->next = malloc(capacity * sizeof(*table->next));
    table->flows = calloc(capacity, sizeof(*table->flows));
    if (!table->buckets || !table->next || !table->flows) {
        table_free(table);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++)
        table->buckets[i] = TABLE_NONE;
    return 0;
}

void table_free(struct table *table) {
    free(table->buckets);
    free(table->next);
    free(table->flows);
    *table = (struct table){0};
}

/* Each word is multiplied into a state that begins with the secret; the multiplier is that of splitmix64. */
static uint32_t bucket_of(const struct table *table, const struct flow *flow) {
    uint64_t words[sizeof(*flow) / sizeof(uint64_t)], state = table->seed;
    _Static_assert(sizeof(*flow) % sizeof(uint64_t) == 0, "whole words");
    memcpy(words, flow, sizeof(*flow));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        state = (state ^ words[i]) * 0xbf58476d1ce4e5b9ull;
        state ^= state >> 29;
        state += table->seed;
    }
    return (uint32_t)(state >> 32) & table->mask;
}

void table_put(struct table *table, uint32_t index, const struct flow *flow) {
    uint32_t *bucket = &table->buckets[bucket_of(table, flow)];
    table->flows[index] = flow;
    table->next[index] = *bucket;
    *bucket = index;
}

void table_remove(struct table *table, uint32_t index) {
    uint32_t *place = &table->buckets[bucket_of(table, table->flows[index])];
    while (*place != index && *place != TABLE_NONE)
        place = &table->next[*place];
    if (*place == index)
        *place = table->next[index];
    table->flows[index] = NULL;
}

uint32_t table_find(const struct table *table, const struct flow *flow) {
    uint32_t index = table->buckets[bucket_of(table, flow)];
    while (index != TABLE_NONE && memcmp(table->flows[index], flow, sizeof(*flow)) != 0)
        index = table->next[index];
    return index;
}
