/* Runs one of the system's programs to its end. */
#ifndef PROXY_COMMAND_H
#define PROXY_COMMAND_H

#include <stddef.h>

#define COMMAND_LIMIT_MS 10000
#define COMMAND_INPUT_BYTES 16384

/* Gives it `input` (at most COMMAND_INPUT_BYTES) on standard input; what it says on standard error goes to `said`, cut
 * to its size, in one line. Its exit status, or a negative errno: -ENOENT there is no such program, -ETIME it was ended
 * after COMMAND_LIMIT_MS. */
int command_run(char *const arguments[], const char *input, char *said, size_t said_bytes);

#endif
