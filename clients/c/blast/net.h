/* Opening the socket of a flow, and waiting on it. Functions return 0 or a negative errno, after a sentence on standard
 * error. */
#ifndef BLAST_NET_H
#define BLAST_NET_H

#include <signal.h>

#include "account.h"

/* Set by SIGINT and SIGTERM: come to an end in order. */
extern volatile sig_atomic_t blast_stop;

__attribute__((format(printf, 2, 3))) int blast_failed(int error, const char *format, ...);

/* A connected socket: opened, with the rate asked for before the first packet, or accepted. Sets start_ns and open_ns.
 */
int blast_open_stream(struct blast_account *account, int *ret_socket);
/* The sender's is connected, the receiver's bound. */
int blast_open_datagram(struct blast_account *account, int *ret_socket);
/* Waits up to wait_ns. Returns poll's result, 0 also after a signal. `watch` may be NULL; its changes go into the
 * account. */
int blast_wait(struct blast_account *account, struct chart_watch *watch, int socket, short events, uint64_t wait_ns);

#endif
