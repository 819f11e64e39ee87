/* Wire format of two-ended sensors; see wire.h. */
#include "wire.h"

#include <errno.h>
#include <string.h>

static void put16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value) {
    put16(at, (uint16_t)(value >> 16));
    put16(at + 2, (uint16_t)value);
}

static void put64(uint8_t *at, uint64_t value) {
    put32(at, (uint32_t)(value >> 32));
    put32(at + 4, (uint32_t)value);
}

static uint16_t get16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t get32(const uint8_t *at) {
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static uint64_t get64(const uint8_t *at) {
    return (uint64_t)get32(at) << 32 | get32(at + 4);
}

void wire_encode(const struct wire_header *header, uint8_t *datagram) {
    put32(datagram, WIRE_MAGIC);
    datagram[4] = WIRE_VERSION;
    datagram[5] = header->type;
    put16(datagram + 6, header->key_id);
    put16(datagram + 8, header->length);
    put16(datagram + 10, header->payload_length);
    put32(datagram + 12, header->train);
    put64(datagram + 16, header->session);
    put64(datagram + 24, header->token);
    put64(datagram + 32, header->time_ns);
    put32(datagram + 40, header->sequence);
    put16(datagram + 44, header->index);
    put16(datagram + 46, header->count);
    memset(datagram + WIRE_MAC_OFFSET, 0, WIRE_MAC_BYTES);
}

int wire_decode(const uint8_t *datagram, size_t length, struct wire_header *ret_header) {
    struct wire_header header;

    if (length < WIRE_HEADER_BYTES || length > WIRE_DATAGRAM_MAX_BYTES)
        return -EBADMSG;
    if (get32(datagram) != WIRE_MAGIC || datagram[4] != WIRE_VERSION)
        return -EBADMSG;
    header.type = datagram[5];
    header.key_id = get16(datagram + 6);
    header.length = get16(datagram + 8);
    header.payload_length = get16(datagram + 10);
    header.train = get32(datagram + 12);
    header.session = get64(datagram + 16);
    header.token = get64(datagram + 24);
    header.time_ns = get64(datagram + 32);
    header.sequence = get32(datagram + 40);
    header.index = get16(datagram + 44);
    header.count = get16(datagram + 46);
    if (header.type < WIRE_HELLO || header.type > WIRE_TRAIN)
        return -EBADMSG;
    if (header.length != length || header.payload_length > length - WIRE_HEADER_BYTES)
        return -EBADMSG;
    *ret_header = header;
    return 0;
}

void wire_encode_train_entry(uint8_t *payload, size_t position, const struct wire_train_entry *entry) {
    uint8_t *at = payload + position * WIRE_TRAIN_ENTRY_BYTES;

    put16(at, entry->index);
    put32(at + 2, entry->after_first_ns);
}

int wire_decode_train(const uint8_t *datagram, const struct wire_header *header, struct wire_train_entry *ret_entries,
                      size_t capacity) {
    const uint8_t *at = datagram + WIRE_HEADER_BYTES;

    if (header->type != WIRE_TRAIN || header->count > capacity)
        return -EBADMSG;
    if (header->payload_length != header->count * WIRE_TRAIN_ENTRY_BYTES)
        return -EBADMSG;
    for (size_t i = 0; i < header->count; i++, at += WIRE_TRAIN_ENTRY_BYTES) {
        ret_entries[i].index = get16(at);
        ret_entries[i].after_first_ns = get32(at + 2);
    }
    return header->count;
}
