/* The 12-octet QoS structure and the 34 octets of a signal: between octets and fields (docs/signalling.md). */
#ifndef CHART_QOS_STRUCTURE_H
#define CHART_QOS_STRUCTURE_H

#include "qos_rate.h"

CHART_INLINE __u16 chart_get16(const __u8 *octets) {
    return (__u16)((octets[0] << 8) | octets[1]);
}

CHART_INLINE __u32 chart_get32(const __u8 *octets) {
    return ((__u32)octets[0] << 24) | ((__u32)octets[1] << 16) | ((__u32)octets[2] << 8) | octets[3];
}

CHART_INLINE void chart_put16(__u8 *ret_octets, __u32 value) {
    ret_octets[0] = (__u8)(value >> 8);
    ret_octets[1] = (__u8)value;
}

CHART_INLINE void chart_put32(__u8 *ret_octets, __u32 value) {
    chart_put16(ret_octets, value >> 16);
    chart_put16(ret_octets + 2, value);
}

/* Write the structure; fields wider than their place are cut, reserved bits of rates come out 0. */
CHART_INLINE void chart_qos_pack(__u8 ret_octets[CHART_QOS_OCTETS], const struct chart_qos *qos) {
    chart_put16(ret_octets, qos->guaranteed_rate & ~CHART_RATE_RESERVED);
    chart_put16(ret_octets + 2, qos->available_rate & ~CHART_RATE_RESERVED);
    ret_octets[4] = qos->preemption_priority;
    ret_octets[5] = qos->delay_priority;
    ret_octets[6] = (__u8)(((qos->direction & 1) << 7) | ((qos->status & 7) << 4) | (qos->flow_type & 15));
    ret_octets[7] = (__u8)(((qos->charging & 15) << 4) | (qos->burst_tolerance & 15));
    chart_put16(ret_octets + 8,
                ((__u32)(qos->service & 3) << 14) | ((__u32)(qos->version & 0x1fff) << 1) | (qos->lowered & 1));
    chart_put16(ret_octets + 10, qos->source_port);
}

/* Read the structure. BAD_VERSION, BAD_RESERVED or BAD_STATUS, in this order; every accepted structure packs back to
 * the same octets. */
CHART_INLINE int chart_qos_unpack(struct chart_qos *ret_qos, const __u8 octets[CHART_QOS_OCTETS]) {
    __u16 word = chart_get16(octets + 8);

    ret_qos->guaranteed_rate = chart_get16(octets);
    ret_qos->available_rate = chart_get16(octets + 2);
    ret_qos->preemption_priority = octets[4];
    ret_qos->delay_priority = octets[5];
    ret_qos->direction = octets[6] >> 7;
    ret_qos->status = (octets[6] >> 4) & 7;
    ret_qos->flow_type = octets[6] & 15;
    ret_qos->charging = octets[7] >> 4;
    ret_qos->burst_tolerance = octets[7] & 15;
    ret_qos->service = (__u8)(word >> 14);
    ret_qos->version = (word >> 1) & 0x1fff;
    ret_qos->lowered = word & 1;
    ret_qos->source_port = chart_get16(octets + 10);
    if (ret_qos->version != CHART_QOS_VERSION)
        return CHART_QOS_BAD_VERSION;
    if ((ret_qos->guaranteed_rate | ret_qos->available_rate) & CHART_RATE_RESERVED)
        return CHART_QOS_BAD_RESERVED;
    return ret_qos->status > CHART_REJECT ? CHART_QOS_BAD_STATUS : CHART_QOS_OK;
}

/* Lower both rates to what an element can give (rate words) and set M if that changed anything. Only requests and
 * renegotiations may be lowered; responses and confirms pass as they are. Returns 1 if something was lowered. */
CHART_INLINE int chart_qos_lower(struct chart_qos *qos, __u16 guaranteed_rate, __u16 available_rate) {
    __u16 guaranteed = chart_rate_min(qos->guaranteed_rate, guaranteed_rate);
    __u16 available = chart_rate_min(qos->available_rate, available_rate);

    if (guaranteed == qos->guaranteed_rate && available == qos->available_rate)
        return 0;
    qos->guaranteed_rate = guaranteed;
    qos->available_rate = available;
    qos->lowered = 1;
    return 1;
}

/* The 18 octets before the tag. */
CHART_INLINE void chart_signal_pack_signed(__u8 ret_octets[CHART_SIGNED_OCTETS], const struct chart_signal *signal) {
    chart_qos_pack(ret_octets, &signal->qos);
    chart_put16(ret_octets + 12, signal->sender);
    chart_put32(ret_octets + 14, ((__u32)signal->epoch << 24) | (signal->sequence & CHART_SEQUENCE_MAX));
}

CHART_INLINE void chart_signal_pack(__u8 ret_octets[CHART_SIGNAL_OCTETS], const struct chart_signal *signal) {
    chart_signal_pack_signed(ret_octets, signal);
    __builtin_memcpy(ret_octets + CHART_SIGNED_OCTETS, signal->tag, CHART_TAG_OCTETS);
}

/* Read 34 octets; errors as chart_qos_unpack. The tag is read, not verified. */
CHART_INLINE int chart_signal_unpack(struct chart_signal *ret_signal, const __u8 octets[CHART_SIGNAL_OCTETS]) {
    __u32 word = chart_get32(octets + 14);

    ret_signal->sender = chart_get16(octets + 12);
    ret_signal->epoch = (__u8)(word >> 24);
    ret_signal->sequence = word & CHART_SEQUENCE_MAX;
    __builtin_memcpy(ret_signal->tag, octets + CHART_SIGNED_OCTETS, CHART_TAG_OCTETS);
    return chart_qos_unpack(&ret_signal->qos, octets);
}

#endif
