/* What comes over a connection: any bytes, in two pieces, read as the destination reads them; user packets inside go
 * through the packet parser and the resequencer. */
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "packet.h"
#include "resequencer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void deliver(void *context, const uint8_t *packet, size_t bytes) {
    struct packet_key key;
    (*(uint64_t *)context)++;
    (void)packet_parse(packet, bytes, &key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct resequencer resequencer;
    uint64_t delivered = 0, now_us = 0;
    if (resequencer_init(&resequencer, 64, 1000, deliver, &delivered) < 0)
        abort();
    while (size) {
        struct frame frame, whole;
        struct hello hello;
        struct report report;
        ssize_t used = frame_parse(data, size, &frame);
        if (used <= 0)
            break;
        /* A frame that is whole is incomplete one byte shorter. */
        if (frame_parse(data, (size_t)used - 1, &whole) != 0)
            abort();
        if (frame.type == FRAME_DATA)
            (void)resequencer_put(&resequencer, frame.sequence, frame.payload, frame.payload_bytes, now_us);
        else if (frame.type == FRAME_HELLO && frame_read_hello(&frame, &hello) == 0)
            resequencer_restart(&resequencer, hello.next_sequence);
        else if (frame.type == FRAME_REPORT)
            (void)frame_read_report(&frame, &report);
        now_us += frame.sequence % 700;
        (void)resequencer_tick(&resequencer, now_us);
        data += used;
        size -= (size_t)used;
    }
    resequencer_free(&resequencer);
    return 0;
}
