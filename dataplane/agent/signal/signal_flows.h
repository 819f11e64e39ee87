/* The flows that ask for their rates in band, as this element sees them: what `--explain` and the node's state tell. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct signal_tables;

/* Of one direction of a flow, from the end that sends to the other one. Strings live as long as the program. */
struct signal_flow {
    char source[64]; /* 10.0.0.1:5001 or [fd00::1]:5001 */
    char destination[64];
    uint8_t protocol;
    const char *role;  /* origin (asks), transit, last (answers) */
    const char *state; /* origin: asked, agreed, expired, refused, legacy; transit: kept, idle; last: answered */
    const char *carrier;
    uint16_t element;    /* neighbour that signals are signed for: towards the destination, last: back; 0: none */
    uint8_t key_epoch;   /* of the key they are signed with; 0: no key */
    uint64_t kept_bps;   /* guaranteed rate that this element's link keeps */
    uint64_t agreed_bps; /* origin: rate of the flow; others: what was asked when it passed here */
    uint32_t age_ms;     /* since the last request or renewal */
    uint32_t lease_ms;   /* origin: until the rate ends unless it is renewed */
};

/* The flows that were signalled lately, at most `max` of them; returns how many. */
size_t signal_tables_flows(const struct signal_tables *tables, struct signal_flow *ret, size_t max);
