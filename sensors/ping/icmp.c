/* ICMP echo packets; see icmp.h. */
#include "icmp.h"

#include <string.h>
#include <sys/socket.h>

enum {
    ICMP4_ECHO_REPLY = 0,
    ICMP4_ECHO_REQUEST = 8,
    ICMP6_ECHO_REQUEST_TYPE = 128,
    ICMP6_ECHO_REPLY_TYPE = 129,
};

/* RFC 1071. */
static uint16_t internet_checksum(const uint8_t *bytes, size_t length) {
    uint32_t sum = 0;

    for (size_t i = 0; i + 1 < length; i += 2)
        sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    if (length % 2)
        sum += (uint32_t)bytes[length - 1] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

void icmp_make_request(int family, const struct icmp_echo *echo, uint8_t *bytes, size_t length) {
    memset(bytes, 0, length);
    bytes[0] = family == AF_INET6 ? ICMP6_ECHO_REQUEST_TYPE : ICMP4_ECHO_REQUEST;
    bytes[4] = (uint8_t)(echo->identifier >> 8);
    bytes[5] = (uint8_t)echo->identifier;
    bytes[6] = (uint8_t)(echo->sequence >> 8);
    bytes[7] = (uint8_t)echo->sequence;
    memcpy(bytes + ICMP_ECHO_HEADER_BYTES, &echo->mark, sizeof(echo->mark));
    if (family != AF_INET6) {
        uint16_t checksum = internet_checksum(bytes, length);

        bytes[2] = (uint8_t)(checksum >> 8);
        bytes[3] = (uint8_t)checksum;
    }
}

bool icmp_read_reply(int family, bool raw, const uint8_t *bytes, size_t length, struct icmp_echo *ret_echo) {
    if (raw && family != AF_INET6) {
        size_t header_bytes;

        if (length < 20)
            return false;
        header_bytes = (size_t)(bytes[0] & 0x0f) * 4;
        if (header_bytes < 20 || header_bytes > length)
            return false;
        bytes += header_bytes;
        length -= header_bytes;
    }
    if (length < ICMP_ECHO_MIN_BYTES || bytes[1] != 0)
        return false;
    if (bytes[0] != (family == AF_INET6 ? ICMP6_ECHO_REPLY_TYPE : ICMP4_ECHO_REPLY))
        return false;
    ret_echo->identifier = (uint16_t)(bytes[4] << 8 | bytes[5]);
    ret_echo->sequence = (uint16_t)(bytes[6] << 8 | bytes[7]);
    memcpy(&ret_echo->mark, bytes + ICMP_ECHO_HEADER_BYTES, sizeof(ret_echo->mark));
    return true;
}
