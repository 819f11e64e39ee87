/* The last path to each destination, to tell when it changes. */
#ifndef CHART_SENSORS_PATHS_H
#define CHART_SENSORS_PATHS_H

#include <stdbool.h>

#include "hop_trace.h"

#define PATHS_MAX 1024

enum path_change {
    PATH_UNKNOWN, /* no path to this destination was seen before */
    PATH_SAME,
    PATH_CHANGED,
};

/* Compare a path with the last one to the same destination and remember it; safe between threads. A hop that did not
 * answer is equal to any, and what was known of it stays known. */
enum path_change paths_note(const char *destination, const struct hop_trace *trace);

#endif
