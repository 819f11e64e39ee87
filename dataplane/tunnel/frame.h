/* The format inside the tunnel's TCP connections. Numbers in network order, a header of 12 bytes before each payload:
 *
 *   0  u16  bytes of payload, up to FRAME_PAYLOAD_MAX
 *   2  u8   type
 *   3  u8   0
 *   4  u64  DATA: number of the user's packet in the tunnel, one sequence over all connections; else 0
 *
 *   HELLO (first on every connection, from the origin): u32 magic, u16 version, u16 0, u64 session, u64 next number,
 *         u32 measurement period in us. A new session is a new sequence.
 *   WELCOME (the destination's answer): users' packets may come; before it a connection carries none
 *   REFUSAL (instead of WELCOME, before the destination closes): a sentence that says why
 *   DATA  an IP packet
 *   OFFLOADED  10 bytes of struct offload, then an IP packet whose checksum or segmentation is still to be done
 *   BYE   the origin will send nothing more here and closes its side: all frames before it are complete
 *   REPORT (from the destination, on one connection per measurement period): struct report below
 *
 * Pure: reads and writes memory only. */
#ifndef ITM_FRAME_H
#define ITM_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FRAME_HEADER_BYTES 12
#define FRAME_PAYLOAD_MAX 16384
#define FRAME_MAGIC 0x4348544eU /* "CHTN" */
#define FRAME_VERSION 2
#define FRAME_HELLO_BYTES 28
#define FRAME_REPORT_BYTES 76
#define FRAME_REFUSAL_MAX 160

enum frame_type {
    FRAME_HELLO = 1,
    FRAME_DATA,
    FRAME_BYE,
    FRAME_REPORT,
    FRAME_WELCOME,
    FRAME_REFUSAL,
    FRAME_OFFLOADED,
};

struct frame {
    enum frame_type type;
    uint16_t payload_bytes;
    uint64_t sequence;
    const uint8_t *payload;
};

struct hello {
    uint64_t session, next_sequence;
    uint32_t period_us;
};

/* What the destination measured; totals since its session began. */
struct report {
    uint64_t number;         /* of the period, from 1 */
    uint32_t interval_us;    /* how long it was */
    uint64_t received_bytes; /* TCP payload over all connections in the period */
    uint64_t received_bytes_total, received_packets_total;
    uint64_t delivered_packets_total; /* put back on the wire */
    uint64_t late_packets_total;      /* of those: after a later one, their gap had been given up */
    uint64_t skipped_packets_total;   /* numbers given up */
    uint64_t held_packets_maximum;    /* most in the resequencing buffer at once, in the period */
    uint64_t connections;             /* open at the destination at the end of the period */
};

/* Reads the frame at the start of a buffer: returns its length (header and payload), 0 when more bytes are needed, or
 * -EBADMSG when this can be no frame; *ret is written on success only. */
ssize_t frame_parse(const uint8_t *buffer, size_t bytes, struct frame *ret);
/* Writes a header; the payload follows it. */
void frame_header(uint8_t *buffer, enum frame_type type, size_t payload_bytes, uint64_t sequence);
/* Whole frames: return their length (FRAME_HEADER_BYTES + FRAME_HELLO_BYTES and so on). */
size_t frame_write_hello(uint8_t *buffer, const struct hello *hello);
size_t frame_write_report(uint8_t *buffer, const struct report *report);
/* Cuts the sentence to FRAME_REFUSAL_MAX bytes. */
size_t frame_write_refusal(uint8_t *buffer, const char *sentence);
/* Payloads: 0, -EBADMSG, or -EPROTONOSUPPORT for another version. */
int frame_read_hello(const struct frame *frame, struct hello *ret);
int frame_read_report(const struct frame *frame, struct report *ret);
/* What cannot be printed becomes `?`. */
int frame_read_refusal(const struct frame *frame, char ret[FRAME_REFUSAL_MAX + 1]);

#endif
