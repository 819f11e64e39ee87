/* Structure, carriers and tag against vectors.json, which the Python codec and its hmac wrote. */
#include "support.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#define FIELD(name) assert_int_equal(qos->name, number_of(vector, #name))

static void check_qos(const struct chart_qos *qos, const cJSON *vector) {
    FIELD(guaranteed_rate);
    FIELD(available_rate);
    FIELD(preemption_priority);
    FIELD(delay_priority);
    FIELD(direction);
    FIELD(status);
    FIELD(flow_type);
    FIELD(charging);
    FIELD(burst_tolerance);
    FIELD(service);
    FIELD(lowered);
    FIELD(source_port);
    assert_int_equal(qos->version, CHART_QOS_VERSION);
}

static void check_octets(const uint8_t *got, const cJSON *object, const char *name) {
    uint32_t length;
    uint8_t *expected = octets_of(object, name, &length);

    assert_memory_equal(got, expected, length);
    free(expected);
}

static void key_of(struct chart_hmac_key *ret_key, const cJSON *vector) {
    struct chart_hmac_scratch scratch;
    uint32_t length;
    uint8_t *key = octets_of(vector, "key", &length);

    assert_int_equal(length, CHART_KEY_OCTETS);
    chart_hmac_key_set(ret_key, key, &scratch);
    free(key);
}

static void test_parsed(void **state) {
    const cJSON *vector;
    int seen = 0;

    (void)state;
    cJSON_ArrayForEach(vector, vectors("packets")) {
        const cJSON *flow = cJSON_GetObjectItemCaseSensitive(vector, "flow");
        struct chart_hmac_scratch scratch;
        struct chart_parsed parsed;
        struct chart_hmac_key key;
        uint32_t length;
        uint8_t *octets = octets_of(vector, "octets", &length), packed[CHART_SIGNAL_OCTETS], tag[CHART_TAG_OCTETS];

        assert_int_equal(parse(text_of(vector, "carrier"), &parsed, octets, length), CHART_QOS_OK);
        assert_int_equal(parsed.signal_offset, number_of(vector, "signal_offset"));
        assert_int_equal(parsed.transport_offset, number_of(vector, "transport_offset"));
        assert_int_equal(parsed.flow.family, number_of(flow, "family"));
        assert_int_equal(parsed.flow.protocol, number_of(flow, "protocol"));
        check_octets(parsed.flow.source, flow, "source");
        check_octets(parsed.flow.destination, flow, "destination");
        check_octets(parsed.flow.selector, flow, "selector");
        check_qos(&parsed.signal.qos, cJSON_GetObjectItemCaseSensitive(vector, "qos"));
        assert_int_equal(parsed.signal.sender, number_of(vector, "sender"));
        assert_int_equal(parsed.signal.epoch, number_of(vector, "epoch"));
        assert_int_equal(parsed.signal.sequence, number_of(vector, "sequence"));
        check_octets(parsed.signal.tag, vector, "tag");

        key_of(&key, vector);
        chart_signal_tag(tag, &parsed.signal, &parsed.flow, &key, &scratch);
        assert_true(chart_tag_equal(tag, parsed.signal.tag));
        chart_signal_pack(packed, &parsed.signal);
        assert_memory_equal(packed, octets + parsed.signal_offset, CHART_SIGNAL_OCTETS);
        free(octets);
        seen++;
    }
    assert_in_range(seen, 9, 100);
}

/* The bare packet with a hole after its IP header, filled by the codec, is the packet of the vector. */
static void test_built(void **state) {
    const cJSON *vector;

    (void)state;
    cJSON_ArrayForEach(vector, vectors("packets")) {
        const char *carrier = text_of(vector, "carrier");
        struct chart_parsed parsed;
        uint32_t length, bare_length, head, hole;
        uint8_t *octets = octets_of(vector, "octets", &length), *bare = octets_of(vector, "bare", &bare_length);
        uint8_t *built = calloc(1, length);

        assert_int_equal(parse(carrier, &parsed, octets, length), CHART_QOS_OK);
        if (!strcmp(carrier, "shim")) {
            assert_int_equal(chart_shim_octets(parsed.flow.family), length);
            chart_shim_build(built, &parsed.signal, &parsed.flow);
        } else {
            head = !strcmp(carrier, "ipv4") ? CHART_IPV4_HEADER : CHART_IPV6_HEADER;
            hole = !strcmp(carrier, "ipv4") ? CHART_IPV4_OPTION_OCTETS : CHART_IPV6_HOP_OCTETS;
            assert_int_equal(length, bare_length + hole);
            memcpy(built, bare, head);
            memset(built + head, 0xee, hole);
            memcpy(built + head + hole, bare + head, bare_length - head);
            assert_int_equal(head == 20 ? chart_ipv4_insert(built, &parsed.signal)
                                        : chart_ipv6_insert(built, &parsed.signal),
                             CHART_QOS_OK);
        }
        assert_memory_equal(built, octets, length);
        free(built);
        free(bare);
        free(octets);
    }
}

static void test_no_room(void **state) {
    uint8_t packet[128] = {0x46, 0, 0, 24};
    struct chart_signal signal = {.qos.version = CHART_QOS_VERSION};

    (void)state;
    assert_int_equal(chart_ipv4_insert(packet, &signal), CHART_QOS_NO_ROOM);
    packet[0] = 0x45, packet[2] = 0xff, packet[3] = 0xdc;
    assert_int_equal(chart_ipv4_insert(packet, &signal), CHART_QOS_NO_ROOM);
    packet[3] = 0xdb;
    assert_int_equal(chart_ipv4_insert(packet, &signal), CHART_QOS_OK);
    assert_int_equal(chart_get16(packet + 2), 0xffff);
    assert_int_equal(chart_ipv6_insert(packet, &signal), CHART_QOS_NOT_IP);
    memset(packet, 0, sizeof(packet));
    packet[0] = 0x60;
    assert_int_equal(chart_ipv4_insert(packet, &signal), CHART_QOS_NOT_IP);
    assert_int_equal(chart_ipv6_insert(packet, &signal), CHART_QOS_NO_ROOM);
    packet[6] = 6, packet[4] = 0xff, packet[5] = 0xd8;
    assert_int_equal(chart_ipv6_insert(packet, &signal), CHART_QOS_NO_ROOM);
    packet[5] = 0xd7;
    assert_int_equal(chart_ipv6_insert(packet, &signal), CHART_QOS_OK);
}

/* What an element on the way does: lower, sign anew, write back; the IPv4 header checksum stays right. */
static void test_rewritten(void **state) {
    const cJSON *vector;

    (void)state;
    cJSON_ArrayForEach(vector, vectors("packets")) {
        const char *carrier = text_of(vector, "carrier");
        struct chart_parsed parsed, again;
        uint32_t length;
        uint8_t *octets = octets_of(vector, "octets", &length);

        if (strcmp(carrier, "shim")) {
            assert_int_equal(parse(carrier, &parsed, octets, length), CHART_QOS_OK);
            assert_int_equal(chart_qos_lower(&parsed.signal.qos, CHART_RATE_MAX, CHART_RATE_MAX), 0);
            assert_int_equal(chart_qos_lower(&parsed.signal.qos, CHART_RATE_MAX, 0x5206), 1);
            assert_int_equal(parsed.signal.qos.lowered, 1);
            assert_int_equal(parsed.signal.qos.available_rate, 0x5206);
            if (!strcmp(carrier, "ipv4")) {
                assert_int_equal(chart_ipv4_rewrite(octets, parsed.signal_offset, &parsed.signal), CHART_QOS_OK);
                assert_int_equal(chart_get16(octets + 10), chart_ipv4_checksum(octets, 56));
                assert_int_equal(chart_ipv4_rewrite(octets, 27, &parsed.signal), CHART_QOS_BAD_OPTION);
            } else {
                assert_int_equal(chart_ipv6_rewrite(octets, parsed.signal_offset, &parsed.signal), CHART_QOS_OK);
                assert_int_equal(chart_ipv6_rewrite(octets, 43, &parsed.signal), CHART_QOS_BAD_OPTION);
            }
            assert_int_equal(parse(carrier, &again, octets, length), CHART_QOS_OK);
            assert_int_equal(again.signal.qos.available_rate, 0x5206);
        }
        free(octets);
    }
}

static void test_malformed(void **state) {
    const cJSON *vector;
    int seen = 0;

    (void)state;
    cJSON_ArrayForEach(vector, vectors("malformed")) {
        struct chart_parsed parsed;
        uint32_t length;
        uint8_t *octets = octets_of(vector, "octets", &length);
        int error = parse(text_of(vector, "carrier"), &parsed, octets, length);

        if (error != error_of(text_of(vector, "error")))
            fail_msg("%s, %s: %d", text_of(vector, "carrier"), text_of(vector, "name"), error);
        free(octets);
        seen++;
    }
    assert_in_range(seen, 40, 200);
}

static void test_hmac_vectors(void **state) {
    const cJSON *vector;
    int seen = 0;

    (void)state;
    cJSON_ArrayForEach(vector, vectors("hmac")) {
        struct chart_hmac_scratch scratch = {0};
        struct chart_hmac_key key;
        uint32_t length;
        uint8_t *data = octets_of(vector, "data", &length), tag[CHART_TAG_OCTETS];

        key_of(&key, vector);
        memcpy(scratch.block, data, length);
        chart_hmac_finish(tag, &key, length, &scratch);
        check_octets(tag, vector, "tag");
        free(data);
        seen++;
    }
    assert_int_equal(seen, 4);
}

/* Every message length under pseudo-random keys gives OpenSSL's tag. */
static void test_hmac_openssl(void **state) {
    uint32_t round, length, i, random = 2463534242u;

    (void)state;
    for (round = 0; round < 50; round++) {
        for (length = 0; length <= CHART_HMAC_MESSAGE_MAX; length++) {
            uint8_t octets[32], data[CHART_HMAC_MESSAGE_MAX + 1], tag[16], expected[EVP_MAX_MD_SIZE];
            struct chart_hmac_scratch scratch = {0};
            struct chart_hmac_key key;

            for (i = 0; i < 32 + length; i++) {
                random ^= random << 13, random ^= random >> 17, random ^= random << 5;
                *(i < 32 ? &octets[i] : &data[i - 32]) = (uint8_t)random;
            }
            chart_hmac_key_set(&key, octets, &scratch);
            memset(scratch.block, 0, sizeof(scratch.block));
            memcpy(scratch.block, data, length);
            chart_hmac_finish(tag, &key, length, &scratch);
            assert_non_null(HMAC(EVP_sha256(), octets, 32, data, length, expected, NULL));
            assert_memory_equal(tag, expected, 16);
        }
    }
}

static void test_tag_compare(void **state) {
    uint8_t first[16] = {0}, second[16] = {0};
    int bit;

    (void)state;
    assert_true(chart_tag_equal(first, second));
    for (bit = 0; bit < 128; bit++) {
        second[bit / 8] = (uint8_t)(1 << bit % 8);
        assert_false(chart_tag_equal(first, second));
        second[bit / 8] = 0;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parsed),       cmocka_unit_test(test_built),       cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_rewritten),    cmocka_unit_test(test_malformed),   cmocka_unit_test(test_hmac_vectors),
        cmocka_unit_test(test_hmac_openssl), cmocka_unit_test(test_tag_compare),
    };
    return cmocka_run_group_tests_name("qos_packets", tests, NULL, NULL);
}
