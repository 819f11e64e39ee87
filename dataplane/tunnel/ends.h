/* The two ends of a tunnel; each runs until it is told to end and returns the exit status. */
#ifndef ITM_ENDS_H
#define ITM_ENDS_H

#include "options.h"

int origin_run(const struct options *options);
int destination_run(const struct options *options);

#endif
