/* Sending trains of packets to a sensor-responder and fetching their arrival times; blocking, one run at a time. */
#ifndef CHART_SENSORS_EXCHANGE_H
#define CHART_SENSORS_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"
#include "keyring.h"
#include "session.h"

/* What one FETCH can answer, and more than any sensor sends at once. */
#define TRAIN_PACKETS_MAX 128
/* Arrivals later than 4.29 s after the first do not fit the answer. */
#define TRAIN_DURATION_MAX_US 4000000.0

struct train_plan {
    uint32_t packet_bytes; /* IP packet */
    size_t packets;
    double departures_us[TRAIN_PACKETS_MAX]; /* from the first packet; equal ones leave back to back */
    uint16_t other_bytes[TRAIN_PACKETS_MAX]; /* size of a packet that differs from packet_bytes, else 0 */
};

/* One packet that was sent; times count from any moment, each end by its own clock. */
struct train_packet {
    bool arrived;
    double sent_us;
    double arrived_us;
};

struct train_flight {
    struct train_plan plan;
    uint32_t train;
    bool fetched;
    /* Where the times of the packets begin, each end by its own CLOCK_REALTIME. */
    int64_t sent_at_ns;
    int64_t arrived_at_ns;
    struct train_packet packets[TRAIN_PACKETS_MAX];
};

struct exchange {
    int descriptor;
    struct session session;
    uint32_t header_bytes; /* IP and UDP */
    int64_t rtt_ns;        /* of HELLO */
    uint32_t trains;
    uint64_t packets;
    uint64_t bytes; /* IP bytes sent, all kinds */
    uint8_t *buffer;
};

/* Largest IP packet of a train on any path that carries 1500 bytes. */
uint32_t exchange_largest_packet(const struct exchange *exchange);
/* Bytes of the fetch of one train. */
uint64_t exchange_fetch_bytes(size_t packets);

/* Open a session; tries for `timeout_ms` in all. */
int exchange_open(struct exchange *exchange, const char *destination, uint16_t port, const struct keyring *keyring,
                  double timeout_ms, struct failure *failure);
void exchange_close(struct exchange *exchange);
/* Smallest IP packet that can be signed. */
uint32_t exchange_smallest_packet(const struct exchange *exchange);
uint32_t exchange_packet_bytes(const struct train_plan *plan, size_t index);
uint64_t exchange_train_bytes(const struct train_plan *plan);
/* Send the train of `flight->plan`, whose packets become those of the flight. */
int exchange_send(struct exchange *exchange, struct train_flight *flight, struct failure *failure);
/* Fetch the arrivals of all flights not fetched yet, with up to `tries` requests each. Returns how many are missing. */
unsigned exchange_collect(struct exchange *exchange, struct train_flight *flights, unsigned count, unsigned tries);

#endif
