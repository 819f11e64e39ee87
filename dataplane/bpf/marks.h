/* Marks of packets inside a node, from the program `signal` to those that run after it. Included from C and BPF. */
#pragma once

/* A clone that is still to become a signal. */
#define CHART_MARK_ORDER 0x43484f52u
/* A finished or verified signal. */
#define CHART_MARK_SIGNAL 0x43485347u
