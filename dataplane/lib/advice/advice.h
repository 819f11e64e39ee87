/* Advice: the rate that a flow is told which CHART does not control, for BPF programs and user space alike. Formats
 * that carry it are files of their own beside this one. Pure. */
#pragma once

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define CHART_ADVICE_INLINE static inline __attribute__((always_inline, unused))

/* What every flow without a grant may send on a link, and what new flows may begin with together; each until a time of
 * CLOCK_MONOTONIC. `scone`, `quick_start`: in which formats it is told. */
struct chart_link_advice {
    __u64 fair_bps;
    __u64 fair_expires_ns;
    __u64 spare_bps;
    __u64 spare_expires_ns;
    __u32 scone;
    __u32 quick_start;
    /* The most that one flow may begin with. */
    __u64 begin_bps;
    /* 1: flows that send more than their advice over a monitoring period of SCONE lose what is above it. */
    __u32 scone_police;
    /* 1: only flows from or to the link's prefixes are served. */
    __u32 prefixes;
};

/* The rate to advise, bits per second with IP headers: that of the flow's grant in force, else the fair rate of the
 * link while it holds, else 0: no advice. `granted_bps` 0: no rate in force. */
CHART_ADVICE_INLINE __u64 chart_advice_bps(const struct chart_link_advice *link, __u64 granted_bps, __u64 now_ns) {
    if (granted_bps)
        return granted_bps;
    return now_ns < link->fair_expires_ns ? link->fair_bps : 0;
}
