/* One run of spruce; see spruce.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "estimate.h"
#include "exchange.h"
#include "pacing.h"
#include "sensor.h"
#include "spruce.h"
#include "wire.h"

#define FETCH_TRIES 4u
#define DRAIN_NS 20000000LL
#define NS_PER_US 1000
/* Sleeping cores and interfaces need tens of microseconds to come back. */
#define WAKE_US 60.0
#define BATCHES_MAX 500u

struct run {
    const struct spruce_parameters *parameters;
    struct record *record;
    struct exchange exchange;
    int64_t deadline_ns;
    unsigned gaps;
    unsigned short chance[3];
    unsigned pairs_sent;
    /* What the packets of the flight are, by index: gaps after the first of a pair, 0 for a single. */
    unsigned pair_at[TRAIN_PACKETS_MAX];
    bool first_at[TRAIN_PACKETS_MAX];
    struct train_flight flight;
    int64_t origin_sent_ns;
    int64_t origin_arrived_ns;
    struct spruce_samples samples;
    double trains_us; /* time that trains took */
    double train_bits;
};

static unsigned gaps_of(const struct spruce_parameters *parameters) {
    return parameters->gaps ? (unsigned)parameters->gaps : spruce_gaps(parameters->capacity_bps);
}

static double singles_of(const struct spruce_parameters *parameters) {
    return spruce_looks_help(parameters->capacity_bps) ? (double)parameters->singles : 0;
}

static double service_us(const struct spruce_parameters *parameters, double bytes) {
    return 8.0 * bytes / parameters->capacity_bps * 1e6;
}

static double gap_us(const struct spruce_parameters *parameters) {
    return SPRUCE_GAP_SHARE * service_us(parameters, (double)parameters->packet_bytes);
}

/* IP bytes of a pair with the singles that belong to it, each behind its waker. */
static double unit_bytes(const struct spruce_parameters *parameters) {
    return (gaps_of(parameters) + 1) * (double)parameters->packet_bytes +
           (2 * singles_of(parameters) + 1) * (WIRE_HEADER_BYTES + WIRE_IPV6_UDP_BYTES);
}

/* Mean time from pair to pair. */
static double unit_us(const struct spruce_parameters *parameters) {
    double by_share_us = 8 * unit_bytes(parameters) / (parameters->share * parameters->capacity_bps) * 1e6;

    return fmax(parameters->interval_ms * 1e3, by_share_us);
}

static unsigned units_per_batch(const struct spruce_parameters *parameters) {
    double by_packets = TRAIN_PACKETS_MAX / (gaps_of(parameters) + 2 + 2 * singles_of(parameters));
    /* Exponential gaps: the sum of a few may be three times its mean. */
    double by_time = TRAIN_DURATION_MAX_US / 3 / unit_us(parameters);

    return (unsigned)fmax(1, fmin(by_packets, by_time));
}

void spruce_declare(const struct spruce_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    double batches = ceil((double)parameters->pairs / units_per_batch(parameters));
    double bytes = (double)parameters->pairs * unit_bytes(parameters) +
                   batches * FETCH_TRIES * (double)exchange_fetch_bytes(TRAIN_PACKETS_MAX) +
                   FETCH_TRIES * (double)(WIRE_HEADER_BYTES + WIRE_IPV6_UDP_BYTES);

    *ret_bytes = bytes < (double)parameters->limit_bytes ? (uint64_t)bytes : parameters->limit_bytes;
    /* Fetches of the last batch may come after the limit. */
    *ret_duration_ms = (uint64_t)ceil(parameters->limit_ms + 500);
}

static double exponential(struct run *run, double mean) {
    return -mean * log(1 - erand48(run->chance));
}

static void add_packet(struct run *run, double at_us, bool small) {
    struct train_plan *plan = &run->flight.plan;
    size_t k = plan->packets++;

    plan->departures_us[k] = at_us;
    plan->other_bytes[k] = small ? (uint16_t)exchange_smallest_packet(&run->exchange) : 0;
    run->first_at[k] = false;
    run->pair_at[k] = 0;
}

/* Pairs and singles of one batch; every moment is Poisson's but those that would fall into a pair or right behind it. A
 * small packet goes ahead of each and wakes whoever sleeps on the way, so that the one that counts is not held up. */
static void plan_batch(struct run *run, unsigned pairs) {
    const struct spruce_parameters *parameters = run->parameters;
    struct train_plan *plan = &run->flight.plan;
    unsigned singles = (unsigned)singles_of(parameters);
    double step_us = unit_us(parameters) / (1 + singles);
    double small_us = service_us(parameters, exchange_smallest_packet(&run->exchange));
    double lead_us = WAKE_US + 1.5 * small_us;
    double pair_us = run->gaps * gap_us(parameters);
    double at_us = 0, free_us = 0;

    memset(plan, 0, sizeof(*plan));
    plan->packet_bytes = (uint32_t)fmin((double)parameters->packet_bytes, exchange_largest_packet(&run->exchange));
    for (unsigned event = 0; event < pairs * (1 + singles); event++) {
        bool pair = event % (1 + singles) == 0;

        at_us = fmax(at_us, free_us);
        if (plan->packets + run->gaps + 2 > TRAIN_PACKETS_MAX || at_us + lead_us + pair_us > TRAIN_DURATION_MAX_US)
            return;
        add_packet(run, at_us, true);
        at_us += lead_us;
        add_packet(run, at_us, !pair);
        run->first_at[plan->packets - 1] = true;
        run->pair_at[plan->packets - 1] = pair ? run->gaps : 0;
        for (unsigned gap = 1; pair && gap <= run->gaps; gap++)
            add_packet(run, at_us + gap * gap_us(parameters), false);
        /* Our own packets must be gone before we look again. */
        free_us =
            at_us + (pair ? 2 * pair_us + 2 * service_us(parameters, (double)parameters->packet_bytes) : 2 * small_us);
        at_us += exponential(run, step_us);
    }
}

static void take_pair(struct run *run, size_t first) {
    const struct train_packet *packets = run->flight.packets;
    size_t last = first + run->pair_at[first];
    struct spruce_pair *pair = &run->samples.pairs[run->samples.pair_count];

    run->pairs_sent++;
    for (size_t k = first; k <= last; k++)
        if (!packets[k].arrived || (k > first && packets[k].arrived_us < packets[k - 1].arrived_us))
            return;
    if (run->samples.pair_count == SPRUCE_PAIRS_MAX)
        return;
    pair->sent_us = packets[last].sent_us - packets[first].sent_us;
    pair->arrived_us = packets[last].arrived_us - packets[first].arrived_us;
    pair->planned_us = run->pair_at[first] * gap_us(run->parameters);
    pair->service_us = run->pair_at[first] * service_us(run->parameters, run->flight.plan.packet_bytes);
    run->samples.pair_count++;
    record_count_train(run->record, spruce_judge_pair(pair, run->parameters->capacity_bps));
}

static void take_look(struct run *run, size_t k) {
    const struct train_flight *flight = &run->flight;
    double base_us =
        (double)((flight->arrived_at_ns - run->origin_arrived_ns) - (flight->sent_at_ns - run->origin_sent_ns)) /
        NS_PER_US;

    if (!flight->packets[k].arrived || run->samples.look_count == SPRUCE_LOOKS_MAX)
        return;
    run->samples.looks[run->samples.look_count++] = (struct spruce_look){
        .at_us = (double)(flight->sent_at_ns - run->origin_sent_ns) / NS_PER_US + flight->packets[k].sent_us,
        .delay_us = base_us + flight->packets[k].arrived_us - flight->packets[k].sent_us,
        .bytes = exchange_packet_bytes(&flight->plan, k),
    };
}

static void take_batch(struct run *run) {
    const struct train_flight *flight = &run->flight;

    run->trains_us += flight->plan.departures_us[flight->plan.packets - 1];
    run->train_bits += 8.0 * (double)exchange_train_bytes(&flight->plan);
    if (run->origin_sent_ns == 0) {
        run->origin_sent_ns = flight->sent_at_ns;
        run->origin_arrived_ns = flight->arrived_at_ns;
    }
    for (size_t k = 0; k < flight->plan.packets; k++) {
        run->record->probes_sent++;
        run->record->probes_lost += !flight->packets[k].arrived;
        if (!run->first_at[k])
            continue;
        take_look(run, k);
        if (run->pair_at[k])
            take_pair(run, k);
    }
}

static bool affordable(const struct run *run) {
    const struct train_plan *plan = &run->flight.plan;
    uint64_t bytes =
        run->exchange.bytes + exchange_train_bytes(plan) + FETCH_TRIES * exchange_fetch_bytes(plan->packets);
    int64_t ends_ns = pacing_now_ns() + (int64_t)plan->departures_us[plan->packets - 1] * NS_PER_US + DRAIN_NS;

    return bytes <= run->parameters->limit_bytes && ends_ns + run->exchange.rtt_ns <= run->deadline_ns;
}

static int measure(struct run *run, struct failure *failure) {
    unsigned per_batch = units_per_batch(run->parameters);

    for (unsigned batch = 0; batch < BATCHES_MAX && run->pairs_sent < run->parameters->pairs; batch++) {
        unsigned left = (unsigned)run->parameters->pairs - run->pairs_sent;

        plan_batch(run, left < per_batch ? left : per_batch);
        if (!affordable(run))
            return 0;
        if (exchange_send(&run->exchange, &run->flight, failure) < 0)
            return -1;
        pacing_wait_until(pacing_now_ns() + DRAIN_NS);
        if (exchange_collect(&run->exchange, &run->flight, 1, FETCH_TRIES) == 0)
            take_batch(run);
        else
            run->pairs_sent += per_batch;
    }
    return 0;
}

static int conclude(struct run *run, cJSON **ret_details, struct failure *failure) {
    double capacity_bps = run->parameters->capacity_bps;
    struct spruce_estimate estimate;
    cJSON *details;

    if (run->trains_us > 0)
        run->samples.own_share = run->train_bits / (run->trains_us * capacity_bps / 1e6);
    if (run->record->trains_spoilt > run->record->trains_sent / 2)
        return failure_set(failure, FAILURE_SPOILT,
                           "%" PRIu64 " of %" PRIu64 " pairs were spoilt (%" PRIu64
                           " did not leave as planned, the others were held up), a processor was away",
                           run->record->trains_spoilt, run->record->trains_sent, run->record->spoilt_at_sender);
    if (!spruce_estimate(&run->samples, capacity_bps, &estimate))
        return failure_set(failure, run->record->probes_sent ? FAILURE_OTHER : FAILURE_UNREACHABLE,
                           "too few pairs came through in order (%zu of %u)", run->samples.pair_count, run->pairs_sent);
    record_add(run->record, "available_bandwidth_bps", round(estimate.share * capacity_bps), "bps");
    details = cJSON_CreateObject();
    cJSON_AddNumberToObject(details, "capacity_bps", capacity_bps);
    cJSON_AddNumberToObject(details, "pairs", (double)estimate.pairs_used);
    cJSON_AddNumberToObject(details, "gaps", run->gaps);
    cJSON_AddNumberToObject(details, "pairs_bps", round(estimate.pairs_share * capacity_bps));
    cJSON_AddNumberToObject(details, "pairs_error_bps", round(estimate.pairs_error * capacity_bps));
    if (estimate.idle_error > 0) {
        cJSON_AddNumberToObject(details, "looks", (double)run->samples.look_count);
        cJSON_AddNumberToObject(details, "idle_bps", round(estimate.idle_share * capacity_bps));
        cJSON_AddNumberToObject(details, "idle_error_bps", round(estimate.idle_error * capacity_bps));
    }
    *ret_details = details;
    return 0;
}

static void print_samples(const struct run *run) {
    cJSON *object = cJSON_CreateObject();
    cJSON *pairs = cJSON_AddArrayToObject(object, "pairs_us");
    cJSON *waits = cJSON_AddArrayToObject(object, "waits_us");

    if (run->record->id)
        cJSON_AddItemToObject(object, "id", cJSON_Duplicate(run->record->id, false));
    for (size_t i = 0; i < run->samples.pair_count; i++) {
        double times[] = {round(run->samples.pairs[i].sent_us * 10) / 10,
                          round(run->samples.pairs[i].arrived_us * 10) / 10};

        cJSON_AddItemToArray(pairs, cJSON_CreateDoubleArray(times, 2));
    }
    for (size_t i = 0; i < run->samples.look_count; i++)
        cJSON_AddItemToArray(waits, cJSON_CreateNumber(round(run->samples.looks[i].delay_us * 10) / 10));
    record_write(stdout, object);
}

int spruce_run(const struct spruce_parameters *parameters, const struct keyring *keyring, struct record *record,
               cJSON **ret_details, struct failure *failure) {
    struct run *run = calloc(1, sizeof(*run));
    int result;

    if (!run)
        return failure_set(failure, FAILURE_OTHER, "out of memory");
    run->parameters = parameters;
    run->record = record;
    run->gaps = gaps_of(parameters);
    run->deadline_ns = pacing_now_ns() + (int64_t)(parameters->limit_ms * 1e6);
    record->started_at_us = pacing_wall_ns() / 1000;
    memcpy(run->chance, &record->started_at_us, sizeof(run->chance));
    result = exchange_open(&run->exchange, parameters->common.destination, (uint16_t)parameters->common.port, keyring,
                           parameters->timeout_ms, failure);
    if (result == 0) {
        result = measure(run, failure);
        if (result == 0)
            result = conclude(run, ret_details, failure);
        if (parameters->common.verbose)
            print_samples(run);
        exchange_close(&run->exchange);
    }
    record->probe_bytes = run->exchange.bytes;
    record->ended_at_us = pacing_wall_ns() / 1000;
    free(run);
    return result;
}
