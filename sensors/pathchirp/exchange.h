/* Sending chirps to a sensor-responder and fetching their arrival times; blocking, one run at a time. */
#ifndef CHART_SENSORS_CHIRP_EXCHANGE_H
#define CHART_SENSORS_CHIRP_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis.h"
#include "failure.h"
#include "keyring.h"
#include "plan.h"
#include "session.h"

struct chirp_flight {
    struct chirp_plan plan;
    uint32_t train;
    bool fetched;
    struct chirp_packet packets[CHIRP_PACKETS_MAX];
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

/* Largest IP packet of a chirp on any path that carries 1500 bytes. */
uint32_t exchange_largest_packet(const struct exchange *exchange);
/* Bytes of the fetch of one chirp. */
uint64_t exchange_fetch_bytes(size_t packets);

/* Open a session; tries for `timeout_ms` in all. */
int exchange_open(struct exchange *exchange, const char *destination, uint16_t port, const struct keyring *keyring,
                  double timeout_ms, struct failure *failure);
void exchange_close(struct exchange *exchange);
/* Send the chirp of `flight->plan`, whose packets become those of the flight. */
int exchange_send(struct exchange *exchange, struct chirp_flight *flight, struct failure *failure);
/* Fetch the arrivals of all flights not fetched yet, with up to `tries` requests each. Returns how many are missing. */
unsigned exchange_collect(struct exchange *exchange, struct chirp_flight *flights, unsigned count, unsigned tries);

#endif
