/* The way of a packet through one direction of a link, see direction.h. */
#include "direction.h"

#include <stdlib.h>
#include <string.h>

#include "wire.h"

#define NS_PER_US 1000ULL
#define NS_PER_S 1000000000ULL
#define QUEUE_DEFAULT_MINIMUM_BYTES 48000ULL
#define QUEUE_DEFAULT_MAXIMUM_BYTES 64000000ULL
#define QUEUE_DEFAULT_US 100000ULL

uint64_t queue_default_bytes(uint64_t rate_bps, uint64_t delay_us) {
    uint64_t time_us = 2 * delay_us > QUEUE_DEFAULT_US ? 2 * delay_us : QUEUE_DEFAULT_US;
    double bytes = (double)rate_bps / 8 * (double)time_us / 1e6;
    if (bytes < QUEUE_DEFAULT_MINIMUM_BYTES)
        return QUEUE_DEFAULT_MINIMUM_BYTES;
    return bytes > QUEUE_DEFAULT_MAXIMUM_BYTES ? QUEUE_DEFAULT_MAXIMUM_BYTES : (uint64_t)bytes;
}

struct parameters parameters_default(void) {
    struct parameters parameters = {.queue = {.kind = QUEUE_DROP_TAIL, .automatic = true}};
    parameters.queue.limit_bytes = queue_default_bytes(0, 0);
    return parameters;
}

static void count(struct amount *amount, const struct packet *packet) {
    amount->packets++;
    amount->bytes += packet->length;
}

static void drop(struct direction *direction, struct packet *packet, enum drop_cause cause) {
    count(&direction->counters.dropped[cause], packet);
    packet_free(packet);
}

void direction_start(struct direction *direction, uint64_t seed, uint64_t now_ns) {
    memset(direction, 0, sizeof(*direction));
    for (int i = 0; i < CHANCES; i++)
        prng_seed(&direction->chance[i], seed * CHANCES + (uint64_t)i);
    direction->parameters = parameters_default();
    direction->red_count = -1;
    direction_reset_counters(direction, now_ns);
}

void direction_stop(struct direction *direction) {
    struct packet *packet;
    while ((packet = wire_pop(direction)))
        packet_free(packet);
    while ((packet = direction->queue_head)) {
        direction->queue_head = packet->next;
        packet_free(packet);
    }
    if (direction->sending)
        packet_free(direction->sending);
    free(direction->wire);
    memset(direction, 0, sizeof(*direction));
}

void direction_reset_counters(struct direction *direction, uint64_t now_ns) {
    memset(&direction->counters, 0, sizeof(direction->counters));
    direction->counters.since_ns = now_ns;
    direction->counters.queue_changed_ns = now_ns;
    direction->counters.queue_maximum_bytes = direction->queue_bytes;
    direction->counters.queue_maximum_packets = direction->queue_packets;
}

double direction_queue_mean_bytes(const struct direction *direction, uint64_t now_ns) {
    const struct counters *counters = &direction->counters;
    if (now_ns <= counters->since_ns)
        return (double)direction->queue_bytes;
    double tail = (double)direction->queue_bytes * (double)(now_ns - counters->queue_changed_ns);
    return (counters->queue_byte_ns + tail) / (double)(now_ns - counters->since_ns);
}

/* Call before every change of the queue's length; times of changes may lie a little in the past. */
static void queue_account(struct direction *direction, uint64_t now_ns) {
    struct counters *counters = &direction->counters;
    if (now_ns <= counters->queue_changed_ns)
        return;
    counters->queue_byte_ns += (double)direction->queue_bytes * (double)(now_ns - counters->queue_changed_ns);
    counters->queue_changed_ns = now_ns;
}

static bool in_outage(struct direction *direction, uint64_t now_ns) {
    if (!direction->parameters.outage)
        return false;
    if (direction->outage_ends_ns && now_ns >= direction->outage_ends_ns) {
        direction->parameters.outage = false;
        direction->outage_ends_ns = 0;
        return false;
    }
    return true;
}

static bool lost_on_wire(struct direction *direction) {
    const struct parameters *parameters = &direction->parameters;
    bool lost = parameters->loss > 0 && prng_uniform(&direction->chance[CHANCE_LOSS]) < parameters->loss;
    if (parameters->burst.enabled) {
        double step = prng_uniform(&direction->chance[CHANCE_BURST]);
        if (direction->burst_bad ? step < parameters->burst.leave : step < parameters->burst.enter)
            direction->burst_bad = !direction->burst_bad;
        double loss = direction->burst_bad ? parameters->burst.loss_bad : parameters->burst.loss_good;
        lost |= prng_uniform(&direction->chance[CHANCE_BURST]) < loss;
    }
    const struct schedule_parameters *schedule = &parameters->schedule;
    if (schedule->count > 0) {
        uint64_t position = direction->schedule_position++;
        if (schedule->period)
            position %= schedule->period;
        for (size_t i = 0; i < schedule->count; i++)
            lost |= schedule->lost[i] == position;
    }
    return lost;
}

/* IPv4: a header longer than 20 octets. IPv6: the hop-by-hop header (number 0) comes first. */
static bool has_options(const struct packet *packet) {
    if (packet->length < 20)
        return false;
    if (packet->data[0] >> 4 == 4)
        return (packet->data[0] & 15) > 5;
    return packet->data[0] >> 4 == 6 && packet->data[6] == 0;
}

static void put_on_wire(struct direction *direction, struct packet *packet, uint64_t sent_ns) {
    const struct parameters *parameters = &direction->parameters;
    if (in_outage(direction, sent_ns)) {
        drop(direction, packet, DROP_OUTAGE);
        return;
    }
    if (parameters->drop_options && has_options(packet)) {
        drop(direction, packet, DROP_OPTIONS);
        return;
    }
    if (lost_on_wire(direction)) {
        drop(direction, packet, DROP_LOSS);
        return;
    }
    uint64_t arrives_ns = sent_ns + parameters->delay_us * NS_PER_US;
    if (parameters->jitter_us) {
        double spread = (2 * prng_uniform(&direction->chance[CHANCE_JITTER]) - 1) * (double)parameters->jitter_us * 1e3;
        double shifted = (double)(parameters->delay_us * NS_PER_US) + spread;
        arrives_ns = sent_ns + (shifted > 0 ? (uint64_t)shifted : 0);
    }
    if (arrives_ns < direction->in_order_ns)
        arrives_ns = direction->in_order_ns;
    if (parameters->reorder > 0 && prng_uniform(&direction->chance[CHANCE_REORDER]) < parameters->reorder) {
        arrives_ns += parameters->reorder_extra_us * NS_PER_US;
        count(&direction->counters.reordered, packet);
    } else {
        direction->in_order_ns = arrives_ns;
    }
    packet->deliver_at_ns = arrives_ns;
    if (parameters->duplicate > 0 && prng_uniform(&direction->chance[CHANCE_DUPLICATE]) < parameters->duplicate) {
        struct packet *copy = packet_new();
        if (copy) {
            copy->deliver_at_ns = arrives_ns;
            copy->length = packet->length;
            memcpy(copy->data, packet->data, packet->length);
            if (wire_push(direction, copy) < 0)
                packet_free(copy);
            else
                count(&direction->counters.duplicated, packet);
        }
    }
    if (wire_push(direction, packet) < 0)
        drop(direction, packet, DROP_DEVICE);
}

static void transmit(struct direction *direction, struct packet *packet, uint64_t start_ns) {
    uint64_t rate_bps = direction->parameters.rate_bps;
    direction->sending = packet;
    if (rate_bps == 0) {
        direction->sending_ends_ns = start_ns;
        return;
    }
    uint64_t scaled = (uint64_t)packet->length * 8 * NS_PER_S + direction->sending_remainder;
    direction->sending_ends_ns = start_ns + scaled / rate_bps;
    direction->sending_remainder = scaled % rate_bps;
}

/* Ends every transmission that is due and starts the next one at the very time the last one ended. */
static void run_transmitter(struct direction *direction, uint64_t now_ns) {
    while (direction->sending && direction->sending_ends_ns <= now_ns) {
        uint64_t ended_ns = direction->sending_ends_ns;
        put_on_wire(direction, direction->sending, ended_ns);
        direction->sending = NULL;
        struct packet *next = direction->queue_head;
        if (!next) {
            direction->red_idle_since_ns = ended_ns;
            return;
        }
        queue_account(direction, ended_ns);
        direction->queue_head = next->next;
        if (!next->next)
            direction->queue_tail = NULL;
        next->next = NULL;
        direction->queue_packets--;
        direction->queue_bytes -= next->length;
        transmit(direction, next, ended_ns);
    }
}

/* Floyd and Jacobson 1993, section 4: average over arrivals, aged over idle time by packets of 1,000 octets. */
static bool red_drops(struct direction *direction, uint64_t now_ns) {
    const struct queue_parameters *queue = &direction->parameters.queue;
    if (direction->queue_packets == 0 && !direction->sending && direction->red_idle_since_ns) {
        double idle_packets =
            (double)(now_ns - direction->red_idle_since_ns) * (double)direction->parameters.rate_bps / 8e12;
        for (int i = 0; i < 10000 && idle_packets >= 1; i++, idle_packets--)
            direction->red_average_packets *= 1 - queue->red_weight;
    } else {
        direction->red_average_packets +=
            queue->red_weight * ((double)direction->queue_packets - direction->red_average_packets);
    }
    double average = direction->red_average_packets;
    if (average < queue->red_minimum_packets) {
        direction->red_count = -1;
        return false;
    }
    if (average >= queue->red_maximum_packets) {
        direction->red_count = 0;
        return true;
    }
    direction->red_count++;
    double share = (average - queue->red_minimum_packets) / (queue->red_maximum_packets - queue->red_minimum_packets);
    double base = queue->red_maximum_probability * share;
    double denominator = 1 - (double)direction->red_count * base;
    double probability = denominator <= 0 ? 1 : base / denominator;
    if (direction->red_count > 0 && prng_uniform(&direction->chance[CHANCE_RED]) < probability) {
        direction->red_count = 0;
        return true;
    }
    return false;
}

static bool queue_full(const struct direction *direction, const struct packet *packet) {
    const struct queue_parameters *queue = &direction->parameters.queue;
    if (queue->limit_packets && direction->queue_packets + 1 > queue->limit_packets)
        return true;
    return queue->limit_bytes && direction->queue_bytes + packet->length > queue->limit_bytes;
}

static void enqueue(struct direction *direction, struct packet *packet, uint64_t now_ns) {
    struct counters *counters = &direction->counters;
    queue_account(direction, now_ns);
    if (direction->queue_tail)
        direction->queue_tail->next = packet;
    else
        direction->queue_head = packet;
    direction->queue_tail = packet;
    direction->queue_packets++;
    direction->queue_bytes += packet->length;
    if (direction->queue_bytes > counters->queue_maximum_bytes)
        counters->queue_maximum_bytes = direction->queue_bytes;
    if (direction->queue_packets > counters->queue_maximum_packets)
        counters->queue_maximum_packets = direction->queue_packets;
}

void direction_offer(struct direction *direction, struct packet *packet, uint64_t now_ns) {
    run_transmitter(direction, now_ns);
    count(&direction->counters.offered, packet);
    if (in_outage(direction, now_ns)) {
        drop(direction, packet, DROP_OUTAGE);
        return;
    }
    if (direction->parameters.queue.kind == QUEUE_RED && red_drops(direction, now_ns)) {
        drop(direction, packet, DROP_RED);
        return;
    }
    if (!direction->sending) {
        transmit(direction, packet, now_ns);
        run_transmitter(direction, now_ns);
    } else if (queue_full(direction, packet)) {
        drop(direction, packet, DROP_QUEUE);
    } else {
        enqueue(direction, packet, now_ns);
    }
}

static void account_delivery(struct direction *direction, uint64_t due_ns, uint64_t actual_ns) {
    histogram_add(&direction->counters.lateness, actual_ns - due_ns);
    if (direction->last_due_ns && due_ns >= direction->last_due_ns) {
        int64_t wanted = (int64_t)(due_ns - direction->last_due_ns);
        int64_t error = (int64_t)(actual_ns - direction->last_actual_ns) - wanted;
        histogram_add(&direction->counters.spacing_error, (uint64_t)(error < 0 ? -error : error));
    }
    direction->last_due_ns = due_ns;
    direction->last_actual_ns = actual_ns;
}

void direction_run(struct direction *direction, uint64_t now_ns, deliver_function deliver, void *context) {
    run_transmitter(direction, now_ns);
    /* One packet per call: delivering takes microseconds, and the caller's clock moves on. */
    if (direction->wire_packets > 0 && direction->wire[0]->deliver_at_ns <= now_ns) {
        struct packet *packet = wire_pop(direction);
        account_delivery(direction, packet->deliver_at_ns, now_ns);
        if (deliver(context, packet) < 0) {
            drop(direction, packet, DROP_DEVICE);
        } else {
            count(&direction->counters.carried, packet);
            packet_free(packet);
        }
    }
}

uint64_t direction_next_ns(const struct direction *direction) {
    uint64_t next_ns = direction->sending ? direction->sending_ends_ns : NEVER;
    if (direction->wire_packets > 0 && direction->wire[0]->deliver_at_ns < next_ns)
        next_ns = direction->wire[0]->deliver_at_ns;
    return next_ns;
}

void direction_set(struct direction *direction, const struct parameters *parameters, uint64_t now_ns) {
    run_transmitter(direction, now_ns);
    uint64_t old_bps = direction->parameters.rate_bps;
    uint64_t new_bps = parameters->rate_bps;
    if (direction->sending && old_bps != new_bps) {
        double left_ns = (double)(direction->sending_ends_ns - now_ns);
        direction->sending_ends_ns = now_ns;
        if (old_bps && new_bps)
            direction->sending_ends_ns += (uint64_t)(left_ns * (double)old_bps / (double)new_bps);
        direction->sending_remainder = 0;
    }
    if (memcmp(&direction->parameters.schedule, &parameters->schedule, sizeof(parameters->schedule)) != 0)
        direction->schedule_position = 0;
    if (!parameters->burst.enabled)
        direction->burst_bad = false;
    direction->parameters = *parameters; /* in_order_ns stays: a shorter delay does not let packets overtake */
    if (!parameters->outage)
        direction->outage_ends_ns = 0;
    if (direction->parameters.queue.automatic)
        direction->parameters.queue.limit_bytes = queue_default_bytes(new_bps, parameters->delay_us);
}

void direction_outage(struct direction *direction, uint64_t duration_ns, uint64_t now_ns) {
    run_transmitter(direction, now_ns);
    direction->parameters.outage = true;
    direction->outage_ends_ns = duration_ns ? now_ns + duration_ns : 0;
}
