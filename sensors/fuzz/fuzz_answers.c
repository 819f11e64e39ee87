/* What comes back to a sensor: answers of a responder (signed, so that all is reached), ICMP replies, and chirps with
 * any arrival times. First byte: which. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "analysis.h"
#include "icmp.h"
#include "session.h"
#include "train_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_answer(const uint8_t *data, size_t size) {
    static const char KEY[] = "1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    static struct keyring keyring;
    union address client = {.v4 = {.sin_family = AF_INET, .sin_port = 1}};
    union address server = {.v4 = {.sin_family = AF_INET, .sin_port = 2}};
    struct session session = {.local = client, .remote = server};
    struct wire_train_entry entries[TRAIN_PACKETS_MAX];
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES];
    struct wire_header header;
    struct failure failure;

    if (keyring.count == 0 && keyring_parse(KEY, sizeof(KEY) - 1, &keyring, &failure) < 0)
        abort();
    session.keyring = &keyring;
    if (size > sizeof(bytes))
        size = sizeof(bytes);
    memcpy(bytes, data, size);
    if (size >= WIRE_HEADER_BYTES) {
        memset(bytes + 16, 0, 16); /* session and token of ours */
        (void)keyring_sign(&keyring, &server, &client, bytes, size);
    }
    if (session_read(&session, bytes, size, &header) == 0)
        (void)wire_decode_train(bytes, &header, entries, TRAIN_PACKETS_MAX);
}

static void try_train(const struct train_packet *packets, size_t count) {
    struct train_plan plan = {.packet_bytes = 1400, .packets = count};

    for (size_t k = 0; k < count; k++)
        plan.departures_us[k] = packets[k].sent_us;
    if (train_judge(&plan, packets, 60e6) == TRAIN_OFF_PLAN || !(train_packet_us(&plan, packets) < INFINITY))
        abort();
    if (count > 1)
        (void)train_judge_burst(packets, count);
}

static void try_chirp(const uint8_t *data, size_t size) {
    static const struct chirp_settings SETTINGS = {1.5, 5};
    struct train_packet packets[TRAIN_PACKETS_MAX];
    size_t count = size / 4 < TRAIN_PACKETS_MAX ? size / 4 : TRAIN_PACKETS_MAX;
    double sent_us = 0, arrived_us = 0;

    for (size_t k = 0; k < count; k++, data += 4) {
        sent_us += data[0] + 1;
        arrived_us += data[1] * 16 + data[2] - 128;
        packets[k] = (struct train_packet){data[3] % 8 != 0, sent_us, arrived_us};
    }
    try_train(packets, count);
    if (chirp_analyse(packets, count, 11200, &SETTINGS).estimate_bps < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct icmp_echo echo;

    if (size < 1)
        return 0;
    if (data[0] % 3 == 0)
        try_answer(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        (void)icmp_read_reply(data[0] & 0x80 ? AF_INET6 : AF_INET, data[0] & 0x40, data + 1, size - 1, &echo);
    else
        try_chirp(data + 1, size - 1);
    return 0;
}
