/* What comes over a connection, to either end: any bytes, read as the ends read them; user packets inside go through
 * the check of their offload, the packet parser and the resequencer. */
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "offload.h"
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
        struct offload offload;
        char sentence[FRAME_REFUSAL_MAX + 1];
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
        else if (frame.type == FRAME_REFUSAL && frame_read_refusal(&frame, sentence) == 0 &&
                 strlen(sentence) != frame.payload_bytes)
            abort();
        else if (frame.type == FRAME_OFFLOADED) {
            size_t bytes = frame.payload_bytes - OFFLOAD_WIRE_BYTES;
            offload_read_wire(frame.payload, &offload);
            /* What is let through points into the packet. */
            if (offload_check(&offload, bytes) == 0 && offload.flags &&
                (size_t)offload.checksum_start + offload.checksum_offset + 2 > bytes)
                abort();
            (void)resequencer_put(&resequencer, frame.sequence, frame.payload + OFFLOAD_WIRE_BYTES, bytes, now_us);
        }
        now_us += frame.sequence % 700;
        (void)resequencer_tick(&resequencer, now_us);
        data += used;
        size -= (size_t)used;
    }
    resequencer_free(&resequencer);
    return 0;
}
