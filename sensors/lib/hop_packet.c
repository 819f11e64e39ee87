/* Probes with a limited TTL; see hop_packet.h. */
#include "hop_packet.h"

#include <string.h>

#define IP_BYTES 20u
#define TRANSPORT_BYTES 8u
#define ICMP_ECHO_REPLY_TYPE 0
#define ICMP_UNREACHABLE_TYPE 3
#define ICMP_ECHO_TYPE 8
#define ICMP_EXPIRED_TYPE 11
#define ICMP_PORT_UNREACHABLE_CODE 3
/* The checksum of every ICMP probe; any would do. */
#define ICMP_CHECKSUM 0xbeefu

static void put16(uint8_t *at, unsigned value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static uint16_t get16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t fold(uint32_t sum) {
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* One's complement sum (RFC 1071), not yet inverted. */
static uint32_t add_words(uint32_t sum, const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i + 1 < length; i += 2)
        sum += get16(bytes + i);
    if (length % 2)
        sum += (uint32_t)bytes[length - 1] << 8;
    return fold(sum);
}

/* The word that turns the sum of everything else into that of `checksum`. */
static unsigned compensation(uint32_t sum, uint16_t checksum) {
    return fold((uint16_t)~checksum + (uint32_t)(uint16_t)~sum);
}

void hop_packet_make(const struct hop_flow *flow, uint8_t ttl, uint16_t tag, uint8_t *bytes, size_t length) {
    uint8_t *transport = bytes + IP_BYTES;
    size_t transport_bytes = length - IP_BYTES;
    uint32_t sum = 0;

    memset(bytes, 0, length);
    bytes[0] = 0x45;
    put16(bytes + 2, (unsigned)length);
    put16(bytes + 4, tag);
    bytes[8] = ttl;
    bytes[9] = flow->protocol == HOP_UDP ? IPPROTO_UDP : IPPROTO_ICMP;
    memcpy(bytes + 12, &flow->source, 4);
    memcpy(bytes + 16, &flow->destination, 4);
    if (flow->protocol == HOP_UDP) {
        put16(transport, flow->source_port);
        put16(transport + 2, flow->destination_port);
        put16(transport + 4, (unsigned)transport_bytes);
        sum = add_words(IPPROTO_UDP + (uint32_t)transport_bytes, bytes + 12, 8);
        sum = add_words(sum, transport, transport_bytes);
        put16(transport + TRANSPORT_BYTES, compensation(sum, tag));
        put16(transport + 6, tag);
    } else {
        transport[0] = ICMP_ECHO_TYPE;
        put16(transport + 4, flow->source_port);
        put16(transport + 6, tag);
        sum = add_words(0, transport, transport_bytes);
        put16(transport + TRANSPORT_BYTES, compensation(sum, ICMP_CHECKSUM));
        put16(transport + 2, ICMP_CHECKSUM);
    }
}

/* Bytes of an IPv4 header, 0 when there is none. */
static size_t header_bytes(const uint8_t *bytes, size_t length) {
    size_t header;

    if (length < IP_BYTES || bytes[0] >> 4 != 4)
        return 0;
    header = (size_t)(bytes[0] & 0x0f) * 4;
    return header < IP_BYTES || header > length ? 0 : header;
}

/* The quoted beginning of our own probe. */
static bool read_quote(const struct hop_flow *flow, const uint8_t *bytes, size_t length, uint16_t *ret_tag) {
    size_t header = header_bytes(bytes, length);
    const uint8_t *transport = bytes + header;

    if (!header || length - header < TRANSPORT_BYTES || memcmp(bytes + 16, &flow->destination, 4) != 0)
        return false;
    if (bytes[9] != (flow->protocol == HOP_UDP ? IPPROTO_UDP : IPPROTO_ICMP))
        return false;
    if (flow->protocol == HOP_UDP) {
        *ret_tag = get16(transport + 6);
        return get16(transport) == flow->source_port && get16(transport + 2) == flow->destination_port;
    }
    *ret_tag = get16(transport + 6);
    return transport[0] == ICMP_ECHO_TYPE && get16(transport + 4) == flow->source_port;
}

bool hop_packet_read(const struct hop_flow *flow, const uint8_t *bytes, size_t length, struct hop_reply *ret_reply) {
    size_t header = header_bytes(bytes, length);
    struct hop_reply reply = {0};
    const uint8_t *icmp = bytes + header;

    if (!header || bytes[9] != IPPROTO_ICMP || length - header < TRANSPORT_BYTES)
        return false;
    memcpy(&reply.address, bytes + 12, 4);
    reply.ip_id = get16(bytes + 4);
    reply.code = icmp[1];
    if (icmp[0] == ICMP_ECHO_REPLY_TYPE) {
        if (flow->protocol != HOP_ICMP || get16(icmp + 4) != flow->source_port ||
            reply.address.s_addr != flow->destination.s_addr)
            return false;
        reply.answer = HOP_REACHED;
        reply.tag = get16(icmp + 6);
        *ret_reply = reply;
        return reply.tag != 0;
    }
    if (icmp[0] != ICMP_EXPIRED_TYPE && icmp[0] != ICMP_UNREACHABLE_TYPE)
        return false;
    if (!read_quote(flow, icmp + TRANSPORT_BYTES, length - header - TRANSPORT_BYTES, &reply.tag) || reply.tag == 0)
        return false;
    if (icmp[0] == ICMP_EXPIRED_TYPE)
        reply.answer = HOP_EXPIRED;
    else if (flow->protocol == HOP_UDP && reply.code == ICMP_PORT_UNREACHABLE_CODE &&
             reply.address.s_addr == flow->destination.s_addr)
        reply.answer = HOP_REACHED;
    else
        reply.answer = HOP_UNREACHABLE;
    *ret_reply = reply;
    return true;
}
