/* From dispersions of trains to the capacity; see modes.h. */
#include "modes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "statistics.h"

#define SAMPLES_MIN 3u
/* Width of the window that a mode begins with: this share of the range of 10 to 90 %, as in the original, but not less
 * than a share of the rate that timestamps cannot tell apart. */
#define WIDTH_OF_RANGE 0.125
#define WIDTH_OF_RATE_MIN 0.02
/* A bell grows while the next window holds fewer than this times the samples of the one before. */
#define BELL_GROWTH 1.10
/* A window with fewer samples is no mode: a share of all, or at least so many. */
#define MODE_SHARE_MIN 0.04
#define MODE_SAMPLES_MIN 3.0
/* Samples that vary less than this are one mode. */
#define NARROW_DEVIATION 0.05
/* Part of the trains that counts as having waited least. */
#define LEAST_WAIT_SHARE 0.1
#define LEAST_WAIT_MIN 5u
#define SHORT_DISPERSION_US 100.0

const char *pathrate_grounds_name(enum pathrate_grounds grounds) {
    static const char *const NAMES[] = {"narrow", "least wait", "merit", "lower bound"};

    return NAMES[grounds];
}

double pathrate_rate_bps(size_t packets, unsigned packet_bytes, double dispersion_us) {
    return 8.0 * packet_bytes * (double)(packets - 1) / dispersion_us * 1e6;
}

unsigned pathrate_length(double rate_bps, unsigned packet_bytes) {
    double gaps = ceil(SHORT_DISPERSION_US * rate_bps / (8e6 * packet_bytes));

    return (unsigned)fmin(16, fmax(1, gaps)) + 1;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double pathrate_trimmed_mean(double *values, size_t count) {
    size_t trimmed = count / 10;

    qsort(values, count, sizeof(*values), compare);
    return statistics_mean(values + trimmed, count - 2 * trimmed);
}

/* Rates in ascending order; those that belong to a mode already are marked as taken. */
struct series {
    size_t count;
    double width_bps;
    double rates_bps[PATHRATE_TRAINS_MAX];
    bool taken[PATHRATE_TRAINS_MAX];
};

/* Samples not taken within [from, from + width). */
static size_t window_count(const struct series *series, double from_bps, double *ret_last_bps) {
    size_t count = 0;

    for (size_t i = 0; i < series->count && series->rates_bps[i] < from_bps + series->width_bps; i++)
        if (!series->taken[i] && series->rates_bps[i] >= from_bps) {
            count++;
            *ret_last_bps = series->rates_bps[i];
        }
    return count;
}

/* The fullest window of the samples that are left; its beginning in `ret_from_bps`. */
static size_t fullest_window(const struct series *series, double *ret_from_bps) {
    size_t best = 0;

    for (size_t i = 0; i < series->count; i++) {
        double last_bps;
        size_t count;

        if (series->taken[i])
            continue;
        count = window_count(series, series->rates_bps[i], &last_bps);
        if (count > best) {
            best = count;
            *ret_from_bps = series->rates_bps[i];
        }
    }
    return best;
}

/* Grow the bell around a window to one side; returns its edge on that side. */
static double grow(const struct series *series, double from_bps, size_t count, int direction) {
    double edge_bps = direction > 0 ? from_bps + series->width_bps : from_bps;

    for (;;) {
        double next_bps = from_bps + direction * series->width_bps / 2;
        double last_bps;
        size_t next = window_count(series, next_bps, &last_bps);

        if (next == 0 || (double)next >= BELL_GROWTH * (double)count)
            return edge_bps;
        edge_bps = direction > 0 ? next_bps + series->width_bps : next_bps;
        from_bps = next_bps;
        count = next;
    }
}

/* Kurtosis of the samples between two rates: a narrow peak has a large one. */
static double kurtosis(const struct series *series, double low_bps, double high_bps) {
    double n = 0, mean = 0, second = 0, fourth = 0;

    for (size_t i = 0; i < series->count; i++)
        if (series->rates_bps[i] >= low_bps && series->rates_bps[i] <= high_bps) {
            mean += series->rates_bps[i];
            n++;
        }
    if (n == 0)
        return 0;
    mean /= n;
    for (size_t i = 0; i < series->count; i++)
        if (series->rates_bps[i] >= low_bps && series->rates_bps[i] <= high_bps) {
            double square = (series->rates_bps[i] - mean) * (series->rates_bps[i] - mean);

            second += square / n;
            fourth += square * square / n;
        }
    return second > 0 ? fourth / (second * second) : 3;
}

static void take_mode(struct series *series, double from_bps, size_t count, struct pathrate_mode *mode) {
    double low_bps = grow(series, from_bps, count, -1);
    double high_bps = grow(series, from_bps, count, 1);
    double inside_bps[PATHRATE_TRAINS_MAX] = {0};
    size_t inside = 0;

    mode->merit = kurtosis(series, low_bps, high_bps) * (double)count / (double)series->count;
    mode->count = count;
    for (size_t i = 0; i < series->count; i++) {
        double rate_bps = series->rates_bps[i];

        if (rate_bps >= from_bps && rate_bps < from_bps + series->width_bps && !series->taken[i])
            inside_bps[inside++] = rate_bps;
        if (rate_bps >= low_bps && rate_bps <= high_bps)
            series->taken[i] = true;
    }
    mode->low_bps = inside_bps[0];
    mode->high_bps = inside_bps[inside - 1];
    mode->middle_bps = statistics_percentile(inside_bps, inside, 0.5);
}

static void fill_series(const struct pathrate_sample *samples, size_t count, struct series *series) {
    size_t low, high;

    series->count = count < PATHRATE_TRAINS_MAX ? count : PATHRATE_TRAINS_MAX;
    for (size_t i = 0; i < series->count; i++)
        series->rates_bps[i] = samples[i].rate_bps;
    qsort(series->rates_bps, series->count, sizeof(double), compare);
    low = series->count / 10;
    high = series->count - 1 - low;
    series->width_bps = fmax(WIDTH_OF_RANGE * (series->rates_bps[high] - series->rates_bps[low]),
                             WIDTH_OF_RATE_MIN * series->rates_bps[series->count / 2]);
}

void pathrate_find_modes(const struct pathrate_sample *samples, size_t count, struct pathrate_modes *ret_modes) {
    struct series series = {0};

    ret_modes->count = 0;
    if (count < SAMPLES_MIN)
        return;
    fill_series(samples, count, &series);
    while (ret_modes->count < PATHRATE_MODES_MAX) {
        double from_bps = 0;
        size_t best = fullest_window(&series, &from_bps);

        if ((double)best < fmax(MODE_SAMPLES_MIN, MODE_SHARE_MIN * (double)series.count))
            return;
        take_mode(&series, from_bps, best, &ret_modes->modes[ret_modes->count++]);
    }
}

static int by_wait(const void *a, const void *b) {
    double x = ((const struct pathrate_sample *)a)->waited_us;
    double y = ((const struct pathrate_sample *)b)->waited_us;

    return (x > y) - (x < y);
}

/* Median rate of the trains that waited least. */
static double least_wait_rate(const struct pathrate_sample *samples, size_t count) {
    struct pathrate_sample sorted[PATHRATE_TRAINS_MAX];
    double rates_bps[PATHRATE_TRAINS_MAX];
    size_t least;

    if (count > PATHRATE_TRAINS_MAX)
        count = PATHRATE_TRAINS_MAX;
    memcpy(sorted, samples, count * sizeof(*samples));
    qsort(sorted, count, sizeof(*sorted), by_wait);
    least = (size_t)(LEAST_WAIT_SHARE * (double)count);
    if (least < LEAST_WAIT_MIN)
        least = LEAST_WAIT_MIN < count ? LEAST_WAIT_MIN : count;
    for (size_t i = 0; i < least; i++)
        rates_bps[i] = sorted[i].rate_bps;
    return statistics_percentile(rates_bps, least, 0.5);
}

static struct pathrate_estimate of_mode(const struct pathrate_mode *mode, enum pathrate_grounds grounds) {
    return (struct pathrate_estimate){grounds, mode->middle_bps, mode->low_bps, mode->high_bps};
}

static bool is_narrow(const struct pathrate_sample *samples, size_t count) {
    double mean = 0, variance = 0;

    for (size_t i = 0; i < count; i++)
        mean += samples[i].rate_bps / (double)count;
    for (size_t i = 0; i < count; i++)
        variance += (samples[i].rate_bps - mean) * (samples[i].rate_bps - mean) / (double)count;
    return sqrt(variance) < NARROW_DEVIATION * mean;
}

bool pathrate_estimate(const struct pathrate_sample *samples, size_t count, double adr_bps,
                       const struct pathrate_modes *modes, struct pathrate_estimate *ret_estimate) {
    const struct pathrate_mode *best = NULL;
    double least_wait_bps;

    if (count < SAMPLES_MIN)
        return false;
    if (modes->count && is_narrow(samples, count)) {
        *ret_estimate = of_mode(&modes->modes[0], PATHRATE_NARROW);
        return true;
    }
    least_wait_bps = least_wait_rate(samples, count);
    for (size_t i = 0; i < modes->count; i++) {
        const struct pathrate_mode *mode = &modes->modes[i];

        if (mode->high_bps < adr_bps)
            continue;
        if (least_wait_bps >= mode->low_bps && least_wait_bps <= mode->high_bps) {
            *ret_estimate = of_mode(mode, PATHRATE_LEAST_WAIT);
            return true;
        }
        if (!best || mode->merit > best->merit)
            best = mode;
    }
    if (best)
        *ret_estimate = of_mode(best, PATHRATE_MERIT);
    else
        *ret_estimate = (struct pathrate_estimate){PATHRATE_LOWER_BOUND, adr_bps, adr_bps, adr_bps};
    return best || adr_bps > 0;
}
