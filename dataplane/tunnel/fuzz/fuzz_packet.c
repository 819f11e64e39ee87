/* What comes from the device and the command line: packets of any bytes, and selectors of any text. */
#include <stdlib.h>
#include <string.h>

#include "offload.h"
#include "packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[300];
    struct selector selector;
    struct packet_key key;
    size_t length = size && data[0] < size ? data[0] : 0;
    if (!length)
        return 0;
    memcpy(text, data + 1, length);
    text[length] = '\0';
    data += 1 + length;
    size -= 1 + length;
    if (size >= OFFLOAD_DEVICE_BYTES) {
        struct offload offload, back;
        uint8_t wire[OFFLOAD_WIRE_BYTES];
        offload_read_device(data, &offload);
        offload_write_wire(&offload, wire);
        offload_read_wire(wire, &back);
        if (memcmp(&offload, &back, sizeof(offload)) != 0)
            abort();
        (void)offload_check(&offload, size - OFFLOAD_DEVICE_BYTES);
    }
    if (packet_parse(data, size, &key) == 0 && selector_parse(text, &selector) == 0)
        (void)selector_matches(&selector, &key);
    return 0;
}
