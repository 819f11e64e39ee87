/* Reading packets and selectors, see packet.h. */
#include "packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint16_t load16(const uint8_t *bytes) {
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

static void read_ports(const uint8_t *transport, size_t bytes, struct packet_key *key) {
    if ((key->protocol != IPPROTO_TCP && key->protocol != IPPROTO_UDP) || bytes < 4)
        return;
    key->has_ports = true;
    key->source_port = load16(transport);
    key->destination_port = load16(transport + 2);
}

int packet_parse(const uint8_t *packet, size_t bytes, struct packet_key *ret) {
    struct packet_key key = {.version = 0};
    if (bytes < 1)
        return -EBADMSG;
    key.version = packet[0] >> 4;
    if (key.version == 4) {
        size_t header = (packet[0] & 15U) * 4U;
        if (header < 20 || bytes < header || load16(packet + 2) != bytes)
            return -EBADMSG;
        key.dscp = packet[1] >> 2;
        key.protocol = packet[9];
        memcpy(key.source, packet + 12, 4);
        memcpy(key.destination, packet + 16, 4);
        /* A later fragment has no ports. */
        if ((load16(packet + 6) & 0x1fff) == 0)
            read_ports(packet + header, bytes - header, &key);
    } else if (key.version == 6) {
        if (bytes < 40 || load16(packet + 4) + 40U != bytes)
            return -EBADMSG;
        key.dscp = (uint8_t)((packet[0] & 15) << 2 | packet[1] >> 6);
        key.protocol = packet[6];
        memcpy(key.source, packet + 8, 16);
        memcpy(key.destination, packet + 24, 16);
        read_ports(packet + 40, bytes - 40, &key);
    } else {
        return -EBADMSG;
    }
    *ret = key;
    return 0;
}

static int read_number(const char *text, long maximum, int *ret) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > maximum)
        return -EINVAL;
    *ret = (int)value;
    return 0;
}

int prefix_parse(const char *text, struct prefix *ret) {
    struct prefix prefix = {.version = 0};
    char address[INET6_ADDRSTRLEN + 1];
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : strlen(text);
    if (length >= sizeof(address))
        return -EINVAL;
    memcpy(address, text, length);
    address[length] = '\0';
    if (inet_pton(AF_INET, address, prefix.address) == 1)
        prefix.version = 4;
    else if (inet_pton(AF_INET6, address, prefix.address) == 1)
        prefix.version = 6;
    else
        return -EINVAL;
    int most = prefix.version == 4 ? 32 : 128, bits = most;
    if (slash && read_number(slash + 1, most, &bits) < 0)
        return -EINVAL;
    prefix.bits = (uint8_t)bits;
    *ret = prefix;
    return 0;
}

static int read_protocol(const char *text, int *ret) {
    static const struct {
        const char *name;
        int number;
    } KNOWN[] = {{"tcp", IPPROTO_TCP}, {"udp", IPPROTO_UDP}, {"icmp", IPPROTO_ICMP}};
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        if (strcmp(text, KNOWN[i].name) == 0) {
            *ret = KNOWN[i].number;
            return 0;
        }
    }
    return read_number(text, 255, ret);
}

static int read_member(const char *name, const char *value, struct selector *selector) {
    if (strcmp(name, "from") == 0)
        return prefix_parse(value, &selector->source);
    if (strcmp(name, "to") == 0)
        return prefix_parse(value, &selector->destination);
    if (strcmp(name, "dscp") == 0)
        return read_number(value, 63, &selector->dscp);
    if (strcmp(name, "protocol") == 0)
        return read_protocol(value, &selector->protocol);
    if (strcmp(name, "sport") == 0)
        return read_number(value, 65535, &selector->source_port);
    if (strcmp(name, "dport") == 0)
        return read_number(value, 65535, &selector->destination_port);
    return -EINVAL;
}

int selector_parse(const char *text, struct selector *ret) {
    struct selector selector = {.dscp = -1, .protocol = -1, .source_port = -1, .destination_port = -1};
    char copy[256];
    if (strlen(text) >= sizeof(copy) || !text[0])
        return -EINVAL;
    snprintf(copy, sizeof(copy), "%s", text);
    if (strcmp(copy, "any") != 0) {
        char *rest = copy, *member;
        while ((member = strsep(&rest, ","))) {
            char *value = strchr(member, '=');
            if (!value)
                return -EINVAL;
            *value++ = '\0';
            if (read_member(member, value, &selector) < 0)
                return -EINVAL;
        }
    }
    *ret = selector;
    return 0;
}

static bool prefix_holds(const struct prefix *prefix, uint8_t version, const uint8_t *address) {
    if (!prefix->version)
        return true;
    size_t whole = prefix->bits / 8;
    unsigned rest = prefix->bits % 8;
    if (prefix->version != version || memcmp(prefix->address, address, whole) != 0)
        return false;
    return !rest || (prefix->address[whole] ^ address[whole]) >> (8 - rest) == 0;
}

static bool port_matches(int wanted, bool known, uint16_t port) {
    return wanted < 0 || (known && wanted == port);
}

bool selector_matches(const struct selector *selector, const struct packet_key *key) {
    return prefix_holds(&selector->source, key->version, key->source) &&
           prefix_holds(&selector->destination, key->version, key->destination) &&
           (selector->dscp < 0 || selector->dscp == key->dscp) &&
           (selector->protocol < 0 || selector->protocol == key->protocol) &&
           port_matches(selector->source_port, key->has_ports, key->source_port) &&
           port_matches(selector->destination_port, key->has_ports, key->destination_port);
}
