/* How a program asks for a rate for one of its sockets and learns what the path agreed to: two socket options that
 * exist for the processes of a cgroup on which chart-agent runs with --signal-file. Elsewhere they fail with
 * ENOPROTOOPT or EOPNOTSUPP, and the program goes on as without CHART. Rates are bits per second with IP headers
 * counted. */
#pragma once

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define CHART_SOL_SIGNAL 0x4348
/* setsockopt: ask; all zeros withdraws. getsockopt: what was asked. struct chart_socket_request. */
#define CHART_SO_REQUEST 1
/* getsockopt: what was agreed. struct chart_socket_rate. */
#define CHART_SO_RATE 2

struct chart_socket_request {
    __u64 guaranteed_bps;
    __u64 available_bps; /* ~0: as much as the path may give */
    __u8 preemption_priority;
    __u8 delay_priority;
    __u8 burst_tolerance; /* 0..15: bucket of (n + 1) / 4 round trips */
    __u8 service;         /* enum chart_service: 0 available, 1 guaranteed, 2 maximum, 3 variable */
    __u32 unused;
};

enum chart_socket_state {
    CHART_SOCKET_NONE = 0,    /* nothing was asked */
    CHART_SOCKET_ASKED = 1,   /* no answer yet */
    CHART_SOCKET_AGREED = 2,  /* a rate, until it expires */
    CHART_SOCKET_REFUSED = 3, /* the path cannot give what was asked; asked again later */
    CHART_SOCKET_LEGACY = 4   /* no answer through any carrier; asked again later */
};

struct chart_socket_rate {
    __u64 guaranteed_bps;
    __u64 available_bps;
    __u64 expires_ns; /* CLOCK_MONOTONIC; in the past: no rate now */
    __u32 state;      /* enum chart_socket_state */
    __u32 changes;    /* counts changes of the rate */
};
