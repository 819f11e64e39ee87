/* The greatest TCP buffers of the network namespace: data behind a lost packet waits in them, so that 100 Mb/s over
 * 200 ms at 10 % loss needs some 30 MB at both ends, more than a kernel's default allows. */
#pragma once

#include <stdint.h>

/* Raise net.ipv4.tcp_rmem and tcp_wmem to 64 MB where they are lower. Returns the receive window a socket may have, in
 * octets; 0 when the limits cannot be read. Failing to raise them is logged and no error: flows work, less fast. */
uint32_t limits_raise(void);
void limits_restore(void);
