/* Capacity and busy share from all chirps of a run; see occupancy.h. */
#include "occupancy.h"

#include <math.h>
#include <stdlib.h>

#include "statistics.h"

/* Gaps at a chirp's end in which the capacity is looked for. */
#define END_GAPS 6u
/* The queue grew in a gap that came out longer by this factor. Shorter than FINEST_US no clock tells. */
#define GREW_FACTOR 1.15
#define FINEST_US 3.0
/* Rates within this factor are one mode; modes this strong beside the strongest count. */
#define MODE_WIDTH 1.08
#define MODE_SHARE 0.5
#define MODE_SAMPLES_MIN 8u
#define MODE_COUNT_MIN 3u
/* Slow packets: sent so many transmission times after the one before, whose own queue is long gone. */
#define SLOW_GAP 2.5
#define SLOW_PACKETS_MIN 20u
/* Waiting: longer than this part of a transmission time and than noise. */
#define WAITED_SHARE 0.4
#define WAITED_US 30.0
/* Waits shorter than this may be late wake-ups on a busy host. */
#define WAKE_UP_US 100.0
/* The weight of the dispersion without noise; all of it where noise is this share of what counts as waiting. */
#define DISPERSION_WEIGHT 0.2
#define NOISE_SHARE 0.4
#define NOISE_FRACTION 0.9
/* More than this is no load but a path that is not as assumed: the fastest link is behind the slowest, say. */
#define BUSY_MAX 0.95

void occupancy_add(struct occupancy *occupancy, const struct train_packet *packets, size_t count, double packet_bits) {
    double least_us = INFINITY;

    if (count < 2 || occupancy->count + count - 1 > OCCUPANCY_GAPS_MAX)
        return;
    for (size_t k = 0; k < count; k++)
        if (packets[k].arrived)
            least_us = fmin(least_us, packets[k].arrived_us - packets[k].sent_us);
    for (size_t k = 1; k < count; k++) {
        const struct train_packet *packet = &packets[k];
        bool both = packet->arrived && packets[k - 1].arrived;

        occupancy->gaps[occupancy->count++] = (struct occupancy_gap){
            .sent_us = packet->sent_us - packets[k - 1].sent_us,
            .arrived_us = both ? packet->arrived_us - packets[k - 1].arrived_us : NAN,
            .queue_us = packet->arrived ? packet->arrived_us - packet->sent_us - least_us : NAN,
            .bits = packet_bits,
            .last = k + 1 == count,
        };
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Rates at which packets came at the ends of the chirps while the queue grew; sorted. */
static size_t end_rates(const struct occupancy *occupancy, double *rates_bps) {
    size_t from_end = 0;
    size_t count = 0;

    for (size_t i = occupancy->count; i-- > 0;) {
        const struct occupancy_gap *gap = &occupancy->gaps[i];

        from_end = gap->last ? 0 : from_end + 1;
        if (from_end < END_GAPS && gap->arrived_us > fmax(FINEST_US, GREW_FACTOR * gap->sent_us))
            rates_bps[count++] = gap->bits / gap->arrived_us * 1e6;
    }
    qsort(rates_bps, count, sizeof(*rates_bps), compare);
    return count;
}

/* How many of the sorted rates lie in the mode that begins with `first`. */
static size_t mode_count(const double *rates_bps, size_t count, size_t first) {
    size_t end = first;

    while (end < count && rates_bps[end] <= rates_bps[first] * MODE_WIDTH)
        end++;
    return end - first;
}

/* Median of the fastest strong mode; 0 when there is none. */
static double find_capacity_bps(const double *rates_bps, size_t count) {
    size_t strongest = 0, first = 0, best = 0, before;

    if (count < MODE_SAMPLES_MIN)
        return 0;
    for (size_t i = 0; i < count; i++) {
        size_t found = mode_count(rates_bps, count, i);

        strongest = found > strongest ? found : strongest;
    }
    if (strongest < MODE_COUNT_MIN)
        return 0;
    for (size_t i = 0; i < count; i++)
        if ((double)mode_count(rates_bps, count, i) >= MODE_SHARE * (double)strongest)
            first = i;
    /* The last rate that begins a strong mode lies at its edge: from there up to where the rates are densest. */
    do {
        double about_bps = rates_bps[first];

        before = best;
        for (size_t i = 0; i < count; i++) {
            size_t found = mode_count(rates_bps, count, i);

            if (rates_bps[i] * MODE_WIDTH >= about_bps && rates_bps[i] <= about_bps * MODE_WIDTH && found > best) {
                best = found;
                first = i;
            }
        }
    } while (best > before);
    return rates_bps[first + (best - 1) / 2];
}

/* What fast packets tell: others' share of capacity (NaN for none), and noise. */
struct dispersion {
    double share;
    double noise_us;
};

/* What came between packets that left faster than `capacity_bps`, from the end of each chirp on. A packet that came
 * sooner behind another than the bottleneck sends shows noise: the one before it was late. */
static struct dispersion read_dispersion(const struct occupancy *occupancy, double capacity_bps, double *early_us) {
    double others_us = 0, watched_us = 0;
    size_t count = 0;
    bool fast = false;

    for (size_t i = occupancy->count; i-- > 0;) {
        const struct occupancy_gap *gap = &occupancy->gaps[i];
        double service_us = gap->bits / capacity_bps * 1e6;

        fast = (fast || gap->last) && gap->sent_us <= service_us;
        if (!fast || isnan(gap->arrived_us))
            continue;
        others_us += gap->arrived_us - service_us;
        watched_us += gap->sent_us;
        early_us[count++] = fmax(0, service_us - gap->arrived_us);
    }
    if (count == 0)
        return (struct dispersion){.share = NAN};
    return (struct dispersion){
        .share = fmin(fmax(others_us / watched_us, 0), 1),
        .noise_us = statistics_percentile(early_us, count, NOISE_FRACTION),
    };
}

/* Whose delay is longer than this waited. */
static double waiting_limit_us(double service_us) {
    return fmax(WAITED_US, WAITED_SHARE * service_us);
}

/* What slow packets tell: the share that waited (NaN when they are too few), and which part of these waited no longer
 * than a late wake-up. */
struct waiting {
    double share;
    double doubtful;
};

static struct waiting read_waiting(const struct occupancy *occupancy, double capacity_bps) {
    size_t waited = 0, doubtful = 0, seen = 0;

    for (size_t i = 0; i < occupancy->count; i++) {
        const struct occupancy_gap *gap = &occupancy->gaps[i];
        double service_us = gap->bits / capacity_bps * 1e6;

        if (gap->sent_us < SLOW_GAP * service_us || isnan(gap->queue_us))
            continue;
        seen++;
        if (gap->queue_us <= waiting_limit_us(service_us))
            continue;
        waited++;
        doubtful += gap->queue_us < WAKE_UP_US;
    }
    return (struct waiting){
        .share = seen >= SLOW_PACKETS_MIN ? (double)waited / (double)seen : NAN,
        .doubtful = waited > 0 ? (double)doubtful / (double)waited : 0,
    };
}

bool occupancy_estimate(const struct occupancy *occupancy, struct occupancy_result *ret_result) {
    double *samples = calloc(occupancy->count + 1, sizeof(*samples));
    struct occupancy_result result = {0};
    struct dispersion dispersion;
    struct waiting waiting;
    double weight, busy;

    if (!samples)
        return false;
    result.capacity_bps = find_capacity_bps(samples, end_rates(occupancy, samples));
    if (result.capacity_bps > 0)
        dispersion = read_dispersion(occupancy, result.capacity_bps, samples);
    free(samples);
    if (result.capacity_bps <= 0)
        return false;
    waiting = read_waiting(occupancy, result.capacity_bps);
    weight =
        dispersion.noise_us / (NOISE_SHARE * waiting_limit_us(occupancy->gaps[0].bits / result.capacity_bps * 1e6));
    weight = DISPERSION_WEIGHT + (1 - DISPERSION_WEIGHT) * fmin(fmax(weight, waiting.doubtful), 1);
    busy = weight * dispersion.share + (1 - weight) * waiting.share;
    if (isnan(busy) || busy > BUSY_MAX)
        return false;
    result.available_bps = result.capacity_bps * (1 - busy);
    *ret_result = result;
    return true;
}
