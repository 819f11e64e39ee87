/* One direction of an emulated link, without any input or output: packets and times in, packets and times out.
 *
 *   offered -> outage? -> queue (drop-tail or RED) -> transmitter at rate -> IP options?, loss, duplication -> delay,
 *   jitter, reordering -> delivered
 *
 * Loss strikes on the wire, after the packet has used its share of the rate, so the most that gets across is
 * rate x (1 - loss). Times are nanoseconds of CLOCK_MONOTONIC, lengths are octets of the IP packet. The emulated
 * clock of the transmitter is exact: packets follow each other by length / rate whatever the process's own delays. */
#ifndef LINKEM_DIRECTION_H
#define LINKEM_DIRECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"
#include "prng.h"

#define NEVER UINT64_MAX
#define PACKET_CAPACITY_BYTES 2048
#define WIRE_CAPACITY_PACKETS 1000000
#define SCHEDULE_CAPACITY 4096

struct packet {
    struct packet *next;
    uint64_t deliver_at_ns;
    uint64_t sequence;
    uint32_t length;
    uint8_t data[PACKET_CAPACITY_BYTES];
};

enum queue_kind { QUEUE_DROP_TAIL, QUEUE_RED };

/* Limits of the waiting queue; the packet being transmitted is not counted. A limit of 0 does not apply. */
struct queue_parameters {
    enum queue_kind kind;
    bool automatic; /* limit_bytes follows rate and delay, see queue_default_bytes() */
    uint64_t limit_packets;
    uint64_t limit_bytes;
    /* RED: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", 1993, section 4. */
    double red_minimum_packets;
    double red_maximum_packets;
    double red_maximum_probability;
    double red_weight;
};

/* Gilbert-Elliott: a chain of two states, stepped once per packet on the wire. */
struct burst_parameters {
    bool enabled;
    double enter; /* probability of good -> bad */
    double leave; /* probability of bad -> good */
    double loss_good;
    double loss_bad;
};

/* Loss by position: packet number n since the schedule was set is lost when n (modulo period, if any) is listed. */
struct schedule_parameters {
    uint64_t period;
    size_t count;
    uint32_t lost[SCHEDULE_CAPACITY];
};

struct parameters {
    uint64_t rate_bps; /* IP octets; 0 = no limit */
    uint64_t delay_us;
    uint64_t jitter_us; /* uniform in +- jitter around delay, order kept */
    double loss;
    double duplicate;
    double reorder; /* share of packets held back by reorder_extra_us */
    uint64_t reorder_extra_us;
    bool outage;
    bool drop_options; /* packets with IPv4 options or an IPv6 hop-by-hop header, as many paths drop them */
    struct queue_parameters queue;
    struct burst_parameters burst;
    struct schedule_parameters schedule;
};

enum drop_cause { DROP_LOSS, DROP_QUEUE, DROP_RED, DROP_OUTAGE, DROP_DEVICE, DROP_OPTIONS, DROP_CAUSES };

struct amount {
    uint64_t packets;
    uint64_t bytes;
};

/* Ground truth. offered = carried - duplicated + dropped (all causes) + queued + sending + on the wire. */
struct counters {
    struct amount offered;
    struct amount carried;
    struct amount duplicated;
    struct amount reordered;
    struct amount dropped[DROP_CAUSES];
    uint64_t queue_maximum_bytes;
    uint64_t queue_maximum_packets;
    double queue_byte_ns; /* integral of the queue over time */
    uint64_t queue_changed_ns;
    uint64_t since_ns;
    struct histogram lateness;
    struct histogram spacing_error;
};

enum chance { CHANCE_LOSS, CHANCE_BURST, CHANCE_JITTER, CHANCE_REORDER, CHANCE_DUPLICATE, CHANCE_RED, CHANCES };

struct direction {
    struct parameters parameters;
    struct counters counters;
    struct prng chance[CHANCES];
    struct packet *queue_head, *queue_tail;
    uint64_t queue_packets, queue_bytes;
    struct packet *sending;
    uint64_t sending_ends_ns;
    uint64_t sending_remainder; /* of the division by the rate, carried on so that the rate is exact */
    struct packet **wire;       /* heap, earliest delivery first */
    size_t wire_packets, wire_capacity;
    uint64_t wire_bytes;
    uint64_t in_order_ns; /* no packet that keeps its place is delivered before this */
    uint64_t next_sequence;
    uint64_t schedule_position;
    uint64_t outage_ends_ns; /* 0: until told */
    bool burst_bad;
    double red_average_packets;
    uint64_t red_idle_since_ns;
    int64_t red_count;
    uint64_t last_due_ns, last_actual_ns;
};

/* Hands a packet to the far device; returns 0 or a negative errno. The packet stays the caller's. */
typedef int (*deliver_function)(void *context, const struct packet *packet);

void direction_start(struct direction *direction, uint64_t seed, uint64_t now_ns);
void direction_stop(struct direction *direction);
/* Takes over new parameters; a packet under transmission ends as if its remaining bits went at the new rate. */
void direction_set(struct direction *direction, const struct parameters *parameters, uint64_t now_ns);
void direction_outage(struct direction *direction, uint64_t duration_ns, uint64_t now_ns);
void direction_reset_counters(struct direction *direction, uint64_t now_ns);
/* The packet becomes the direction's own. */
void direction_offer(struct direction *direction, struct packet *packet, uint64_t now_ns);
/* Delivers what is due. */
void direction_run(struct direction *direction, uint64_t now_ns, deliver_function deliver, void *context);
/* When direction_run() will next have something to do; NEVER if idle. */
uint64_t direction_next_ns(const struct direction *direction);
double direction_queue_mean_bytes(const struct direction *direction, uint64_t now_ns);

/* Queue of a link for which none is stated: what passes in max(2 x delay, 100 ms), at least 48,000 octets (32 full
 * packets), at most 64 MB. */
uint64_t queue_default_bytes(uint64_t rate_bps, uint64_t delay_us);
struct parameters parameters_default(void);

struct packet *packet_new(void);
void packet_free(struct packet *packet);

#endif
