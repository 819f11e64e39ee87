/* What --serve reads, and key files. First byte: which parser. */
#include <stdlib.h>
#include <string.h>

#include "chirp.h"
#include "keyring.h"
#include "ping.h"
#include "serve.h"

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
    struct keyring keyring;
    char *text;

    if (size < 1)
        return 0;
    text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] % 3 == 0) {
        struct ping_parameters parameters;
        uint64_t bytes, duration_ms;

        ping_defaults(&parameters);
        try_request(&PING_OPTIONS, &parameters, text);
        if (ping_check(&parameters, &failure) == 0)
            ping_declare(&parameters, &bytes, &duration_ms);
    } else if (data[0] % 3 == 1) {
        struct chirp_parameters parameters;
        uint64_t bytes, duration_ms;

        chirp_defaults(&parameters);
        try_request(&CHIRP_OPTIONS, &parameters, text);
        if (chirp_check(&parameters, &failure) == 0)
            chirp_declare(&parameters, &bytes, &duration_ms);
    } else if (keyring_parse(text, size - 1, &keyring, &failure) == 0) {
        keyring_free(&keyring);
    }
    free(text);
    return 0;
}
