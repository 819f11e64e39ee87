/* The tunnel's side of an application's process: starting it, asking it with a limit, ending it. */
#ifndef ITM_PROCESS_H
#define ITM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "exchange.h"

#define PROCESS_FAULT_BYTES 256

struct process {
    pid_t pid;  /* 0: none */
    int socket; /* -1: none */
    uint32_t number;
};

/* The memory for packets that all applications of an end read: a descriptor, or a negative errno. */
int process_arena(uint8_t **ret);
/* Starts this program as the host of the file; returns at once: 0, or a negative errno. */
int process_start(struct process *process, const char *file, const char *argument, int arena);
/* What it says of its start: 0 with READY or REFUSED in *ret, -EAGAIN while it says nothing, -ECONNRESET: it ended. */
int process_started(struct process *process, struct exchange_answer *ret);
/* One request and its answer: 0, -ETIME when the answer did not come within limit_us, -ECONNRESET when the process
 * ended, -EBADMSG when the answer is none. The request's number is set here. */
int process_ask(struct process *process, struct exchange_request *request, uint64_t limit_us,
                struct exchange_answer *ret);
/* How it ended, as it has ended by itself; empty when that is not to be found out within some milliseconds. */
void process_how(struct process *process, char ret[PROCESS_FAULT_BYTES]);
/* Ends it without warning and without waiting. */
void process_end(struct process *process);
/* Buries processes that ended. */
void process_reap(void);

#endif
