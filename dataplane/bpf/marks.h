/* Marks of packets inside a node, from one program to those that run after it, or to itself for a clone. Included from
 * C and BPF. */
#pragma once

/* A clone that is still to become a signal. */
#define CHART_MARK_ORDER 0x43484f52u
/* A finished or verified signal. */
#define CHART_MARK_SIGNAL 0x43485347u
/* A clone that becomes a packet without data, for what Quick-Start has to say ahead of the data. */
#define CHART_MARK_AHEAD 0x43484148u
/* A packet with a Quick-Start request that the overlay takes from outside: a hop of it is spent, which the outer packet
 * does not tell any more. */
#define CHART_MARK_FORWARDED 0x43484657u
/* A SYN-ACK that an acknowledgement with its window follows. */
#define CHART_MARK_SYN_ACK 0x43485341u
