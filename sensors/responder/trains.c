/* Arrival times of chirp trains; see trains.h. */
#include "trains.h"

#include <string.h>

static struct train *find(struct train_store *store, uint32_t number) {
    for (size_t i = 0; i < RESPONDER_TRAINS; i++)
        if (store->trains[i].used && store->trains[i].number == number)
            return &store->trains[i];
    return NULL;
}

static struct train *take_oldest(struct train_store *store) {
    struct train *oldest = &store->trains[0];

    for (size_t i = 0; i < RESPONDER_TRAINS; i++) {
        if (!store->trains[i].used)
            return &store->trains[i];
        if (store->trains[i].age < oldest->age)
            oldest = &store->trains[i];
    }
    return oldest;
}

void train_store_add(struct train_store *store, uint32_t number, uint16_t index, int64_t at_ns) {
    struct train *train = find(store, number);

    if (index >= RESPONDER_TRAIN_PACKETS)
        return;
    if (!train) {
        train = take_oldest(store);
        memset(train, 0, sizeof(*train));
        train->used = true;
        train->number = number;
        train->age = store->ages++;
        train->first_at_ns = at_ns;
    }
    if (train->arrived[index])
        return;
    train->arrived[index] = 1;
    train->at_ns[index] = at_ns;
    if (at_ns < train->first_at_ns)
        train->first_at_ns = at_ns;
}

size_t train_store_read(const struct train_store *store, uint32_t number, uint16_t first_index, uint8_t *payload,
                        size_t room, int64_t *ret_first_at_ns) {
    const struct train *train = find((struct train_store *)store, number);
    size_t count = 0;

    *ret_first_at_ns = 0;
    if (!train)
        return 0;
    *ret_first_at_ns = train->first_at_ns;
    for (size_t i = first_index; i < RESPONDER_TRAIN_PACKETS && (count + 1) * WIRE_TRAIN_ENTRY_BYTES <= room; i++) {
        int64_t after_ns = train->at_ns[i] - train->first_at_ns;
        struct wire_train_entry entry = {(uint16_t)i, (uint32_t)after_ns};

        /* A train of more than 4.29 s does not fit the entry; its late packets count as lost. */
        if (train->arrived[i] && after_ns <= UINT32_MAX)
            wire_encode_train_entry(payload, count++, &entry);
    }
    return count;
}
