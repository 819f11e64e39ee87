/* Analysis of one chirp; see analysis.h. */
#include "analysis.h"

#include <math.h>
#include <string.h>

#include "statistics.h"

#define POINTS_MIN 5
/* A spike lasts this many packets at most; less than half of the busy period L. */
#define SPIKE_PACKETS 2
#define NOISE_MIN_US 1.0
#define NOISE_MAX_GAP_SHARE 0.1
/* Finished excursions lower than this are late wake-ups; one full packet of other traffic takes 30 us at 400 Mb/s. */
#define EXCURSION_MIN_US 25.0
/* The foot of the last excursion is fitted over these gaps, and found at most this many gaps after the first growth. */
#define FIT_BEFORE 3
#define FIT_AFTER 12
#define FIT_GAPS_MIN 3
#define REFINE_GAPS 5
#define REFINE_STEPS 100
/* Loss this many gaps before or after the turning point makes it doubtful. */
#define DOUBT_BEFORE 2
#define DOUBT_AFTER 3
/* What stands in the queue at the end of a chirp that never made one: this many of the last packets' spacings, or this
 * long, at most. */
#define LEFT_PACKETS 2.0
#define LEFT_MIN_US 100.0
#define LAST_POINTS 3u
/* Estimates farther from the median stand apart. A median deviation is so much of a standard deviation. */
#define APART_DEVIATIONS 3.0
#define APART_SHARE 0.25
#define MEDIAN_DEVIATION 0.6745

/* What is left of a chirp after merging: `count` points and the gaps between each and its successor. */
struct series {
    size_t count;
    double sent_us[TRAIN_PACKETS_MAX];
    double arrived_us[TRAIN_PACKETS_MAX];
    double queue_us[TRAIN_PACKETS_MAX]; /* queueing delay relative to the first packet */
    double gap_us[TRAIN_PACKETS_MAX];
    double rate_bps[TRAIN_PACKETS_MAX];
    unsigned lost[TRAIN_PACKETS_MAX];    /* packets missing within the gap */
    unsigned packets[TRAIN_PACKETS_MAX]; /* sent within the gap, the closing one included */
};

const char *chirp_verdict_name(enum chirp_verdict verdict) {
    static const char *const NAMES[] = {"within", "below", "above", "reordered", "disturbed", "incomplete"};

    return NAMES[verdict];
}

/* Shortest gap sent; a batch shows by arrivals closer than half of it. */
static double shortest_gap_us(const struct train_packet *packets, size_t count) {
    double shortest = INFINITY;

    for (size_t k = 1; k < count; k++)
        shortest = fmin(shortest, packets[k].sent_us - packets[k - 1].sent_us);
    return shortest;
}

/* Points of the packets that arrived, batches merged into their last packet. False when packets overtook another. */
static bool build_series(const struct train_packet *packets, size_t count, struct series *series,
                         unsigned *ret_coalesced) {
    double batch_us = shortest_gap_us(packets, count) / 2;
    size_t previous = 0;

    series->count = 0;
    for (size_t k = 0; k < count; k++) {
        size_t at = series->count;

        if (!packets[k].arrived)
            continue;
        if (at > 0 && packets[k].arrived_us < packets[previous].arrived_us)
            return false;
        if (at > 1 && packets[k].arrived_us - packets[previous].arrived_us < batch_us) {
            /* Same batch: replace the point, keep the gap's beginning. */
            at--;
            (*ret_coalesced)++;
            series->packets[at - 1] += (unsigned)(k - previous);
            series->lost[at - 1] += (unsigned)(k - previous - 1);
        } else {
            if (at > 0) {
                series->packets[at - 1] = (unsigned)(k - previous);
                series->lost[at - 1] = (unsigned)(k - previous - 1);
            }
            series->count++;
        }
        series->sent_us[at] = packets[k].sent_us;
        series->arrived_us[at] = packets[k].arrived_us;
        previous = k;
    }
    return true;
}

static void fill_gaps(struct series *series, double packet_bits) {
    for (size_t k = 0; k < series->count; k++)
        series->queue_us[k] =
            (series->arrived_us[k] - series->arrived_us[0]) - (series->sent_us[k] - series->sent_us[0]);
    for (size_t k = 0; k + 1 < series->count; k++) {
        series->gap_us[k] = series->sent_us[k + 1] - series->sent_us[k];
        series->rate_bps[k] = series->packets[k] * packet_bits / series->gap_us[k] * 1e6;
    }
}

/* A delay that is gone by one of the next packets was no queue of the path but a process that woke late: each delay
 * becomes the least of itself and its successors. A growing queue passes unchanged. */
static void remove_spikes(struct series *series) {
    for (size_t k = 0; k < series->count; k++)
        for (size_t ahead = 1; ahead <= SPIKE_PACKETS && k + ahead < series->count; ahead++)
            series->queue_us[k] = fmin(series->queue_us[k], series->queue_us[k + ahead]);
}

/* What the low-rate half shows as falls between successive delays: a growing queue has none, so they are noise. */
static double measure_noise_us(const struct series *series) {
    double falls_us[TRAIN_PACKETS_MAX];
    size_t half = (series->count - 1) / 2;

    for (size_t k = 0; k < half; k++)
        falls_us[k] = fmax(0, series->queue_us[k] - series->queue_us[k + 1]);
    return fmax(NOISE_MIN_US, 2 * statistics_percentile(falls_us, half, 0.75));
}

static bool grows(const struct series *series, size_t k, double noise_us) {
    double limit_us = fmin(noise_us, fmax(NOISE_MIN_US, NOISE_MAX_GAP_SHARE * series->gap_us[k]));

    return series->queue_us[k + 1] - series->queue_us[k] > limit_us;
}

static size_t next_growth(const struct series *series, size_t from, double noise_us) {
    while (from + 1 < series->count && !grows(series, from, noise_us))
        from++;
    return from;
}

/* The rate at which the queue starts to grow in gap k: between this gap's rate and that of the gap before. */
static double turning_rate(const struct series *series, size_t k) {
    size_t gaps = series->count - 1;

    if (k >= gaps)
        return series->rate_bps[gaps - 1];
    if (k == 0 || series->rate_bps[k - 1] > series->rate_bps[k])
        return series->rate_bps[k];
    return sqrt(series->rate_bps[k - 1] * series->rate_bps[k]);
}

/* End of the excursion that begins at gap `start`: the first point at which the queue has fallen enough, or the number
 * of points when it never does. Falls over gaps with loss are taken back (analysis.h). */
static size_t excursion_end(const struct series *series, size_t start, double packet_bits, double decrease_factor,
                            double noise_us, double *ret_peak_us) {
    double service_us = packet_bits / series->rate_bps[start] * 1e6;
    double taken_back_us = 0;
    double peak_us = 0;

    for (size_t j = start + 1; j < series->count; j++) {
        double height_us;

        if (series->lost[j - 1]) {
            double fall_us = series->queue_us[j - 1] - series->queue_us[j];

            taken_back_us += fmax(0, fmin(fall_us, series->lost[j - 1] * service_us));
        }
        height_us = series->queue_us[j] + taken_back_us - series->queue_us[start];
        peak_us = fmax(peak_us, height_us);
        *ret_peak_us = peak_us;
        /* Within the noise nothing can be said, so nothing has begun either. */
        if (height_us < peak_us / decrease_factor || height_us <= noise_us / 2)
            return j;
    }
    return series->count;
}

/* Least squares of the delays of points `from`..`to` against b + s * h, where h are the bits that a rate above
 * `turning_bps` brings in excess; returns the sum of squares, or infinity when nothing grows. */
static double hinge_misfit(const struct series *series, size_t from, size_t to, double turning_bps, bool lost_entered) {
    double n = 0, sum_h = 0, sum_q = 0, sum_hh = 0, sum_hq = 0, sum_qq = 0;
    double excess = 0;
    double spread, slope;

    for (size_t k = from; k <= to; k++) {
        double q = series->queue_us[k];

        n++;
        sum_h += excess;
        sum_q += q;
        sum_hh += excess * excess;
        sum_hq += excess * q;
        sum_qq += q * q;
        if (k < to) {
            double share = lost_entered ? 1 : 1 - (double)series->lost[k] / series->packets[k];

            excess = fmax(0, excess + (series->rate_bps[k] * share - turning_bps) / turning_bps * series->gap_us[k]);
        }
    }
    spread = sum_hh - sum_h * sum_h / n;
    if (spread <= 0)
        return INFINITY;
    slope = (sum_hq - sum_h * sum_q / n) / spread;
    /* The queue cannot grow faster than what comes in excess; slower, where other traffic shares the link. */
    slope = fmin(fmax(slope, 0.1), 1.0);
    return fmax(0, (sum_qq - sum_q * sum_q / n) - 2 * slope * (sum_hq - sum_h * sum_q / n) + slope * slope * spread);
}

/* The turning rate of the last excursion, which begins at gap `start`: where the rise of the delays, seen as a whole,
 * has its foot. Searched from the rate of the gap before up to REFINE_GAPS further. */
static double refine_turning(const struct series *series, size_t start) {
    size_t gaps = series->count - 1;
    size_t from = start > FIT_BEFORE ? start - FIT_BEFORE : 0;
    size_t to = start + FIT_AFTER < gaps ? start + FIT_AFTER : gaps;
    double low_bps = series->rate_bps[start > 0 ? start - 1 : 0];
    double high_bps = series->rate_bps[start + REFINE_GAPS < gaps ? start + REFINE_GAPS : gaps - 1];
    double best_bps = turning_rate(series, start);
    double best = INFINITY;

    if (start + FIT_GAPS_MIN > gaps || high_bps <= low_bps)
        return best_bps;
    for (int step = 0; step <= REFINE_STEPS; step++) {
        double bps = low_bps * pow(high_bps / low_bps, (double)step / REFINE_STEPS);
        double misfit = fmin(hinge_misfit(series, from, to, bps, true), hinge_misfit(series, from, to, bps, false));

        if (misfit < best) {
            best = misfit;
            best_bps = bps;
        }
    }
    return best_bps;
}

static bool loss_around(const struct series *series, size_t turning) {
    size_t from = turning > DOUBT_BEFORE ? turning - DOUBT_BEFORE : 0;

    for (size_t k = from; k <= turning + DOUBT_AFTER && k + 1 < series->count; k++)
        if (series->lost[k])
            return true;
    return false;
}

/* Whether a queue stands at the end: the least of the last delays above the least of all. */
static bool queue_is_left(const struct series *series) {
    size_t gaps = series->count - 1;
    double least_us = INFINITY, last_us = INFINITY;
    double spacing_us = (series->arrived_us[gaps] - series->arrived_us[gaps - LAST_POINTS]) / LAST_POINTS;

    for (size_t k = 0; k < series->count; k++) {
        least_us = fmin(least_us, series->queue_us[k]);
        if (k + LAST_POINTS >= series->count)
            last_us = fmin(last_us, series->queue_us[k]);
    }
    return last_us - least_us > fmax(LEFT_MIN_US, LEFT_PACKETS * spacing_us);
}

/* Excursion segmentation; returns the gap at which the last, unterminated excursion begins (the number of gaps when
 * there is none) and marks the estimates of finished excursions. */
static size_t segment(const struct series *series, double packet_bits, const struct chirp_settings *settings,
                      double noise_us, double *estimates_bps) {
    size_t start = next_growth(series, 0, noise_us);

    while (start + 1 < series->count) {
        double peak_us = 0;
        size_t end = excursion_end(series, start, packet_bits, settings->decrease_factor, noise_us, &peak_us);

        if (end == series->count)
            return start;
        if (end - start >= settings->busy_period && peak_us >= EXCURSION_MIN_US)
            for (size_t k = start; k < end; k++)
                if (grows(series, k, noise_us))
                    estimates_bps[k] = series->rate_bps[k];
        start = next_growth(series, end, noise_us);
    }
    return series->count - 1;
}

struct chirp_result chirp_analyse(const struct train_packet *packets, size_t count, double packet_bits,
                                  const struct chirp_settings *settings) {
    struct chirp_result result = {.verdict = CHIRP_INCOMPLETE};
    double estimates_bps[TRAIN_PACKETS_MAX] = {0};
    struct series series = {0};
    double weighted = 0;
    double weights = 0;
    double last_bps;
    size_t turning;
    size_t gaps;

    if (count > TRAIN_PACKETS_MAX)
        return result;
    if (!build_series(packets, count, &series, &result.coalesced)) {
        result.verdict = CHIRP_REORDERED;
        return result;
    }
    if (series.count < POINTS_MIN)
        return result;
    fill_gaps(&series, packet_bits);
    remove_spikes(&series);
    gaps = series.count - 1;
    result.noise_us = measure_noise_us(&series);
    turning = segment(&series, packet_bits, settings, result.noise_us, estimates_bps);
    last_bps = turning > 0 && turning < gaps ? refine_turning(&series, turning) : turning_rate(&series, turning);
    for (size_t k = 0; k < gaps; k++) {
        double estimate_bps = k < turning && estimates_bps[k] > 0 ? estimates_bps[k] : last_bps;

        weighted += estimate_bps * series.gap_us[k];
        weights += series.gap_us[k];
    }
    result.estimate_bps = weighted / weights;
    result.verdict = turning == 0 ? CHIRP_BELOW : turning >= gaps ? CHIRP_ABOVE : CHIRP_WITHIN;
    if (result.verdict == CHIRP_ABOVE && queue_is_left(&series))
        result.verdict = CHIRP_DISTURBED;
    result.doubtful = loss_around(&series, turning);
    return result;
}

double chirp_mean(const double *estimates_bps, size_t count, size_t *ret_left_out) {
    double sorted[CHIRP_ESTIMATES_MAX];
    double median_bps, limit_bps;
    double sum = 0;
    size_t used = 0;

    *ret_left_out = 0;
    if (count == 0 || count > CHIRP_ESTIMATES_MAX)
        return NAN;
    memcpy(sorted, estimates_bps, count * sizeof(*sorted));
    median_bps = statistics_percentile(sorted, count, 0.5);
    for (size_t i = 0; i < count; i++)
        sorted[i] = fabs(estimates_bps[i] - median_bps);
    limit_bps =
        fmax(APART_DEVIATIONS / MEDIAN_DEVIATION * statistics_percentile(sorted, count, 0.5), APART_SHARE * median_bps);
    for (size_t i = 0; i < count; i++) {
        if (fabs(estimates_bps[i] - median_bps) > limit_bps)
            continue;
        sum += estimates_bps[i];
        used++;
    }
    *ret_left_out = count - used;
    return sum / (double)used;
}
