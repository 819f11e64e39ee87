/* Summaries of a series of samples; see statistics.h. */
#include "statistics.h"

#include <math.h>
#include <stdlib.h>

double statistics_mean(const double *samples, size_t count) {
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += samples[i];
    return count ? sum / (double)count : 0;
}

double statistics_minimum(const double *samples, size_t count) {
    double minimum = count ? samples[0] : 0;

    for (size_t i = 1; i < count; i++)
        minimum = fmin(minimum, samples[i]);
    return minimum;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double statistics_percentile(double *samples, size_t count, double fraction) {
    double rank = ceil(fraction * (double)count);

    if (count == 0)
        return 0;
    qsort(samples, count, sizeof(*samples), compare);
    if (rank < 1)
        rank = 1;
    if (rank > (double)count)
        rank = (double)count;
    return samples[(size_t)rank - 1];
}

double statistics_jitter(const double *samples, size_t count) {
    double sum = 0;

    for (size_t i = 1; i < count; i++)
        sum += fabs(samples[i] - samples[i - 1]);
    return count > 1 ? sum / (double)(count - 1) : 0;
}
