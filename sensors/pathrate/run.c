/* One run of pathrate; see pathrate.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exchange.h"
#include "modes.h"
#include "pacing.h"
#include "pathrate.h"
#include "sensor.h"
#include "statistics.h"
#include "train_check.h"
#include "wire.h"

#define FETCH_TRIES 4u
#define DRAIN_NS 20000000LL
/* Short trains in one flight; also limited by the packets of a flight and by its time. */
#define BATCH_MAX 16u
/* The first trains only show how long the others must be. */
#define SCOUTS 4u
/* Sleeping cores and interfaces need tens of microseconds to come back. */
#define WAKE_US 60.0
/* Trains take this share of the rate while they run, at most. */
#define SHARE 0.25

struct run {
    const struct pathrate_parameters *parameters;
    struct record *record;
    struct exchange exchange;
    int64_t deadline_ns;
    unsigned short chance[3];
    uint32_t packet_bytes;
    unsigned starts[TRAIN_PACKETS_MAX]; /* index of the first packet of each train of the flight */
    struct train_flight flight;
    int64_t origin_ns;
    size_t count;
    struct pathrate_sample samples[PATHRATE_TRAINS_MAX];
    size_t long_count;
    double long_bps[PATHRATE_TRAINS_MAX];
};

static uint64_t most_bytes(const struct pathrate_parameters *parameters) {
    uint64_t length = parameters->length ? parameters->length : pathrate_length(INFINITY, 1500);
    uint64_t packets = parameters->trains * length + parameters->long_trains * parameters->long_length +
                       SCOUTS * parameters->long_length;
    uint64_t flights = parameters->trains + parameters->long_trains + SCOUTS;

    return packets * parameters->packet_bytes + flights * (WIRE_HEADER_BYTES + WIRE_IPV6_UDP_BYTES) +
           flights * FETCH_TRIES * exchange_fetch_bytes(16) + FETCH_TRIES * (WIRE_HEADER_BYTES + WIRE_IPV6_UDP_BYTES);
}

void pathrate_declare(const struct pathrate_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    uint64_t bytes = most_bytes(parameters);

    *ret_bytes = bytes < parameters->limit_bytes ? bytes : parameters->limit_bytes;
    /* Fetches of the last trains may come after the limit. */
    *ret_duration_ms = (uint64_t)ceil(parameters->limit_ms + 500);
}

static void plan_flight(struct run *run, unsigned trains, unsigned length, double interval_us) {
    struct train_plan *plan = &run->flight.plan;
    double at_us = 0;

    memset(plan, 0, sizeof(*plan));
    plan->packet_bytes = run->packet_bytes;
    for (unsigned train = 0; train < trains; train++) {
        /* A small packet ahead wakes whoever sleeps on the way, so that the first of the train is not held up. */
        plan->other_bytes[plan->packets] = (uint16_t)exchange_smallest_packet(&run->exchange);
        plan->departures_us[plan->packets++] = at_us;
        at_us += WAKE_US;
        run->starts[train] = (unsigned)plan->packets;
        for (unsigned k = 0; k < length; k++)
            plan->departures_us[plan->packets++] = at_us;
        /* Half of the time is chance, lest we beat in step with anybody. */
        at_us += interval_us * (0.75 + 0.5 * erand48(run->chance));
    }
}

static bool affordable(const struct run *run) {
    const struct train_plan *plan = &run->flight.plan;
    uint64_t bytes =
        run->exchange.bytes + exchange_train_bytes(plan) + FETCH_TRIES * exchange_fetch_bytes(plan->packets);
    int64_t ends_ns = pacing_now_ns() + (int64_t)plan->departures_us[plan->packets - 1] * 1000 + DRAIN_NS;

    return bytes <= run->parameters->limit_bytes && ends_ns + run->exchange.rtt_ns <= run->deadline_ns;
}

/* The sample of one train; false when it lost packets or order, or was spoilt. */
static bool sample_train(struct run *run, unsigned first, unsigned length, struct pathrate_sample *sample) {
    const struct train_packet *packets = run->flight.packets + first;
    double base_us = (double)(run->flight.arrived_at_ns - run->flight.sent_at_ns - run->origin_ns) / 1000;
    enum train_state state;
    double dispersion_us;

    for (unsigned k = 0; k < length; k++)
        if (!packets[k].arrived || (k > 0 && packets[k].arrived_us < packets[k - 1].arrived_us))
            return false;
    state = train_judge_burst(packets, length);
    record_count_train(run->record, state);
    if (state != TRAIN_CLEAN)
        return false;
    dispersion_us = packets[length - 1].arrived_us - packets[0].arrived_us;
    if (dispersion_us <= 0)
        return false;
    sample->rate_bps = pathrate_rate_bps(length, run->packet_bytes, dispersion_us);
    sample->waited_us = 2 * base_us + (packets[0].arrived_us - packets[0].sent_us) +
                        (packets[length - 1].arrived_us - packets[length - 1].sent_us);
    return true;
}

/* Send a flight of trains and fetch it; 1 when it came back, 0 when it did not or would be too dear, -1 on failure. */
static int fly(struct run *run, unsigned trains, unsigned length, double interval_us, struct failure *failure) {
    plan_flight(run, trains, length, interval_us);
    if (!affordable(run))
        return 0;
    if (exchange_send(&run->exchange, &run->flight, failure) < 0)
        return -1;
    pacing_wait_until(pacing_now_ns() + DRAIN_NS);
    if (exchange_collect(&run->exchange, &run->flight, 1, FETCH_TRIES) > 0)
        return 0;
    if (run->origin_ns == 0)
        run->origin_ns = run->flight.arrived_at_ns - run->flight.sent_at_ns;
    run->record->probes_sent += run->flight.plan.packets;
    for (size_t k = 0; k < run->flight.plan.packets; k++)
        run->record->probes_lost += !run->flight.packets[k].arrived;
    return 1;
}

/* Long trains one by one; their trimmed mean is the average dispersion rate. */
static int send_long(struct run *run, unsigned trains, unsigned length, double interval_us, struct failure *failure) {
    for (unsigned i = 0; i < trains; i++) {
        struct pathrate_sample sample;
        int result = fly(run, 1, length, interval_us, failure);

        if (result < 0)
            return -1;
        if (result && run->long_count < PATHRATE_TRAINS_MAX && sample_train(run, run->starts[0], length, &sample))
            run->long_bps[run->long_count++] = sample.rate_bps;
        pacing_wait_until(pacing_now_ns() + (int64_t)(interval_us * 1000));
    }
    return 0;
}

static int send_short(struct run *run, unsigned length, double interval_us, struct failure *failure) {
    double per_flight =
        fmin(fmin(BATCH_MAX, TRAIN_PACKETS_MAX / (length + 1)), TRAIN_DURATION_MAX_US / 2 / interval_us);
    unsigned sent = 0, failed = 0;

    while (sent < run->parameters->trains && failed < FETCH_TRIES) {
        unsigned trains = (unsigned)fmax(1, fmin(per_flight, (double)(run->parameters->trains - sent)));
        int result = fly(run, trains, length, interval_us, failure);

        if (result < 0)
            return -1;
        sent += trains;
        failed += result == 0;
        for (unsigned i = 0; result && i < trains; i++)
            if (run->count < PATHRATE_TRAINS_MAX &&
                sample_train(run, run->starts[i], length, &run->samples[run->count]))
                run->count++;
    }
    return 0;
}

/* Time between trains of a length, by the share of the rate that they may take. */
static double interval_us(const struct run *run, double rate_bps, unsigned length) {
    return fmax(run->parameters->interval_ms * 1e3, 8.0 * run->packet_bytes * length / (SHARE * rate_bps) * 1e6);
}

static int spoilt(const struct run *run, struct failure *failure) {
    const struct record *record = run->record;

    return failure_set(failure, FAILURE_SPOILT,
                       "%" PRIu64 " of %" PRIu64 " trains were spoilt (%" PRIu64
                       " did not leave as planned, the others were held up), a processor was away",
                       record->trains_spoilt, record->trains_sent, record->spoilt_at_sender);
}

static int measure(struct run *run, unsigned *ret_length, double *ret_adr_bps, struct failure *failure) {
    const struct pathrate_parameters *parameters = run->parameters;
    double rate_bps;
    unsigned length;

    /* Scouts are short enough for a slow path, and their rate, whatever came between, tells the order of magnitude. */
    if (send_long(run, SCOUTS, 8, parameters->interval_ms * 1e3, failure) < 0)
        return -1;
    if (run->long_count == 0 && run->record->trains_spoilt)
        return spoilt(run, failure);
    if (run->long_count == 0)
        return failure_set(failure, FAILURE_UNREACHABLE, "no train came through whole and in order");
    rate_bps = statistics_percentile(run->long_bps, run->long_count, 1);
    length = parameters->length ? (unsigned)parameters->length : pathrate_length(rate_bps, run->packet_bytes);
    run->long_count = 0;
    if (send_short(run, length, interval_us(run, rate_bps, length), failure) < 0 ||
        send_long(run, (unsigned)parameters->long_trains, (unsigned)parameters->long_length,
                  interval_us(run, rate_bps, (unsigned)parameters->long_length), failure) < 0)
        return -1;
    *ret_length = length;
    *ret_adr_bps = run->long_count ? pathrate_trimmed_mean(run->long_bps, run->long_count) : 0;
    return 0;
}

static void print_samples(const struct run *run) {
    cJSON *object = cJSON_CreateObject();
    cJSON *trains = cJSON_AddArrayToObject(object, "trains");

    if (run->record->id)
        cJSON_AddItemToObject(object, "id", cJSON_Duplicate(run->record->id, false));
    for (size_t i = 0; i < run->count; i++) {
        double sample[] = {round(run->samples[i].rate_bps), round(run->samples[i].waited_us * 10) / 10};

        cJSON_AddItemToArray(trains, cJSON_CreateDoubleArray(sample, 2));
    }
    cJSON_AddItemToObject(object, "long_bps", cJSON_CreateDoubleArray(run->long_bps, (int)run->long_count));
    record_write(stdout, object);
}

static int conclude(struct run *run, unsigned length, double adr_bps, cJSON **ret_details, struct failure *failure) {
    struct pathrate_estimate estimate;
    struct pathrate_modes modes;
    cJSON *details, *array;

    if (run->record->trains_spoilt > run->record->trains_sent / 2)
        return spoilt(run, failure);
    pathrate_find_modes(run->samples, run->count, &modes);
    if (!pathrate_estimate(run->samples, run->count, adr_bps, &modes, &estimate))
        return failure_set(failure, FAILURE_OTHER,
                           "too few trains came through whole and in order (%zu): loss, or the limits are too low",
                           run->count);
    record_add(run->record, "capacity_bps", round(estimate.capacity_bps), "bps");
    details = cJSON_CreateObject();
    cJSON_AddStringToObject(details, "grounds", pathrate_grounds_name(estimate.grounds));
    cJSON_AddNumberToObject(details, "low_bps", round(estimate.low_bps));
    cJSON_AddNumberToObject(details, "high_bps", round(estimate.high_bps));
    cJSON_AddNumberToObject(details, "average_dispersion_bps", round(adr_bps));
    cJSON_AddNumberToObject(details, "length", length);
    cJSON_AddNumberToObject(details, "trains", (double)run->count);
    array = cJSON_AddArrayToObject(details, "modes");
    for (size_t i = 0; i < modes.count; i++) {
        cJSON *mode = cJSON_CreateObject();

        cJSON_AddNumberToObject(mode, "rate_bps", round(modes.modes[i].middle_bps));
        cJSON_AddNumberToObject(mode, "trains", (double)modes.modes[i].count);
        cJSON_AddNumberToObject(mode, "merit", round(modes.modes[i].merit * 1000) / 1000);
        cJSON_AddItemToArray(array, mode);
    }
    *ret_details = details;
    return 0;
}

int pathrate_run(const struct pathrate_parameters *parameters, const struct keyring *keyring, struct record *record,
                 cJSON **ret_details, struct failure *failure) {
    struct run *run = calloc(1, sizeof(*run));
    double adr_bps = 0;
    unsigned length = 0;
    int result;

    if (!run)
        return failure_set(failure, FAILURE_OTHER, "out of memory");
    run->parameters = parameters;
    run->record = record;
    run->deadline_ns = pacing_now_ns() + (int64_t)(parameters->limit_ms * 1e6);
    record->started_at_us = pacing_wall_ns() / 1000;
    memcpy(run->chance, &record->started_at_us, sizeof(run->chance));
    result = exchange_open(&run->exchange, parameters->common.destination, (uint16_t)parameters->common.port, keyring,
                           parameters->timeout_ms, failure);
    if (result == 0) {
        run->packet_bytes = (uint32_t)fmin((double)parameters->packet_bytes, exchange_largest_packet(&run->exchange));
        result = measure(run, &length, &adr_bps, failure);
        if (result == 0)
            result = conclude(run, length, adr_bps, ret_details, failure);
        if (parameters->common.verbose)
            print_samples(run);
        exchange_close(&run->exchange);
    }
    record->probe_bytes = run->exchange.bytes;
    record->ended_at_us = pacing_wall_ns() / 1000;
    free(run);
    return result;
}
