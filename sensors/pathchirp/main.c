/* pathchirp, the program: one run from the command line, or one after the other with --serve; see chirp.h. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "chirp.h"
#include "pacing.h"
#include "serve.h"

static struct record new_record(const cJSON *id) {
    return (struct record){.id = id, .sensor = "pathchirp"};
}

static void write_declaration(const struct chirp_parameters *parameters, const cJSON *id) {
    uint64_t bytes, duration_ms;

    chirp_declare(parameters, &bytes, &duration_ms);
    record_write(stdout, record_declaration_to_json(id, bytes, duration_ms));
}

static void write_result(const struct record *record, const char *range) {
    cJSON *object = record_to_json(record);

    cJSON_AddStringToObject(object, "range", range);
    record_write(stdout, object);
}

static void answer(const struct chirp_parameters *defaults, const struct keyring *keyring, const char *line) {
    struct chirp_parameters parameters = *defaults;
    struct failure failure = {0};
    struct record record;
    const char *range;
    cJSON *id;

    if (serve_parse_request(&CHIRP_OPTIONS, line, &parameters, &id, &failure) == 0 &&
        chirp_check(&parameters, &failure) == 0) {
        record = new_record(id);
        if (parameters.declare)
            write_declaration(&parameters, id);
        else if (chirp_run(&parameters, keyring, &record, &range, &failure) == 0)
            write_result(&record, range);
    } else {
        record = new_record(id);
    }
    if (failure.kind != FAILURE_NONE)
        record_write(stdout, record_failure_to_json(&record, &failure));
    cJSON_Delete(id);
}

static int serve(const struct chirp_parameters *defaults, const struct keyring *keyring, struct failure *failure) {
    struct serve_input *input = calloc(1, sizeof(*input));
    char line[SERVE_LINE_MAX_BYTES];
    bool more = true;

    if (!input)
        return failure_set(failure, FAILURE_OTHER, "out of memory");
    input->descriptor = STDIN_FILENO;
    while (more) {
        enum serve_line found;

        more = serve_fill(input);
        while ((found = serve_next_line(input, line)) != SERVE_NOTHING) {
            if (found == SERVE_LINE) {
                answer(defaults, keyring, line);
            } else {
                struct failure too_long = {0};
                struct record record = new_record(NULL);

                failure_set(&too_long, FAILURE_USAGE, "the request is longer than %d bytes", SERVE_LINE_MAX_BYTES);
                record_write(stdout, record_failure_to_json(&record, &too_long));
            }
        }
    }
    free(input);
    return 0;
}

static int run(const struct chirp_parameters *parameters, struct record *record, struct failure *failure) {
    struct keyring keyring = {0};
    const char *range = "within";
    int result;

    if (!parameters->serve && chirp_check(parameters, failure) < 0)
        return -1;
    if (parameters->declare && !parameters->serve) {
        write_declaration(parameters, NULL);
        return 0;
    }
    if (!parameters->key_file[0])
        return failure_set(failure, FAILURE_USAGE, "--key-file is missing (chirps are authenticated)");
    if (keyring_load(parameters->key_file, &keyring, failure) < 0)
        return -1;
    pacing_prepare();
    if (parameters->serve) {
        result = serve(parameters, &keyring, failure);
    } else {
        result = chirp_run(parameters, &keyring, record, &range, failure);
        if (result == 0 && parameters->json)
            write_result(record, range);
        else if (result == 0)
            record_print_text(stdout, record);
    }
    keyring_free(&keyring);
    return result;
}

int main(int argc, char **argv) {
    struct chirp_parameters parameters;
    struct record record = new_record(NULL);
    struct failure failure = {0};
    int result;

    chirp_defaults(&parameters);
    result = options_read_arguments(&CHIRP_OPTIONS, argc, argv, &parameters, &failure);
    if (result == OPTIONS_HELP)
        return 0;
    if (result == OPTIONS_READ)
        result = run(&parameters, &record, &failure);
    if (result < 0) {
        fprintf(stderr, "pathchirp: %s\n", failure.message);
        if (parameters.json || parameters.serve)
            record_write(stdout, record_failure_to_json(&record, &failure));
        return failure.kind;
    }
    return 0;
}
