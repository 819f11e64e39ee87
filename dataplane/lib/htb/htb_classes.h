/* The HTB classes of a CHART link. A classifier (dataplane/bpf) puts a packet into one by writing its class id into
 * skb->priority: HTB takes a priority whose upper half is its own handle as the class. Everything else is legacy.
 * Included from C and from BPF. */
#pragma once

/* Upper half of every handle; "C4A0" stands for CHART. */
#define HTB_MAJOR 0xC4A0u
#define HTB_CLASS_ID(minor) ((HTB_MAJOR << 16) | (minor))

#define HTB_MINOR_LINK 0x1u
/* Verified signals and expedited forwarding, priority 0. */
#define HTB_MINOR_EXPEDITED 0x10u
/* From which delay priority on, and up to which burst tolerance, a guaranteed rate is expedited: k = (BT + 1) / 4 <= 1.
 */
#define HTB_EXPEDITED_DELAY_PRIORITY 128
#define HTB_EXPEDITED_BURST_TOLERANCE 3
/* Flows under a grant, priority 1. */
#define HTB_MINOR_EXPLICIT_RATE 0x20u
/* Everything else, priority 2; the default. */
#define HTB_MINOR_LEGACY 0x30u
/* Less than best effort (DSCP CS1, RFC 8622), priority 3. */
#define HTB_MINOR_BACKGROUND 0x40u
