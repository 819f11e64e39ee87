/* Arrival times of chirp trains, kept per session until the sensor fetches them; the oldest train gives way. */
#ifndef CHART_SENSORS_TRAINS_H
#define CHART_SENSORS_TRAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "responder.h"
#include "wire.h"

struct train {
    bool used;
    uint32_t number;
    uint64_t age; /* order of first packets */
    int64_t first_at_ns;
    uint8_t arrived[RESPONDER_TRAIN_PACKETS];
    int64_t at_ns[RESPONDER_TRAIN_PACKETS];
};

struct train_store {
    uint64_t ages;
    struct train trains[RESPONDER_TRAINS];
};

/* Note the arrival of packet `index` of train `number`; a duplicate or an index out of range changes nothing. */
void train_store_add(struct train_store *store, uint32_t number, uint16_t index, int64_t at_ns);
/* Write the entries of a train from `first_index` on, as many as fit into `room` bytes; returns their number and the
 * arrival that they count from. An unknown train has no entries. */
size_t train_store_read(const struct train_store *store, uint32_t number, uint16_t first_index, uint8_t *payload,
                        size_t room, int64_t *ret_first_at_ns);

#endif
