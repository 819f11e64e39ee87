/* The program around a sensor; see sensor.h. */
#include "sensor.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pacing.h"
#include "serve.h"

/* Runs of one --serve process. */
struct service {
    const struct sensor *sensor;
    const void *defaults;
    const struct keyring *keyring;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned running;
};

struct job {
    struct service *service;
    cJSON *id;
    void *parameters;
};

static const struct common_parameters *common_of(const void *parameters) {
    return parameters;
}

int sensor_check_peer(const struct common_parameters *common, struct failure *failure) {
    if (!common->destination[0])
        return failure_set(failure, FAILURE_USAGE, "destination is missing (try --help)");
    if (!common->key_file[0] && !common->declare)
        return options_no_key(OPTIONS_COPY_KEY, failure);
    return 0;
}

static struct sensor_answer new_answer(const struct sensor *sensor, const cJSON *id) {
    return (struct sensor_answer){.record = {.id = id, .sensor = sensor->options->program}};
}

static void write_declaration(const struct sensor *sensor, const void *parameters, const cJSON *id) {
    uint64_t bytes, duration_ms;

    sensor->declare(parameters, &bytes, &duration_ms);
    record_write(stdout, record_declaration_to_json(id, bytes, duration_ms));
}

/* The result of a run or, where `failure` has a kind, its error record; frees the details. */
static void write_answer(struct sensor_answer *answer, const struct failure *failure) {
    cJSON *object = failure->kind == FAILURE_NONE ? record_to_json(&answer->record)
                                                  : record_failure_to_json(&answer->record, failure);

    while (answer->details && answer->details->child) {
        cJSON *member = cJSON_DetachItemViaPointer(answer->details, answer->details->child);

        cJSON_AddItemToObject(object, member->string, member);
    }
    cJSON_Delete(answer->details);
    answer->details = NULL;
    record_write(stdout, object);
}

static void measure(const struct job *job) {
    struct sensor_answer answer = new_answer(job->service->sensor, job->id);
    struct failure failure = {0};

    if (job->service->sensor->run(job->parameters, job->service->keyring, &answer, &failure) < 0 &&
        failure.kind == FAILURE_NONE)
        failure_set(&failure, FAILURE_OTHER, "the run failed");
    write_answer(&answer, &failure);
}

static void free_job(struct job *job) {
    cJSON_Delete(job->id);
    free(job->parameters);
    free(job);
}

static void *work(void *argument) {
    struct job *job = argument;
    struct service *service = job->service;

    pacing_prepare();
    measure(job);
    free_job(job);
    pthread_mutex_lock(&service->lock);
    service->running--;
    pthread_cond_broadcast(&service->changed);
    pthread_mutex_unlock(&service->lock);
    return NULL;
}

static void await_fewer(struct service *service, unsigned limit) {
    pthread_mutex_lock(&service->lock);
    while (service->running >= limit)
        pthread_cond_wait(&service->changed, &service->lock);
    pthread_mutex_unlock(&service->lock);
}

/* Runs the job now, or in a thread of its own as soon as fewer than the sensor's limit are running. */
static void start_job(struct job *job) {
    struct service *service = job->service;
    pthread_attr_t detached;
    pthread_t thread;

    if (service->sensor->runs_at_once <= 1) {
        measure(job);
        free_job(job);
        return;
    }
    await_fewer(service, service->sensor->runs_at_once);
    pthread_mutex_lock(&service->lock);
    service->running++;
    pthread_mutex_unlock(&service->lock);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, work, job) != 0)
        work(job);
    pthread_attr_destroy(&detached);
}

static void refuse(const struct service *service, const cJSON *id, const struct failure *failure) {
    struct sensor_answer answer = new_answer(service->sensor, id);

    write_answer(&answer, failure);
}

static void take_request(struct service *service, const char *line) {
    const struct sensor *sensor = service->sensor;
    struct job *job = calloc(1, sizeof(*job));
    struct failure failure = {0};

    if (!job || !(job->parameters = malloc(sensor->parameters_bytes))) {
        free(job);
        failure_set(&failure, FAILURE_OTHER, "out of memory");
        refuse(service, NULL, &failure);
        return;
    }
    job->service = service;
    memcpy(job->parameters, service->defaults, sensor->parameters_bytes);
    if (serve_parse_request(sensor->options, line, job->parameters, &job->id, &failure) == 0 &&
        sensor->check(job->parameters, &failure) == 0) {
        if (!common_of(job->parameters)->declare) {
            start_job(job);
            return;
        }
        write_declaration(sensor, job->parameters, job->id);
    } else {
        refuse(service, job->id, &failure);
    }
    free_job(job);
}

static int serve(struct service *service, struct failure *failure) {
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
            struct failure too_long = {0};

            if (found == SERVE_LINE) {
                take_request(service, line);
                continue;
            }
            failure_set(&too_long, FAILURE_USAGE, "the request is longer than %d bytes", SERVE_LINE_MAX_BYTES);
            refuse(service, NULL, &too_long);
        }
    }
    await_fewer(service, 1);
    free(input);
    return 0;
}

static int run_once(const struct sensor *sensor, const void *parameters, const struct keyring *keyring,
                    struct failure *failure) {
    struct sensor_answer answer = new_answer(sensor, NULL);
    bool json = common_of(parameters)->json;
    int result = sensor->run(parameters, keyring, &answer, failure);

    if (result < 0 && failure->kind == FAILURE_NONE)
        failure_set(failure, FAILURE_OTHER, "the run failed");
    if (result < 0)
        fprintf(stderr, "%s: %s\n", sensor->options->program, failure->message);
    if (json) {
        write_answer(&answer, failure);
        return result;
    }
    if (result == 0)
        record_print_text(stdout, &answer.record);
    if (answer.details) {
        char *text = cJSON_Print(answer.details);

        printf("%s\n", text ? text : "");
        free(text);
        cJSON_Delete(answer.details);
    }
    return result;
}

static int run(const struct sensor *sensor, const void *parameters, bool *ret_told, struct failure *failure) {
    const struct common_parameters *common = common_of(parameters);
    bool authenticated = sensor->options->common & OPTIONS_RESPONDER;
    struct keyring keyring = {0};
    int result;

    if (!common->serve && sensor->check(parameters, failure) < 0)
        return -1;
    if (common->declare && !common->serve) {
        write_declaration(sensor, parameters, NULL);
        return 0;
    }
    if (authenticated && !common->key_file[0])
        return options_no_key(OPTIONS_COPY_KEY, failure);
    if (authenticated && keyring_load(common->key_file, &keyring, failure) < 0)
        return -1;
    pacing_prepare();
    if (common->serve) {
        struct service service = {.sensor = sensor,
                                  .defaults = parameters,
                                  .keyring = &keyring,
                                  .lock = PTHREAD_MUTEX_INITIALIZER,
                                  .changed = PTHREAD_COND_INITIALIZER};

        result = serve(&service, failure);
    } else {
        *ret_told = true;
        result = run_once(sensor, parameters, &keyring, failure);
    }
    keyring_free(&keyring);
    return result;
}

int sensor_main(const struct sensor *sensor, int argc, char **argv) {
    void *parameters = calloc(1, sensor->parameters_bytes);
    struct failure failure = {0};
    bool told = false;
    int result;

    if (!parameters) {
        fprintf(stderr, "%s: out of memory\n", sensor->options->program);
        return FAILURE_OTHER;
    }
    sensor->defaults(parameters);
    result = options_read_arguments(sensor->options, argc, argv, parameters, &failure);
    if (result == OPTIONS_READ)
        result = run(sensor, parameters, &told, &failure);
    else if (result == OPTIONS_HELP)
        result = 0;
    if (result < 0 && !told) {
        struct sensor_answer answer = new_answer(sensor, NULL);

        fprintf(stderr, "%s: %s\n", sensor->options->program, failure.message);
        if (common_of(parameters)->json || common_of(parameters)->serve)
            write_answer(&answer, &failure);
    }
    free(parameters);
    return result < 0 ? (int)failure.kind : 0;
}
