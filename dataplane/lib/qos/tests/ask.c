/* Answers for agree.py what the C parsers make of packets. In: carrier (4, 6, 0 shim), length (16 bits), octets.
 * Out, one line each: error, signal offset, transport offset, protocol, selector. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qos.h"

int main(void) {
    __u8 head[3];

    while (fread(head, 1, sizeof(head), stdin) == sizeof(head)) {
        __u32 length = chart_get16(head + 1);
        struct chart_parsed parsed;
        __u8 *octets = malloc(length ? length : 1);
        int error;

        if (!octets || fread(octets, 1, length, stdin) != length) {
            free(octets);
            return 1;
        }
        memset(&parsed, 0, sizeof(parsed));
        error = head[0] == 4   ? chart_ipv4_parse(&parsed, octets, length)
                : head[0] == 6 ? chart_ipv6_parse(&parsed, octets, length)
                               : chart_shim_parse(&parsed, octets, length);
        if (error)
            memset(&parsed, 0, sizeof(parsed));
        printf("%d %u %u %u %08x\n", error, parsed.signal_offset, parsed.transport_offset, parsed.flow.protocol,
               chart_get32(parsed.flow.selector));
        free(octets);
    }
    return 0;
}
