/* Constants, errors and structures of the signalling codec. Octets in packets are in network order, fields here are in
 * host order; addresses and selectors stay octets. */
#ifndef CHART_QOS_TYPES_H
#define CHART_QOS_TYPES_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define CHART_INLINE static inline __attribute__((always_inline, unused))
/* A function of its own. In BPF it is global, so that the verifier looks at it once and not on every path to it. */
#ifdef __bpf__
#define CHART_CALLED __attribute__((noinline, weak))
#else
#define CHART_CALLED static __attribute__((noinline, unused))
#endif

/* Hides from the compiler what it knows of a value, so that it keeps the bounds check the BPF verifier looks for. */
#ifdef __bpf__
#define CHART_OPAQUE(value) __asm__ volatile("" : "+r"(value))
#else
#define CHART_OPAQUE(value) ((void)0)
#endif

#define CHART_QOS_OCTETS 12
#define CHART_QOS_VERSION 1 /* fixes field widths, code points and the order of bits in a rate word */
#define CHART_TAG_OCTETS 16
#define CHART_KEY_OCTETS 32
#define CHART_SIGNAL_OCTETS 34 /* structure 12, sender 2, epoch 1, sequence 3, tag 16 */
#define CHART_SIGNED_OCTETS 18 /* what of these stands before the tag */

#define CHART_IPV4_OPTION_TYPE 0x9e /* RFC 4727 section 2.3: experimental, copied */
#define CHART_IPV4_OPTION_OCTETS 36 /* type, length, signal */
#define CHART_IPV4_HEADER 20
#define CHART_IPV4_HEADER_MAX 60

#define CHART_IPV6_OPTION_TYPE 0x3e /* RFC 4727 section 3.6: skip if unknown, may change on the way */
#define CHART_IPV6_HOP_OCTETS 40    /* next header, length, type, length, signal, PadN 2 */
#define CHART_IPV6_HEADER 40
#define CHART_IPV6_HOP_MAX 128    /* octets; a longer hop-by-hop header is not searched */
#define CHART_IPV6_OPTIONS_MAX 16 /* options and pads looked at in one hop-by-hop header */
#define CHART_IPV6_EXTENSIONS_MAX 4

/* Parsers read at most this much of a packet. In BPF the buffer given to them has this size, whatever its fill. */
#define CHART_PARSE_MAX 256

#define CHART_SHIM_PORT 18400 /* UDP, between elements */
#define CHART_SHIM_MAGIC 0x4348
#define CHART_SHIM_VERSION 1
#define CHART_SHIM_IPV4_OCTETS 54 /* head 8, signal 34, selector 4, addresses 8 */
#define CHART_SHIM_IPV6_OCTETS 78 /* head 8, signal 34, selector 4, addresses 32 */

#define CHART_SEQUENCE_MAX 0xffffffu    /* 24 bits; 0 is never sent */
#define CHART_SEQUENCE_RENEW (1u << 23) /* from here on the sender wants a new epoch */
#define CHART_REPLAY_WINDOW 4096u       /* sequences */
/* More blocks than the window needs (65), so that an index is a mask, which the BPF verifier follows: RFC 6479
 * section 3. */
#define CHART_REPLAY_BLOCKS 128u

enum chart_qos_error {
    CHART_QOS_OK = 0,
    CHART_QOS_TRUNCATED = 1,         /* the packet ends before its headers do */
    CHART_QOS_NOT_IP = 2,            /* not the IP version asked for */
    CHART_QOS_BAD_HEADER = 3,        /* lengths in the IP or an extension header contradict each other */
    CHART_QOS_NO_SIGNAL = 4,         /* a sound packet without a signal */
    CHART_QOS_BAD_OPTION = 5,        /* an option leaves the header, or there are too many */
    CHART_QOS_BAD_SIGNAL_LENGTH = 6, /* our option type with another length */
    CHART_QOS_DUPLICATE = 7,         /* two signals in one packet */
    CHART_QOS_FRAGMENT = 8,          /* an IPv4 fragment: its ports cannot be told */
    CHART_QOS_BAD_VERSION = 9,       /* QoS Version is not ours */
    CHART_QOS_BAD_RESERVED = 10,     /* a reserved bit is set */
    CHART_QOS_BAD_STATUS = 11,       /* status 7 has no meaning */
    CHART_QOS_NOT_SHIM = 12,         /* the datagram is not of the shim */
    CHART_QOS_BAD_SHIM = 13,         /* shim of another version, family or length */
    CHART_QOS_NO_ROOM = 14,          /* the header carries options already, or the packet would grow too long */
    CHART_QOS_UNKNOWN_SENDER = 15,   /* no key for this element */
    CHART_QOS_UNKNOWN_EPOCH = 16,    /* the epoch is not accepted (any more) */
    CHART_QOS_TOO_OLD = 17,          /* the sequence lies before the window */
    CHART_QOS_REPLAYED = 18,         /* the sequence was accepted before */
    CHART_QOS_BAD_TAG = 19,          /* the tag does not verify */
    CHART_QOS_EXHAUSTED = 20,        /* no sequence left in this epoch */
    CHART_QOS_EPOCH_IN_USE = 21,     /* an epoch is never installed while it is accepted */
    CHART_QOS_ERRORS = 22            /* how many there are: the size of an array of counters */
};

enum chart_direction { CHART_FORWARD = 0, CHART_BACKWARD = 1 };

enum chart_status {
    CHART_REQUEST = 0,
    CHART_RESPONSE = 1,
    CHART_CONFIRM = 2,
    CHART_RENEGOTIATE = 3,
    CHART_RENEGOTIATE_RESPONSE = 4,
    CHART_CLOSE = 5,
    CHART_REJECT = 6
};

enum chart_flow_type { CHART_UNSPECIFIED = 0, CHART_TCP = 1, CHART_UDP = 2, CHART_QUIC = 3, CHART_AGGREGATE = 4 };

enum chart_service { CHART_AVAILABLE = 0, CHART_GUARANTEED = 1, CHART_MAXIMUM = 2, CHART_VARIABLE = 3 };

/* The QoS structure. Rates stay words, so that an element that changes nothing changes no bit. */
struct chart_qos {
    __u16 guaranteed_rate;    /* rate word, qos_rate.h */
    __u16 available_rate;     /* rate word */
    __u16 version;            /* 13 bits */
    __u16 source_port;        /* of the flow */
    __u8 preemption_priority; /* 0 lowest, 255 highest */
    __u8 delay_priority;      /* 0 lowest, 255 highest */
    __u8 direction;           /* enum chart_direction */
    __u8 status;              /* enum chart_status */
    __u8 flow_type;           /* enum chart_flow_type, 4 bits; unknown values count as unspecified */
    __u8 charging;            /* charging direction, 4 bits */
    __u8 burst_tolerance;     /* 0..15: bucket of (BT + 1) / 4 round trips */
    __u8 service;             /* enum chart_service, never altered on the way */
    __u8 lowered;             /* M: 1 once an element lowered a field */
};

struct chart_signal {
    struct chart_qos qos;
    __u32 sequence; /* 24 bits, 1 is the first of an epoch */
    __u16 sender;   /* element that signed */
    __u8 epoch;     /* of the key */
    __u8 tag[CHART_TAG_OCTETS];
};

/* The flow a signal speaks of; also a map key, so unused octets are 0. */
struct chart_flow {
    __u8 family;   /* 4 or 6 */
    __u8 protocol; /* upper layer; where ports are hidden, the last header that could be seen */
    __u8 source[16];
    __u8 destination[16];
    __u8 selector[4]; /* source and destination port; IPv6 with hidden ports: the flow label; IPv4 then: 0 */
};

struct chart_parsed {
    struct chart_signal signal;
    struct chart_flow flow;
    __u32 signal_offset;    /* octets from the start of the packet (or datagram) to the 34 */
    __u32 transport_offset; /* octets to the header that `protocol` names; 0 in a shim */
};

#endif
