/* The proxy's transparent sockets. */
#ifndef PROXY_SOCKETS_H
#define PROXY_SOCKETS_H

#include <stdint.h>

#include "flow.h"
#include "options.h"

/* Where TPROXY delivers to: the port on loopback, so that nobody connects to it from outside. A descriptor, or a
 * negative errno after a sentence on standard error. */
int sockets_listen(const struct options *options, int family);
/* What both sides of a connection have in common. Closing one resets it, unless sockets_close does: so both hosts learn
 * at once of a proxy that was killed. 0 or a negative errno. */
int sockets_tune(const struct options *options, int descriptor);
/* Begins to connect to the server from the client's own address, and from its port where that is free and wanted. A
 * descriptor or a negative errno. */
int sockets_connect(const struct options *options, const struct flow *flow, uint8_t dscp);
/* Why the connection broke; 0: it did not. */
int sockets_error(int descriptor);
/* 1: connected, 0: not yet, or a negative errno. */
int sockets_connected(int descriptor);
/* Whether the other end has acknowledged everything, the end too. */
int sockets_all_arrived(int descriptor);
/* Closes it in order, or with a reset. */
void sockets_close(int descriptor, int in_order);

#endif
