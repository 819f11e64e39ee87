/* What tulip and tcp-rtt read: groups of answers with any numbers and times, and netlink messages of any content. First
 * byte: which. */
#include <stdlib.h>
#include <string.h>

#include "connections.h"
#include "segments.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_groups(const uint8_t *data, size_t size) {
    static struct tulip_group groups[TULIP_ROUNDS_MAX];
    struct tulip_hop hops[4];
    struct tulip_blame blame;
    size_t probes = size / 4;

    for (size_t hop = 0; hop < 4; hop++) {
        memset(groups, 0, sizeof(groups));
        for (size_t i = hop; i < probes && i < TULIP_ROUNDS_MAX * TULIP_GROUP; i += hop + 1) {
            const uint8_t *at = data + 4 * i;

            groups[i / TULIP_GROUP].probes[i % TULIP_GROUP] =
                (struct tulip_probe){true, at[0] % 2, (uint16_t)(at[1] << 8 | at[2]), (double)i, (double)i + at[3]};
        }
        tulip_judge_hop(groups, TULIP_ROUNDS_MAX, &hops[hop]);
        if (hops[hop].loss_ratio < 0 || hops[hop].loss_ratio > 1 || hops[hop].reordering_ratio > 1)
            abort();
    }
    blame = tulip_judge_path(hops, 4);
    if (blame.loss_hop > 4 || blame.reordering_hop > 4 || blame.queuing_hop > 4)
        abort();
}

static void try_messages(const uint8_t *data, size_t size) {
    struct connections before = {0}, after = {0};
    _Alignas(8) uint8_t message[2048];

    if (size > sizeof(message))
        size = sizeof(message);
    memcpy(message, data, size);
    (void)connections_add_message(&before, message, size / 2, NULL);
    (void)connections_add_message(&after, message, size, NULL);
    if (connections_summarise(&before, &after).rtt_us < 0)
        abort();
    connections_free(&before);
    connections_free(&after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    if (data[0] % 2)
        try_groups(data + 1, size - 1);
    else
        try_messages(data + 1, size - 1);
    return 0;
}
