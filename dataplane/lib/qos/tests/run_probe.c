/* Loads signal_probe.bpf.o, runs it on the packets of vectors.json and on broken ones, and prints what one run takes.
 * Needs root: exit status 77 and the reason otherwise. Usage: run_probe OBJECT. */
#include "support.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <unistd.h>

#define REPEAT 20000
#define ROUNDS 7

static struct bpf_object *object;
static int program, pairs, globals;

struct globals {
    uint32_t mode;
    uint32_t available_rate;
};

/* Run on one packet; returns the program's verdict and the mean time of a run over `repeat` runs. */
static int run(const uint8_t *octets, uint32_t length, int repeat, uint8_t *ret_frame, uint32_t *ret_ns) {
    uint8_t frame[1024] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = length + 14, .data_out = ret_frame,
                .data_size_out = 1024, .repeat = repeat);

    chart_put16(frame + 12, octets[0] >> 4 == 4 ? 0x0800 : 0x86dd);
    memcpy(frame + 14, octets, length);
    assert_int_equal(bpf_prog_test_run_opts(program, &options), 0);
    if (ret_ns)
        *ret_ns = options.duration;
    return (int)options.retval;
}

static void set_mode(uint32_t mode, uint32_t available_rate) {
    struct globals values = {mode, available_rate};
    uint32_t zero = 0;

    assert_int_equal(bpf_map_update_elem(globals, &zero, &values, 0), 0);
}

static void set_pair(const cJSON *vector) {
    struct chart_hmac_scratch scratch;
    struct chart_hmac_key key;
    struct chart_pair pair = {0};
    uint32_t length, zero = 0;
    uint8_t *octets = octets_of(vector, "key", &length);

    chart_hmac_key_set(&key, octets, &scratch);
    free(octets);
    assert_int_equal(chart_pair_install(&pair, (uint8_t)number_of(vector, "epoch"), &key), CHART_QOS_OK);
    assert_int_equal(bpf_map_update_elem(pairs, &zero, &pair, 0), 0);
}

static int smaller_first(const void *first, const void *second) {
    return (int)*(const uint32_t *)first - (int)*(const uint32_t *)second;
}

/* Median of several rounds of repeated runs, in nanoseconds. */
static uint32_t median_ns(const uint8_t *octets, uint32_t length, int expected) {
    uint32_t times[ROUNDS];
    uint8_t frame[1024];

    for (int i = 0; i < ROUNDS; i++)
        assert_int_equal(run(octets, length, REPEAT, frame, &times[i]), expected);
    qsort(times, ROUNDS, sizeof(times[0]), smaller_first);
    return times[ROUNDS / 2];
}

static void test_packets(void **state) {
    const cJSON *vector;

    (void)state;
    cJSON_ArrayForEach(vector, vectors("packets")) {
        uint32_t length, verify_ns, transit_ns;
        uint8_t *octets = octets_of(vector, "octets", &length), frame[1024];
        struct chart_parsed parsed;

        if (strcmp(text_of(vector, "carrier"), "shim")) {
            set_pair(vector);
            set_mode(0, CHART_RATE_MAX);
            octets[length - 1] ^= 1; /* of the transport header or behind it: not under the tag */
            assert_int_equal(run(octets, length, 1, frame, NULL), CHART_QOS_OK);
            octets[length - 1] ^= 1;
            assert_int_equal(run(octets, length, 1, frame, NULL), CHART_QOS_REPLAYED);
            set_pair(vector);
            octets[number_of(vector, "signal_offset") + 5] ^= 1;
            assert_int_equal(run(octets, length, 1, frame, NULL), CHART_QOS_BAD_TAG);
            verify_ns = median_ns(octets, length, CHART_QOS_BAD_TAG);
            octets[number_of(vector, "signal_offset") + 5] ^= 1;

            set_mode(1, 0x5206);
            assert_int_equal(run(octets, length, 1, frame, NULL), CHART_QOS_OK);
            assert_int_equal(parse(text_of(vector, "carrier"), &parsed, frame + 14, length), CHART_QOS_OK);
            assert_int_equal(parsed.signal.qos.available_rate, 0x5206);
            assert_int_equal(parsed.signal.qos.lowered, 1);
            if (parsed.flow.family == 4)
                assert_int_equal(chart_get16(frame + 14 + 10), chart_ipv4_checksum(frame + 14, 56));
            set_mode(1, CHART_RATE_MAX);
            transit_ns = median_ns(octets, length, CHART_QOS_OK);
            print_message("qos_probe: %s: parse and verify %u ns, and sign anew %u ns\n", text_of(vector, "name"),
                          verify_ns, transit_ns);
        }
        free(octets);
    }
}

static void test_shim(void **state) {
    const cJSON *vector;
    int seen = 0;

    (void)state;
    set_mode(2, CHART_RATE_MAX);
    cJSON_ArrayForEach(vector, vectors("packets")) {
        uint32_t length;
        uint8_t *octets = octets_of(vector, "octets", &length), frame[1024];

        if (!strcmp(text_of(vector, "carrier"), "shim")) {
            set_pair(vector);
            octets[length - 1] ^= 1; /* an address of the flow: under the tag */
            assert_int_equal(run(octets, length, 1, frame, NULL), CHART_QOS_BAD_TAG);
            octets[length - 1] ^= 1;
            assert_int_equal(run(octets, length, 1, frame, NULL), CHART_QOS_OK);
            assert_int_equal(run(octets, length, 1, frame, NULL), CHART_QOS_REPLAYED);
            assert_int_equal(run(octets, length - 1, 1, frame, NULL), CHART_QOS_TRUNCATED);
            seen++;
        }
        free(octets);
    }
    assert_int_equal(seen, 2);
}

/* Room for the rest of a program: the verifier gives up at 1,000,000. */
static void test_verified_instructions(void **state) {
    struct bpf_prog_info info = {0};
    uint32_t length = sizeof(info);

    (void)state;
    assert_int_equal(bpf_obj_get_info_by_fd(program, &info, &length), 0);
    print_message("qos_probe: the verifier looked at %u instructions\n", info.verified_insns);
    assert_in_range(info.verified_insns, 1, 100000);
}

static void test_malformed(void **state) {
    const cJSON *vector;
    int seen = 0;

    (void)state;
    set_mode(0, CHART_RATE_MAX);
    cJSON_ArrayForEach(vector, vectors("malformed")) {
        const char *carrier = text_of(vector, "carrier");
        uint32_t length;
        uint8_t *octets = octets_of(vector, "octets", &length), frame[1024];

        /* The kernel's test run wants a whole IP header of the version it is told. */
        if (length >= 40 && octets[0] >> 4 == carrier[3] - '0') {
            assert_int_equal(run(octets, length, 1, frame, NULL), error_of(text_of(vector, "error")));
            seen++;
        }
        free(octets);
    }
    assert_in_range(seen, 20, 100);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packets), cmocka_unit_test(test_shim),
                                       cmocka_unit_test(test_malformed), cmocka_unit_test(test_verified_instructions)};
    struct bpf_map *map;
    int failed;

    if (argc != 2) {
        fprintf(stderr, "usage: %s signal_probe.bpf.o\n", argv[0]);
        return 2;
    }
    if (geteuid() != 0) {
        printf("qos_probe: skipped: loading a BPF program needs root\n");
        return 77;
    }
    object = bpf_object__open_file(argv[1], NULL);
    if (!object || bpf_object__load(object)) {
        fprintf(stderr, "qos_probe: loading %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    program = bpf_program__fd(bpf_object__find_program_by_name(object, "signal_probe"));
    pairs = bpf_object__find_map_fd_by_name(object, "pairs");
    globals = -1;
    bpf_object__for_each_map(map, object) {
        if (strstr(bpf_map__name(map), ".data"))
            globals = bpf_map__fd(map);
    }
    failed = program < 0 || pairs < 0 || globals < 0 || cmocka_run_group_tests_name("qos_probe", tests, NULL, NULL);
    bpf_object__close(object);
    return failed ? 1 : 0;
}
