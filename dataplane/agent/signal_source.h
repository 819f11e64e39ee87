/* What gives signalling its tables besides --signal-file: the client of the authority. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct signal_file;

/* Take the tables over, also when signalling does not run; asks and links of --signal-file stay as they are. */
void signal_source_take(struct signal_file *tables);
/* Whether the sequence towards an element has passed the half of its range, so that a new epoch is due. */
bool signal_source_exhausted(uint16_t element);
/* Signals that were not taken, by reason, since the start; reasons that did not occur are left out. Returns how many.
 */
struct signal_refused {
    const char *reason;
    uint64_t count;
};
#define SIGNAL_REFUSED_MAX 24
size_t signal_source_refused(struct signal_refused ret[SIGNAL_REFUSED_MAX]);
/* The ring `signal_reports`, of signals that failed here: its descriptor; negative when signalling does not run. */
int signal_source_reports(void);
