/* Marking packets, see mark.h. */
#include "mark.h"

#include <errno.h>

#include "event.h"

#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define ECN_BITS 3U

static uint8_t marked(uint8_t before, uint32_t value) {
    uint8_t ecn = before & ECN_BITS;
    if ((value & ECN_BITS) == ITM_MARK_CE && ecn)
        ecn = ITM_MARK_CE;
    return (uint8_t)((value & 0xfcU) | ecn);
}

/* RFC 1624, equation 3: the checksum after one 16-bit word of the header changed. */
static void update_checksum(uint8_t *checksum, uint16_t before, uint16_t after) {
    uint32_t sum = (uint16_t)~(checksum[0] << 8 | checksum[1]);
    sum += (uint16_t)~before;
    sum += after;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    checksum[0] = (uint8_t)(~sum >> 8);
    checksum[1] = (uint8_t)~sum;
}

int mark_packet(uint8_t *packet, size_t bytes, uint32_t value) {
    if (bytes >= IPV4_BYTES && packet[0] >> 4 == 4) {
        uint8_t after = marked(packet[1], value);
        update_checksum(packet + 10, (uint16_t)(packet[0] << 8 | packet[1]), (uint16_t)(packet[0] << 8 | after));
        packet[1] = after;
        return 0;
    }
    if (bytes >= IPV6_BYTES && packet[0] >> 4 == 6) {
        uint8_t after = marked((uint8_t)(packet[0] << 4 | packet[1] >> 4), value);
        packet[0] = (uint8_t)(0x60 | after >> 4);
        packet[1] = (uint8_t)(after << 4 | (packet[1] & 0x0f));
        return 0;
    }
    return -EBADMSG;
}
