/* One run of pathchirp; see chirp.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis.h"
#include "chirp.h"
#include "exchange.h"
#include "occupancy.h"
#include "pacing.h"
#include "plan.h"
#include "train_check.h"

#define LARGEST_PACKET_BYTES 1400u
#define WIDE_CHIRPS 3
/* Narrow chirps reach from the expected value divided by BELOW to the expected value times ABOVE. */
#define NARROW_BELOW 4.0
#define NARROW_ABOVE 4.0
/* Chirps in one batch, and in all batches; the responder keeps 32 trains. */
#define BATCH_MAX 14u
#define NARROW_MAX 36u
#define FETCH_TRIES 4u
/* The range moves when this many estimates of a batch turn outside; the original waits for three in a row. */
#define MOVE_AFTER 3u
/* By how much it moves when the turning point lies below or above all rates (7 in the original). */
#define MOVE_FACTOR 7.0
#define MOVES_MAX 3u
/* Queues of the last chirp must have drained before the next one, and before the fetch. */
#define DRAIN_US 20000.0

struct run {
    const struct chirp_parameters *parameters;
    struct record *record;
    struct exchange exchange;
    int64_t deadline_ns;
    unsigned chirps; /* in all, for shifts */
    double expected_bps;
    const char *range;
    struct train_flight flights[BATCH_MAX];
    struct chirp_plan plans[BATCH_MAX];
    struct chirp_result results[BATCH_MAX];
    size_t estimate_count;
    double estimates_bps[NARROW_MAX];
    size_t doubtful_count;
    double doubtful_bps[NARROW_MAX];
    struct occupancy occupancy;
    bool occupancy_known;
    struct occupancy_result occupancy_result;
};

static uint32_t packet_bytes(const struct chirp_parameters *parameters, double expected_bps) {
    return parameters->packet_bytes ? (uint32_t)parameters->packet_bytes
                                    : chirp_packet_bytes(expected_bps, LARGEST_PACKET_BYTES);
}

void chirp_declare(const struct chirp_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    uint32_t bytes = packet_bytes(parameters, INFINITY);
    struct chirp_plan wide, narrow;
    uint64_t total;

    chirp_plan_make(&wide, parameters->low_bps, parameters->high_bps, parameters->spread, 0, bytes);
    chirp_plan_make(&narrow, 1e6, NARROW_BELOW * NARROW_ABOVE * 1e6, parameters->spread, 0, bytes);
    total =
        WIDE_CHIRPS * (MOVES_MAX + 1) *
            (exchange_train_bytes(&wide.train) + FETCH_TRIES * exchange_fetch_bytes(wide.train.packets)) +
        NARROW_MAX * (exchange_train_bytes(&narrow.train) + FETCH_TRIES * exchange_fetch_bytes(narrow.train.packets));
    *ret_bytes = total < parameters->limit_bytes ? total : parameters->limit_bytes;
    /* Fetches of the last batch may come after the limit. */
    *ret_duration_ms = (uint64_t)ceil(parameters->limit_ms + 500);
}

static double spacing_us(const struct run *run, const struct chirp_plan *plan) {
    return fmax(run->parameters->interval_ms * 1e3, 2 * chirp_plan_duration_us(plan) + DRAIN_US);
}

/* A chirp only starts when it and its fetch stay within bytes and time. */
static bool affordable(const struct run *run, const struct chirp_plan *plan, unsigned batch) {
    uint64_t bytes = run->exchange.bytes + exchange_train_bytes(&plan->train) +
                     (batch + 1) * FETCH_TRIES * exchange_fetch_bytes(plan->train.packets);
    int64_t ends_ns =
        pacing_now_ns() + (int64_t)(chirp_plan_duration_us(plan) + DRAIN_US) * 1000 + run->exchange.rtt_ns;

    return bytes <= run->parameters->limit_bytes && ends_ns <= run->deadline_ns;
}

static void print_chirp(const struct run *run, unsigned at, const struct chirp_result *result, enum train_state state,
                        unsigned lost) {
    const struct train_flight *flight = &run->flights[at];
    cJSON *object = cJSON_CreateObject();
    cJSON *sent = cJSON_CreateArray();
    cJSON *arrived = cJSON_CreateArray();

    if (run->record->id)
        cJSON_AddItemToObject(object, "id", cJSON_Duplicate(run->record->id, false));
    cJSON_AddNumberToObject(object, "chirp", flight->train);
    cJSON_AddStringToObject(object, "verdict", chirp_verdict_name(result->verdict));
    cJSON_AddStringToObject(object, "state", train_state_name(state));
    cJSON_AddNumberToObject(object, "estimate_bps", round(result->estimate_bps));
    cJSON_AddBoolToObject(object, "doubtful", result->doubtful);
    cJSON_AddNumberToObject(object, "low_bps", round(run->plans[at].low_bps));
    cJSON_AddNumberToObject(object, "high_bps", round(run->plans[at].high_bps));
    cJSON_AddNumberToObject(object, "packet_bytes", flight->plan.packet_bytes);
    cJSON_AddNumberToObject(object, "packets", (double)flight->plan.packets);
    cJSON_AddNumberToObject(object, "lost", lost);
    cJSON_AddNumberToObject(object, "coalesced", result->coalesced);
    cJSON_AddNumberToObject(object, "noise_us", result->noise_us);
    for (size_t k = 0; k < flight->plan.packets; k++) {
        const struct train_packet *packet = &flight->packets[k];

        cJSON_AddItemToArray(sent, cJSON_CreateNumber(round(packet->sent_us * 10) / 10));
        cJSON_AddItemToArray(arrived, packet->arrived ? cJSON_CreateNumber(round(packet->arrived_us * 10) / 10)
                                                      : cJSON_CreateNull());
    }
    cJSON_AddItemToObject(object, "sent_us", sent);
    cJSON_AddItemToObject(object, "arrived_us", arrived);
    record_write(stdout, object);
}

/* Send up to `wanted` chirps over a range, fetch, judge and analyse them; returns how many came back and were not
 * spoilt. */
static int run_batch(struct run *run, double low_bps, double high_bps, unsigned wanted, struct failure *failure) {
    const struct chirp_parameters *parameters = run->parameters;
    struct chirp_settings settings = {parameters->decrease_factor, (unsigned)parameters->busy_period};
    uint32_t bytes = packet_bytes(parameters, run->expected_bps);
    unsigned sent = 0;
    int whole = 0;

    for (; sent < wanted; sent++) {
        struct train_flight *flight = &run->flights[sent];
        struct chirp_plan *plan = &run->plans[sent];
        int64_t next_ns;

        chirp_plan_make(plan, low_bps, high_bps, parameters->spread, chirp_shift(run->chirps), bytes);
        if (!affordable(run, plan, sent))
            break;
        flight->plan = plan->train;
        next_ns = pacing_now_ns() + (int64_t)spacing_us(run, plan) * 1000;
        if (exchange_send(&run->exchange, flight, failure) < 0)
            return -1;
        run->chirps++;
        if (sent + 1 == wanted)
            next_ns = pacing_now_ns() + (int64_t)DRAIN_US * 1000;
        pacing_wait_until(next_ns);
    }
    exchange_collect(&run->exchange, run->flights, sent, FETCH_TRIES);
    for (unsigned i = 0; i < sent; i++) {
        struct train_flight *flight = &run->flights[i];
        struct chirp_result *result = &run->results[whole];
        enum train_state state;
        unsigned arrived = 0;

        for (size_t k = 0; k < flight->plan.packets; k++)
            arrived += flight->packets[k].arrived;
        /* Without its arrivals nothing is known about a chirp, neither rate nor loss. */
        if (!flight->fetched)
            continue;
        *result = chirp_analyse(flight->packets, flight->plan.packets, 8.0 * bytes, &settings);
        state = train_judge(&flight->plan, flight->packets, run->expected_bps);
        if (state == TRAIN_CLEAN && result->verdict == CHIRP_DISTURBED)
            state = TRAIN_HELD;
        record_count_train(run->record, state);
        run->record->probes_sent += flight->plan.packets;
        run->record->probes_lost += flight->plan.packets - arrived;
        if (parameters->common.verbose)
            print_chirp(run, i, result, state, (unsigned)flight->plan.packets - arrived);
        if (state == TRAIN_CLEAN)
            occupancy_add(&run->occupancy, flight->packets, flight->plan.packets, 8.0 * bytes);
        whole += state == TRAIN_CLEAN;
    }
    return whole;
}

/* A failure for want of chirps that can be believed; its kind tells whose fault it is. */
static int too_few(const struct run *run, const char *what, struct failure *failure) {
    const struct record *record = run->record;

    if (2 * record->trains_spoilt < record->trains_sent || record->trains_spoilt == 0)
        return failure_set(failure, FAILURE_OTHER, "%s (loss, reordering, or the limits are too low)", what);
    return failure_set(failure, FAILURE_SPOILT,
                       "%s: %" PRIu64 " of %" PRIu64 " chirps were spoilt (%" PRIu64
                       " did not leave as planned, the others were held up), a processor was away",
                       what, record->trains_spoilt, record->trains_sent, record->spoilt_at_sender);
}

static bool has_estimate(const struct chirp_result *result) {
    return result->verdict <= CHIRP_ABOVE;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Wide chirps: the median of their estimates is what the narrow ones are built around. */
static int find_range(struct run *run, double low_bps, struct failure *failure) {
    double high_bps = run->parameters->high_bps;
    bool found = false;

    for (unsigned move = 0; move <= MOVES_MAX; move++) {
        double found_bps[BATCH_MAX];
        unsigned below = 0;
        int count = 0;
        int fetched;

        run->expected_bps = low_bps * MOVE_FACTOR * MOVE_FACTOR;
        fetched = run_batch(run, low_bps, high_bps, WIDE_CHIRPS, failure);
        if (fetched < 0)
            return -1;
        for (int i = 0; i < fetched; i++) {
            below += run->results[i].verdict == CHIRP_BELOW;
            if (has_estimate(&run->results[i]))
                found_bps[count++] = run->results[i].estimate_bps;
        }
        if (count == 0)
            continue;
        qsort(found_bps, (size_t)count, sizeof(found_bps[0]), compare);
        found = true;
        run->expected_bps = found_bps[count / 2];
        if (2 * below <= (unsigned)count)
            return 0;
        high_bps = fmin(run->parameters->high_bps, low_bps * MOVE_FACTOR);
        low_bps /= MOVE_FACTOR;
    }
    if (run->record->probes_sent == 0)
        return failure_set(failure, FAILURE_UNREACHABLE, "no chirp came through");
    /* What is known then is the range alone; with loss narrow chirps may still come through whole. */
    return found || run->record->trains_spoilt == 0 ? 0 : too_few(run, "no wide chirp was whole", failure);
}

/* Keep a batch's estimates; true when the range has to move because too many turned at its edge. */
static bool keep_estimates(struct run *run, int fetched) {
    unsigned below = 0, above = 0;

    for (int i = 0; i < fetched; i++) {
        const struct chirp_result *result = &run->results[i];

        below += result->verdict == CHIRP_BELOW;
        above += result->verdict == CHIRP_ABOVE;
        if (!has_estimate(result))
            continue;
        if (result->doubtful && run->doubtful_count < NARROW_MAX)
            run->doubtful_bps[run->doubtful_count++] = result->estimate_bps;
        else if (!result->doubtful && run->estimate_count < NARROW_MAX)
            run->estimates_bps[run->estimate_count++] = result->estimate_bps;
    }
    run->range = 2 * below > (unsigned)fetched ? "below" : 2 * above > (unsigned)fetched ? "above" : "within";
    if (below < MOVE_AFTER && above < MOVE_AFTER)
        return false;
    if (above >= MOVE_AFTER && run->expected_bps * NARROW_ABOVE >= run->parameters->high_bps)
        return false;
    run->expected_bps *= below > above ? 1 / MOVE_FACTOR : MOVE_FACTOR;
    run->expected_bps = fmin(run->expected_bps, run->parameters->high_bps);
    return true;
}

static int measure(struct run *run, struct failure *failure) {
    size_t smoothing = run->parameters->smoothing;
    unsigned moves = 0;
    unsigned sent = 0;
    bool up = false, down = false, unsettled = false;

    while (run->estimate_count < smoothing && sent < NARROW_MAX) {
        double low_bps = run->expected_bps / NARROW_BELOW;
        double high_bps = fmin(run->parameters->high_bps, run->expected_bps * NARROW_ABOVE);
        unsigned wanted = (unsigned)(smoothing - run->estimate_count) + 1;
        unsigned before = run->chirps;
        double expected_bps = run->expected_bps;
        int fetched;

        if (high_bps < 5 * low_bps)
            low_bps = high_bps / 5;
        if (wanted > BATCH_MAX)
            wanted = BATCH_MAX;
        fetched = run_batch(run, low_bps, high_bps, wanted, failure);
        if (fetched < 0)
            return -1;
        sent += run->chirps - before;
        /* Out of bytes or time. */
        if (run->chirps == before)
            break;
        unsettled = keep_estimates(run, fetched);
        up = up || run->expected_bps > expected_bps;
        down = down || run->expected_bps < expected_bps;
        if (unsettled && moves < MOVES_MAX) {
            moves++;
            run->estimate_count = 0;
            run->doubtful_count = 0;
        }
    }
    /* Doubtful ones only where the others are too few. */
    for (size_t i = 0; run->estimate_count < smoothing && i < run->doubtful_count; i++)
        run->estimates_bps[run->estimate_count++] = run->doubtful_bps[i];
    run->occupancy_known = occupancy_estimate(&run->occupancy, &run->occupancy_result);
    if (run->occupancy_known)
        return 0;
    if (run->estimate_count == 0)
        return too_few(run, "no chirp could be judged", failure);
    /* Chirps that send the range up and down again contradict each other. */
    if (unsettled && up && down)
        return failure_set(failure, FAILURE_SPOILT, "chirps contradict each other, the range of rates does not settle");
    return 0;
}

/* What all chirps together show of the path's occupancy; where they do not show it, the mean of the last estimates.
 * Neither when what was spoilt leaves too few of them. */
static int conclude(struct run *run, struct failure *failure) {
    size_t count = (size_t)fmin((double)run->estimate_count, (double)run->parameters->smoothing);
    size_t left_out;
    double mean_bps = chirp_mean(run->estimates_bps + run->estimate_count - count, count, &left_out);
    struct record *record = run->record;
    uint64_t used = run->occupancy_known ? record->trains_sent - record->trains_spoilt : count - left_out;

    if (!run->occupancy_known)
        record->trains_spoilt += left_out;
    if (record->trains_spoilt && 2 * used < run->parameters->smoothing)
        return failure_set(failure, FAILURE_SPOILT,
                           "only %" PRIu64 " of the %" PRIu64 " estimates wanted: %" PRIu64 " of %" PRIu64
                           " chirps were spoilt (%" PRIu64 " did not leave as planned), a processor was away",
                           used, run->parameters->smoothing, record->trains_spoilt, record->trains_sent,
                           record->spoilt_at_sender);
    record_add(record, "available_bandwidth_bps",
               round(run->occupancy_known ? run->occupancy_result.available_bps : mean_bps), "bps");
    return 0;
}

int chirp_run(const struct chirp_parameters *parameters, const struct keyring *keyring, struct record *record,
              const char **ret_range, struct failure *failure) {
    struct run *run = calloc(1, sizeof(*run));
    int result;

    if (!run)
        return failure_set(failure, FAILURE_OTHER, "out of memory");
    run->parameters = parameters;
    run->record = record;
    run->range = "within";
    run->deadline_ns = pacing_now_ns() + (int64_t)(parameters->limit_ms * 1e6);
    record->started_at_us = pacing_wall_ns() / 1000;
    result = exchange_open(&run->exchange, parameters->common.destination, (uint16_t)parameters->common.port, keyring,
                           parameters->timeout_ms, failure);
    if (result == 0) {
        result = find_range(run, parameters->low_bps, failure);
        if (result == 0)
            result = measure(run, failure);
        if (result == 0)
            result = conclude(run, failure);
        *ret_range = run->range;
        exchange_close(&run->exchange);
    }
    record->probe_bytes = run->exchange.bytes;
    record->ended_at_us = pacing_wall_ns() / 1000;
    free(run);
    return result;
}
