/* What the classifier keeps of connections that use Quick-Start; included from C and BPF, as maps.h. */
#pragma once

#include "lib/advice/quick_start_host.h"

/* Addresses in network byte order, IPv4 as ::ffff:a.b.c.d; ports in host byte order. */
struct qs_flow_key {
    __u32 source[4];
    __u32 destination[4];
    __u16 source_port;
    __u16 destination_port;
};

/* QS_DUE: the clone that is on its way asks. */
enum qs_flow_state { QS_ASKED, QS_ANSWERED, QS_REPORTED, QS_DUE };

/* Map `qs_flows` (LRU hash): a connection that asked, as its sender sees it. */
struct qs_flow {
    struct chart_qs_asked asked;
    __u8 state; /* enum qs_flow_state */
    __u8 approved;
    __u8 lied_to; /* 1: it asks for nothing any more */
    /* CLOCK_MONOTONIC: the last request, the last packet with data. */
    __u64 asked_ns;
    __u64 sent_ns;
};

/* Map `qs_arrived` (LRU hash): a response that waits for a packet of a flow, and since when. */
struct qs_arrived {
    __u64 at_ns;
    __u8 response[CHART_QS_TCP_OCTETS];
};
