/* ping, the program: one run from the command line, or many at once with --serve; see ping.h. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pacing.h"
#include "ping.h"
#include "serve.h"

#define RUNS_MAX 256
#define NS_PER_S 1000000000LL

struct running {
    struct ping_run *run;
    struct ping_parameters parameters;
    cJSON *id;
};

struct loop {
    const struct ping_parameters *defaults;
    const struct keyring *keyring;
    struct running running[RUNS_MAX];
    size_t count;
};

static struct record new_record(const cJSON *id) {
    return (struct record){.id = id, .sensor = "ping"};
}

static void write_failure(const cJSON *id, const struct failure *failure) {
    struct record record = new_record(id);

    record_write(stdout, record_failure_to_json(&record, failure));
}

/* Text for people, JSON lines for programs; what goes wrong is one line on stderr in any case but --serve. */
static int report(const struct running *running, bool json, bool one_shot) {
    struct record record = new_record(running->id);
    struct failure failure = {0};
    int result = ping_run_summary(running->run, &record, &failure);

    if (running->parameters.common.verbose) {
        for (uint64_t i = 0; i < record.probes_sent; i++) {
            double rtt_us = ping_run_rtt_us(running->run, i);
            cJSON *object = cJSON_CreateObject();

            if (running->id)
                cJSON_AddItemToObject(object, "id", cJSON_Duplicate(running->id, false));
            cJSON_AddNumberToObject(object, "probe", (double)i);
            if (rtt_us < 0)
                cJSON_AddNullToObject(object, "rtt_us");
            else
                cJSON_AddNumberToObject(object, "rtt_us", rtt_us);
            record_write(stdout, object);
        }
    }
    if (result < 0) {
        if (one_shot)
            fprintf(stderr, "ping: %s\n", failure.message);
        if (json)
            record_write(stdout, record_failure_to_json(&record, &failure));
        return failure.kind;
    }
    if (json)
        record_write(stdout, record_to_json(&record));
    else
        record_print_text(stdout, &record);
    return 0;
}

static void take_request(struct loop *loop, const char *line) {
    struct ping_parameters parameters = *loop->defaults;
    struct failure failure = {0};
    struct ping_run *run;
    cJSON *id;

    if (serve_parse_request(&PING_OPTIONS, line, &parameters, &id, &failure) < 0 ||
        ping_check(&parameters, &failure) < 0)
        goto refuse;
    if (parameters.common.declare) {
        uint64_t bytes, duration_ms;

        ping_declare(&parameters, &bytes, &duration_ms);
        record_write(stdout, record_declaration_to_json(id, bytes, duration_ms));
        cJSON_Delete(id);
        return;
    }
    if (loop->count == RUNS_MAX) {
        failure_set(&failure, FAILURE_OTHER, "%d runs are in flight already", RUNS_MAX);
        goto refuse;
    }
    run = ping_run_start(&parameters, loop->keyring, &failure);
    if (!run)
        goto refuse;
    loop->running[loop->count++] = (struct running){run, parameters, id};
    return;
refuse:
    write_failure(id, &failure);
    cJSON_Delete(id);
}

static void take_input(struct loop *loop, struct serve_input *input) {
    char line[SERVE_LINE_MAX_BYTES];

    serve_fill(input);
    for (;;) {
        enum serve_line found = serve_next_line(input, line);

        if (found == SERVE_NOTHING)
            return;
        if (found == SERVE_LINE) {
            take_request(loop, line);
        } else {
            struct failure failure = {0};

            failure_set(&failure, FAILURE_USAGE, "the request is longer than %d bytes", SERVE_LINE_MAX_BYTES);
            write_failure(NULL, &failure);
        }
    }
}

/* Wait for input, replies or the next send; fills `polls` (input first). */
static void wait_for_work(const struct loop *loop, int input, struct pollfd *polls) {
    struct timespec timeout;
    int64_t due_ns = INT64_MAX;
    int64_t wait_ns;

    polls[0] = (struct pollfd){.fd = input, .events = POLLIN};
    for (size_t i = 0; i < loop->count; i++) {
        polls[i + 1] = (struct pollfd){.fd = ping_run_descriptor(loop->running[i].run), .events = POLLIN};
        if (ping_run_due_ns(loop->running[i].run) < due_ns)
            due_ns = ping_run_due_ns(loop->running[i].run);
    }
    wait_ns = due_ns - pacing_now_ns();
    if (wait_ns < 0)
        wait_ns = 0;
    timeout = (struct timespec){.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
    if (ppoll(polls, loop->count + 1, due_ns == INT64_MAX ? NULL : &timeout, NULL) < 0)
        for (size_t i = 0; i <= loop->count; i++)
            polls[i].revents = 0;
}

/* Serve until the input has ended and nothing runs. In a one-shot run the loop holds the run and `input` is NULL. */
static int serve(struct loop *loop, struct serve_input *input, bool json) {
    struct pollfd polls[RUNS_MAX + 1];
    int result = 0;

    while (loop->count > 0 || (input && !input->ended)) {
        size_t count = loop->count;

        wait_for_work(loop, input && !input->ended ? input->descriptor : -1, polls);
        for (size_t i = 0; i < count; i++) {
            if (polls[i + 1].revents)
                ping_run_receive(loop->running[i].run);
            if (!ping_run_finished(loop->running[i].run))
                ping_run_advance(loop->running[i].run);
        }
        for (size_t i = 0; i < loop->count;) {
            struct running *running = &loop->running[i];

            if (!ping_run_finished(running->run)) {
                i++;
                continue;
            }
            result = report(running, json, input == NULL);
            ping_run_free(running->run);
            cJSON_Delete(running->id);
            *running = loop->running[--loop->count];
        }
        if (polls[0].revents)
            take_input(loop, input);
    }
    return input ? 0 : result;
}

static int run_once(const struct ping_parameters *parameters, const struct keyring *keyring, struct failure *failure) {
    struct loop *loop = calloc(1, sizeof(*loop));
    struct ping_run *run;
    int result;

    if (!loop)
        return failure_set(failure, FAILURE_OTHER, "out of memory");
    run = ping_run_start(parameters, keyring, failure);
    if (!run) {
        free(loop);
        return -1;
    }
    loop->running[loop->count++] = (struct running){run, *parameters, NULL};
    result = serve(loop, NULL, parameters->common.json);
    free(loop);
    return result;
}

static int run_serve(const struct ping_parameters *parameters, const struct keyring *keyring, struct failure *failure) {
    struct serve_input *input = calloc(1, sizeof(*input));
    struct loop *loop = calloc(1, sizeof(*loop));
    int result = -1;

    if (!input || !loop) {
        failure_set(failure, FAILURE_OTHER, "out of memory");
    } else {
        input->descriptor = STDIN_FILENO;
        loop->defaults = parameters;
        loop->keyring = keyring;
        result = serve(loop, input, true);
    }
    free(input);
    free(loop);
    return result;
}

static int run(const struct ping_parameters *parameters, struct failure *failure) {
    struct keyring keyring = {0};
    int result;

    if (!parameters->common.serve && ping_check(parameters, failure) < 0)
        return -1;
    if (parameters->common.declare && !parameters->common.serve) {
        uint64_t bytes, duration_ms;

        ping_declare(parameters, &bytes, &duration_ms);
        record_write(stdout, record_declaration_to_json(NULL, bytes, duration_ms));
        return 0;
    }
    /* Pure ICMP needs no key, also when the environment names a key file that is not there. */
    if (parameters->common.key_file[0] && (parameters->common.serve || strcmp(parameters->protocol, "udp") == 0) &&
        keyring_load(parameters->common.key_file, &keyring, failure) < 0)
        return -1;
    pacing_prepare();
    if (parameters->common.serve)
        result = run_serve(parameters, keyring.count ? &keyring : NULL, failure);
    else
        result = run_once(parameters, keyring.count ? &keyring : NULL, failure);
    keyring_free(&keyring);
    return result;
}

int main(int argc, char **argv) {
    struct ping_parameters parameters;
    struct failure failure = {0};
    int result;

    ping_defaults(&parameters);
    result = options_read_arguments(&PING_OPTIONS, argc, argv, &parameters, &failure);
    if (result == OPTIONS_HELP)
        return 0;
    if (result == OPTIONS_READ)
        result = run(&parameters, &failure);
    if (result < 0) {
        fprintf(stderr, "ping: %s\n", failure.message);
        if (parameters.common.json || parameters.common.serve)
            write_failure(NULL, &failure);
        return failure.kind;
    }
    return result;
}
