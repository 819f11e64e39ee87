/* Frames of the tunnel, see frame.h. */
#include "frame.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "offload.h"

static uint8_t *store(uint8_t *at, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (bytes - 1 - i) * 8);
    return at + bytes;
}

static uint64_t load(const uint8_t **at, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | (*at)[i];
    *at += bytes;
    return value;
}

static bool payload_fits(unsigned type, size_t payload) {
    switch (type) {
    case FRAME_HELLO:
        return payload == FRAME_HELLO_BYTES;
    case FRAME_DATA:
        return payload >= 1;
    case FRAME_OFFLOADED:
        return payload > OFFLOAD_WIRE_BYTES;
    case FRAME_BYE:
    case FRAME_WELCOME:
        return payload == 0;
    case FRAME_REPORT:
        return payload == FRAME_REPORT_BYTES;
    case FRAME_REFUSAL:
        return payload >= 1 && payload <= FRAME_REFUSAL_MAX;
    default:
        return false;
    }
}

ssize_t frame_parse(const uint8_t *buffer, size_t bytes, struct frame *ret) {
    if (bytes < FRAME_HEADER_BYTES)
        return 0;
    const uint8_t *at = buffer;
    size_t payload = load(&at, 2);
    unsigned type = (unsigned)load(&at, 1), zero = (unsigned)load(&at, 1);
    uint64_t sequence = load(&at, 8);
    if (zero || payload > FRAME_PAYLOAD_MAX)
        return -EBADMSG;
    if (!payload_fits(type, payload))
        return -EBADMSG;
    if (bytes < FRAME_HEADER_BYTES + payload)
        return 0;
    *ret = (struct frame){(enum frame_type)type, (uint16_t)payload, sequence, at};
    return (ssize_t)(FRAME_HEADER_BYTES + payload);
}

void frame_header(uint8_t *buffer, enum frame_type type, size_t payload_bytes, uint64_t sequence) {
    uint8_t *at = store(buffer, payload_bytes, 2);
    at = store(at, type, 1);
    at = store(at, 0, 1);
    store(at, sequence, 8);
}

size_t frame_write_hello(uint8_t *buffer, const struct hello *hello) {
    frame_header(buffer, FRAME_HELLO, FRAME_HELLO_BYTES, 0);
    uint8_t *at = store(buffer + FRAME_HEADER_BYTES, FRAME_MAGIC, 4);
    at = store(at, FRAME_VERSION, 2);
    at = store(at, 0, 2);
    at = store(at, hello->session, 8);
    at = store(at, hello->next_sequence, 8);
    store(at, hello->period_us, 4);
    return FRAME_HEADER_BYTES + FRAME_HELLO_BYTES;
}

int frame_read_hello(const struct frame *frame, struct hello *ret) {
    if (frame->type != FRAME_HELLO || frame->payload_bytes != FRAME_HELLO_BYTES)
        return -EBADMSG;
    const uint8_t *at = frame->payload;
    if (load(&at, 4) != FRAME_MAGIC)
        return -EBADMSG;
    if (load(&at, 2) != FRAME_VERSION)
        return -EPROTONOSUPPORT;
    load(&at, 2);
    ret->session = load(&at, 8);
    ret->next_sequence = load(&at, 8);
    ret->period_us = (uint32_t)load(&at, 4);
    return 0;
}

size_t frame_write_report(uint8_t *buffer, const struct report *report) {
    frame_header(buffer, FRAME_REPORT, FRAME_REPORT_BYTES, 0);
    uint8_t *at = store(buffer + FRAME_HEADER_BYTES, report->number, 8);
    at = store(at, report->interval_us, 4);
    at = store(at, report->received_bytes, 8);
    at = store(at, report->received_bytes_total, 8);
    at = store(at, report->received_packets_total, 8);
    at = store(at, report->delivered_packets_total, 8);
    at = store(at, report->late_packets_total, 8);
    at = store(at, report->skipped_packets_total, 8);
    at = store(at, report->held_packets_maximum, 8);
    store(at, report->connections, 8);
    return FRAME_HEADER_BYTES + FRAME_REPORT_BYTES;
}

int frame_read_report(const struct frame *frame, struct report *ret) {
    if (frame->type != FRAME_REPORT || frame->payload_bytes != FRAME_REPORT_BYTES)
        return -EBADMSG;
    const uint8_t *at = frame->payload;
    ret->number = load(&at, 8);
    ret->interval_us = (uint32_t)load(&at, 4);
    ret->received_bytes = load(&at, 8);
    ret->received_bytes_total = load(&at, 8);
    ret->received_packets_total = load(&at, 8);
    ret->delivered_packets_total = load(&at, 8);
    ret->late_packets_total = load(&at, 8);
    ret->skipped_packets_total = load(&at, 8);
    ret->held_packets_maximum = load(&at, 8);
    ret->connections = load(&at, 8);
    return 0;
}

size_t frame_write_refusal(uint8_t *buffer, const char *sentence) {
    size_t bytes = strnlen(sentence, FRAME_REFUSAL_MAX);
    frame_header(buffer, FRAME_REFUSAL, bytes, 0);
    memcpy(buffer + FRAME_HEADER_BYTES, sentence, bytes);
    return FRAME_HEADER_BYTES + bytes;
}

int frame_read_refusal(const struct frame *frame, char ret[FRAME_REFUSAL_MAX + 1]) {
    if (frame->type != FRAME_REFUSAL || frame->payload_bytes > FRAME_REFUSAL_MAX)
        return -EBADMSG;
    for (size_t i = 0; i < frame->payload_bytes; i++)
        ret[i] = frame->payload[i] >= ' ' && frame->payload[i] <= '~' ? (char)frame->payload[i] : '?';
    ret[frame->payload_bytes] = '\0';
    return 0;
}
