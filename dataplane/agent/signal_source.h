/* What gives signalling its tables besides --signal-file: the client of the authority. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct signal_file;

/* Take the tables over, also when signalling does not run; asks and links of --signal-file stay as they are. */
void signal_source_take(struct signal_file *tables);
/* Whether the sequence towards an element has passed the half of its range, so that a new epoch is due. */
bool signal_source_exhausted(uint16_t element);
/* The ring `signal_reports`, of signals that failed here: its descriptor; negative when signalling does not run. */
int signal_source_reports(void);
