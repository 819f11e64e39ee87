/* Summaries of a series of samples. */
#ifndef CHART_SENSORS_STATISTICS_H
#define CHART_SENSORS_STATISTICS_H

#include <stddef.h>

double statistics_mean(const double *samples, size_t count);
double statistics_minimum(const double *samples, size_t count);
/* Nearest-rank percentile, fraction 0..1. Sorts the samples in place. */
double statistics_percentile(double *samples, size_t count, double fraction);
/* Mean absolute difference of successive samples, in order of sending (the jitter of RFC 5481's PDV family,
 * unsmoothed). */
double statistics_jitter(const double *samples, size_t count);

#endif
