/* Wire format between a two-ended sensor and the sensor-responder. Everything is in network byte order.
 *
 *  offset size
 *   0     4    magic "CHPR"
 *   4     1    version (1)
 *   5     1    type, enum wire_type
 *   6     2    key id
 *   8     2    length of the whole datagram (UDP payload); must equal what arrived
 *  10     2    payload length; the rest up to `length` is padding
 *  12     4    train: number of the chirp (CHIRP, FETCH, TRAIN); ECHO_REPLY: time spent in the responder, ns
 *  16     8    session, chosen at random by the sensor
 *  24     8    token, chosen at random by the responder and learned from WELCOME; 0 in HELLO
 *  32     8    time, ns since the epoch: HELLO: sensor's clock (replay floor); ECHO_REPLY: arrival at the responder;
 *              TRAIN: arrival of the first packet of the train
 *  40     4    sequence, strictly new in each datagram of a session (replay window)
 *  44     2    index: packet within the train; FETCH, TRAIN: first index asked for
 *  46     2    count: packets in the train; TRAIN: entries in the payload
 *  48    16    HMAC-SHA-256, first 16 bytes
 *  64          payload, padding
 *
 * The code covers source and destination address and port, then the datagram without the code itself. A datagram that
 * is sent on under another source address is therefore no longer authentic: the responder cannot be aimed at a third
 * party by one who does not hold the key, and works through no address translation.
 *
 * Exchange: HELLO -> WELCOME(token); then ECHO -> ECHO_REPLY, or CHIRP... and FETCH -> TRAIN.
 * A reply is never longer than the request: who wants a long TRAIN pads its FETCH. */
#ifndef CHART_SENSORS_WIRE_H
#define CHART_SENSORS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC 0x43485052u
#define WIRE_VERSION 1
#define WIRE_HEADER_BYTES 64u
#define WIRE_MAC_OFFSET 48u
#define WIRE_MAC_BYTES 16u
/* Largest UDP payload in a 1500-byte IPv4 packet. */
#define WIRE_DATAGRAM_MAX_BYTES 1472u
/* IP and UDP headers, added to payload when bytes or rates on the path are counted. */
#define WIRE_IPV4_UDP_BYTES 28u
#define WIRE_IPV6_UDP_BYTES 48u
/* One entry of a TRAIN payload: index (2 bytes), arrival after the first packet in ns (4 bytes). */
#define WIRE_TRAIN_ENTRY_BYTES 6u
#define WIRE_DEFAULT_PORT 18300

enum wire_type {
    WIRE_HELLO = 1,
    WIRE_WELCOME = 2,
    WIRE_ECHO = 3,
    WIRE_ECHO_REPLY = 4,
    WIRE_CHIRP = 5,
    WIRE_FETCH = 6,
    WIRE_TRAIN = 7,
};

struct wire_header {
    uint8_t type;
    uint16_t key_id;
    uint16_t length;
    uint16_t payload_length;
    uint32_t train;
    uint64_t session;
    uint64_t token;
    uint64_t time_ns;
    uint32_t sequence;
    uint16_t index;
    uint16_t count;
};

struct wire_train_entry {
    uint16_t index;
    uint32_t after_first_ns;
};

/* Write the header without its code; `datagram` holds at least WIRE_HEADER_BYTES. */
void wire_encode(const struct wire_header *header, uint8_t *datagram);
/* Read and check a header; -EBADMSG when magic, version, type or a length is wrong. The code is not checked here. */
int wire_decode(const uint8_t *datagram, size_t length, struct wire_header *ret_header);

void wire_encode_train_entry(uint8_t *payload, size_t position, const struct wire_train_entry *entry);
/* Entries of a decoded TRAIN; returns their number or -EBADMSG when the payload does not hold what count says. */
int wire_decode_train(const uint8_t *datagram, const struct wire_header *header, struct wire_train_entry *ret_entries,
                      size_t capacity);

#endif
