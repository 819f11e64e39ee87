/* What --serve reads, and key files. First byte: which parser. */
#include <stdlib.h>
#include <string.h>

#include "chirp.h"
#include "keyring.h"
#include "pathrate.h"
#include "ping.h"
#include "serve.h"
#include "spruce.h"
#include "tcp_rtt.h"
#include "trace.h"
#include "tulip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_request(const struct option_table *table, void *parameters, const char *line) {
    struct failure failure = {0};
    cJSON *id;

    if (serve_parse_request(table, line, parameters, &id, &failure) < 0 && failure.kind != FAILURE_USAGE)
        abort();
    cJSON_Delete(id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct failure failure = {0};
    uint64_t bytes, duration_ms;
    struct keyring keyring;
    char *text;

    if (size < 1)
        return 0;
    text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 8) {
    case 0: {
        struct ping_parameters parameters;

        ping_defaults(&parameters);
        try_request(&PING_OPTIONS, &parameters, text);
        if (ping_check(&parameters, &failure) == 0)
            ping_declare(&parameters, &bytes, &duration_ms);
        break;
    }
    case 1: {
        struct chirp_parameters parameters;

        chirp_defaults(&parameters);
        try_request(&CHIRP_OPTIONS, &parameters, text);
        if (chirp_check(&parameters, &failure) == 0)
            chirp_declare(&parameters, &bytes, &duration_ms);
        break;
    }
    case 3: {
        struct trace_parameters parameters;

        trace_defaults(&parameters);
        try_request(&TRACE_OPTIONS, &parameters, text);
        if (trace_check(&parameters, &failure) == 0)
            trace_declare(&parameters, &bytes, &duration_ms);
        break;
    }
    case 4: {
        struct spruce_parameters parameters;

        spruce_defaults(&parameters);
        try_request(&SPRUCE_OPTIONS, &parameters, text);
        if (spruce_check(&parameters, &failure) == 0)
            spruce_declare(&parameters, &bytes, &duration_ms);
        break;
    }
    case 5: {
        struct pathrate_parameters parameters;

        pathrate_defaults(&parameters);
        try_request(&PATHRATE_OPTIONS, &parameters, text);
        if (pathrate_check(&parameters, &failure) == 0)
            pathrate_declare(&parameters, &bytes, &duration_ms);
        break;
    }
    case 6: {
        struct tulip_parameters parameters;

        tulip_defaults(&parameters);
        try_request(&TULIP_OPTIONS, &parameters, text);
        if (tulip_check(&parameters, &failure) == 0)
            tulip_declare(&parameters, &bytes, &duration_ms);
        break;
    }
    case 7: {
        struct tcp_rtt_parameters parameters;

        tcp_rtt_defaults(&parameters);
        try_request(&TCP_RTT_OPTIONS, &parameters, text);
        if (tcp_rtt_check(&parameters, &failure) == 0)
            tcp_rtt_declare(&parameters, &bytes, &duration_ms);
        break;
    }
    default:
        if (keyring_parse(text, size - 1, &keyring, &failure) == 0)
            keyring_free(&keyring);
    }
    free(text);
    return 0;
}
