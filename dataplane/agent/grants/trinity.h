/* The one trinity of this kernel, shared by every agent that runs on it. */
#pragma once

#include <stdbool.h>

struct trinity {
    /* Keeps the registration alive; the kernel drops it with the last agent's descriptor, also after a kill. On kernels
     * without links for operations it is the map that is registered, and stays so until an agent takes it back: the
     * last one that ends, or the next one that starts (and --cleanup). */
    int link_fd;
    int rates_fd;
    int usage_fd;
    int flows_fd;
    /* On kernels without such links: held, with a shared lock, by every agent that uses trinity; else -1. */
    int users_fd;
    /* One that a killed agent left was taken back first. */
    bool replaced;
};

#define TRINITY_NONE ((struct trinity){.link_fd = -1, .rates_fd = -1, .usage_fd = -1, .flows_fd = -1, .users_fd = -1})

/* Join the trinity that another agent has registered, or load and register it. 0 or a negative errno; -EEXIST: there is
 * one, and neither the kernel nor another agent hands it over. */
int trinity_open(struct trinity *ret);
void trinity_close(struct trinity *trinity);
