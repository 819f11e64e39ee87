/* The agent's classifiers on interfaces: by links (tcx) where the kernel has them, else as filters of clsact in direct
 * action. Links end with their holder, also after a kill; filters stay until kernel_clean_tc or the next agent on that
 * interface. */
#pragma once

#include <stdint.h>

/* In the order in which they see a packet. */
enum kernel_tc_place {
    /* Ingress. What the policer drops nobody else shall count. */
    KERNEL_TC_POLICE,
    KERNEL_TC_SIGNAL_IN,
    /* Looks at what the others let pass. */
    KERNEL_TC_QUICK_START_IN,
    /* The overlay takes what the others have seen. */
    KERNEL_TC_OVERLAY_IN,
    /* Egress. What goes into the overlay leaves this interface in another shape, if at all. */
    KERNEL_TC_OVERLAY_OUT,
    /* The classifier must not see a clone of a signal before it has its length. */
    KERNEL_TC_SIGNAL_OUT,
    KERNEL_TC_CLASSIFY,
};

struct kernel_tc {
    /* The link; -1 for a filter. */
    int fd;
    uint32_t ifindex; /* 0: not attached */
    enum kernel_tc_place place;
};

/* Attach a program to a place of an interface. 0 or a negative errno, *ret then not attached. */
int kernel_attach_tc(int program_fd, uint32_t ifindex, enum kernel_tc_place place, struct kernel_tc *ret);
/* Does nothing to what is not attached. Takes clsact along when no filter is left on it. */
void kernel_detach_tc(struct kernel_tc *attached);

/* Remove the filters that a killed agent left on the interfaces of this network namespace; others' stay. How many, or a
 * negative errno. Does nothing on kernels with tcx. */
int kernel_clean_tc(void);
