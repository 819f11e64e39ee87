/* What a program tells the service manager: the protocol of sd_notify(3), datagrams to the socket that $NOTIFY_SOCKET
 * names. Without that variable nothing is sent. */
#ifndef CHART_NOTIFY_H
#define CHART_NOTIFY_H

#include <stdint.h>

/* The program works (READY=1), or ends by itself (STOPPING=1). */
void notify_ready(void);
void notify_stopping(void);
/* Microseconds between two signs of life: half of what the watchdog waits ($WATCHDOG_USEC); 0: it does not. */
uint64_t notify_period_us(void);
/* A sign of life (WATCHDOG=1). */
void notify_alive(void);
/* The same for a loop that comes by at least once a second: sends one when the period is over. */
void notify_alive_at(uint64_t now_us);

#endif
