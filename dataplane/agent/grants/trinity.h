/* The one trinity of this kernel, shared by every agent that runs on it. */
#pragma once

struct trinity {
    /* Keeps the registration alive; the kernel drops it with the last agent's descriptor, also after a kill. */
    int link_fd;
    int rates_fd;
    int usage_fd;
    int flows_fd;
};

/* Join the trinity that another agent has registered, or load and register it. 0 or a negative errno; -EEXIST: there is
 * one, and neither the kernel nor another agent hands it over. */
int trinity_open(struct trinity *ret);
void trinity_close(struct trinity *trinity);
