/* JSON in and out, see json.h. */
#include "json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct complaint {
    char *text;
    size_t bytes;
};

__attribute__((format(printf, 2, 3))) static int complain(struct complaint complaint, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint.text, complaint.bytes, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

static int read_number(const cJSON *item, double minimum, double maximum, double *ret, struct complaint complaint) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= minimum && item->valuedouble <= maximum))
        return complain(complaint, "%s must be a number from %g to %g", item->string ? item->string : "an item",
                        minimum, maximum);
    *ret = item->valuedouble;
    return 0;
}

static int read_count(const cJSON *item, double maximum, uint64_t *ret, struct complaint complaint) {
    double value = 0;
    int error = read_number(item, 0, maximum, &value, complaint);
    if (error)
        return error;
    *ret = (uint64_t)value;
    return 0;
}

static int read_member(const cJSON *object, const char *name, double minimum, double maximum, double *ret,
                       struct complaint complaint) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item)
        return 0;
    return read_number(item, minimum, maximum, ret, complaint);
}

static int read_red(const cJSON *item, struct queue_parameters *queue, struct complaint complaint) {
    double limit = 0;
    queue->kind = QUEUE_RED;
    queue->red_maximum_probability = 0.02;
    queue->red_weight = 0.002;
    int error = read_member(item, "minimum_packets", 0, 1e6, &queue->red_minimum_packets, complaint);
    if (!error)
        error = read_member(item, "maximum_packets", 0, 1e6, &queue->red_maximum_packets, complaint);
    if (!error)
        error = read_member(item, "maximum_probability", 0, 1, &queue->red_maximum_probability, complaint);
    if (!error)
        error = read_member(item, "weight", 1e-9, 1, &queue->red_weight, complaint);
    if (!error)
        error = read_member(item, "limit_packets", 1, 1e6, &limit, complaint);
    if (!error && !(queue->red_maximum_packets > queue->red_minimum_packets))
        error = complain(complaint, "queue.red needs minimum_packets below maximum_packets");
    queue->limit_packets = limit > 0 ? (uint64_t)limit : (uint64_t)(2 * queue->red_maximum_packets);
    return error;
}

static int read_queue(const cJSON *item, struct queue_parameters *ret, struct complaint complaint) {
    struct queue_parameters queue = {.kind = QUEUE_DROP_TAIL};
    const cJSON *packets = cJSON_GetObjectItemCaseSensitive(item, "packets");
    const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(item, "bytes");
    const cJSON *red = cJSON_GetObjectItemCaseSensitive(item, "red");
    int error = 0;
    if (cJSON_IsString(item) && strcmp(item->valuestring, "default") == 0) {
        queue.automatic = true;
    } else if (cJSON_IsObject(red)) {
        error = read_red(red, &queue, complaint);
    } else if (packets || bytes) {
        if (packets)
            error = read_count(packets, 1e6, &queue.limit_packets, complaint);
        if (!error && bytes)
            error = read_count(bytes, 4e9, &queue.limit_bytes, complaint);
    } else {
        error = complain(complaint, "queue must be \"default\" or an object with packets, bytes or red");
    }
    if (!error)
        *ret = queue;
    return error;
}

static int read_burst(const cJSON *item, struct burst_parameters *ret, struct complaint complaint) {
    struct burst_parameters burst = {.enabled = cJSON_IsObject(item), .leave = 1, .loss_bad = 1};
    int error = 0;
    if (!cJSON_IsObject(item) && !cJSON_IsNull(item))
        return complain(complaint, "burst must be null or an object with enter, leave, loss_good, loss_bad");
    error = read_member(item, "enter", 0, 1, &burst.enter, complaint);
    if (!error)
        error = read_member(item, "leave", 0, 1, &burst.leave, complaint);
    if (!error)
        error = read_member(item, "loss_good", 0, 1, &burst.loss_good, complaint);
    if (!error)
        error = read_member(item, "loss_bad", 0, 1, &burst.loss_bad, complaint);
    if (!error)
        *ret = burst;
    return error;
}

static int read_schedule(const cJSON *item, struct schedule_parameters *ret, struct complaint complaint) {
    struct schedule_parameters schedule;
    memset(&schedule, 0, sizeof(schedule));
    if (cJSON_IsNull(item)) {
        *ret = schedule;
        return 0;
    }
    const cJSON *lost = cJSON_GetObjectItemCaseSensitive(item, "lost");
    const cJSON *period = cJSON_GetObjectItemCaseSensitive(item, "period");
    if (!cJSON_IsArray(lost) || cJSON_GetArraySize(lost) > SCHEDULE_CAPACITY)
        return complain(complaint, "schedule must be null or an object with a list lost of up to %d packet numbers",
                        SCHEDULE_CAPACITY);
    int error = period ? read_count(period, 1e9, &schedule.period, complaint) : 0;
    const cJSON *number;
    cJSON_ArrayForEach(number, lost) {
        uint64_t value = 0;
        if (!error)
            error = read_count(number, 4e9, &value, complaint);
        schedule.lost[schedule.count++] = (uint32_t)value;
    }
    if (!error)
        *ret = schedule;
    return error;
}

static int read_parameter(const cJSON *item, struct parameters *parameters, struct complaint complaint) {
    const char *name = item->string;
    if (strcmp(name, "rate_bps") == 0)
        return read_count(item, 1e11, &parameters->rate_bps, complaint);
    if (strcmp(name, "delay_us") == 0)
        return read_count(item, 6e7, &parameters->delay_us, complaint);
    if (strcmp(name, "jitter_us") == 0)
        return read_count(item, 6e7, &parameters->jitter_us, complaint);
    if (strcmp(name, "reorder_extra_us") == 0)
        return read_count(item, 6e7, &parameters->reorder_extra_us, complaint);
    if (strcmp(name, "loss") == 0)
        return read_number(item, 0, 1, &parameters->loss, complaint);
    if (strcmp(name, "duplicate") == 0)
        return read_number(item, 0, 1, &parameters->duplicate, complaint);
    if (strcmp(name, "reorder") == 0)
        return read_number(item, 0, 1, &parameters->reorder, complaint);
    if (strcmp(name, "queue") == 0)
        return read_queue(item, &parameters->queue, complaint);
    if (strcmp(name, "burst") == 0)
        return read_burst(item, &parameters->burst, complaint);
    if (strcmp(name, "schedule") == 0)
        return read_schedule(item, &parameters->schedule, complaint);
    if (strcmp(name, "outage") == 0) {
        if (!cJSON_IsBool(item))
            return complain(complaint, "outage must be true or false");
        parameters->outage = cJSON_IsTrue(item);
        return 0;
    }
    if (strcmp(name, "drop_options") == 0) {
        if (!cJSON_IsBool(item))
            return complain(complaint, "drop_options must be true or false");
        parameters->drop_options = cJSON_IsTrue(item);
        return 0;
    }
    return complain(complaint, "no such parameter: %s", name);
}

int json_to_parameters(const cJSON *object, struct parameters *parameters, char *message, size_t message_bytes) {
    struct complaint complaint = {message, message_bytes};
    struct parameters changed = *parameters;
    const cJSON *item;
    if (!cJSON_IsObject(object))
        return complain(complaint, "parameters must be an object");
    cJSON_ArrayForEach(item, object) {
        int error = read_parameter(item, &changed, complaint);
        if (error)
            return error;
    }
    *parameters = changed;
    return 0;
}

static void add(cJSON *object, const char *name, uint64_t value) {
    cJSON_AddNumberToObject(object, name, (double)value);
}

static void add_queue(cJSON *object, const struct queue_parameters *queue) {
    cJSON *added = cJSON_AddObjectToObject(object, "queue");
    cJSON_AddStringToObject(added, "kind", queue->kind == QUEUE_RED ? "red" : "drop_tail");
    cJSON_AddBoolToObject(added, "default", queue->automatic);
    add(added, "limit_packets", queue->limit_packets);
    add(added, "limit_bytes", queue->limit_bytes);
    if (queue->kind != QUEUE_RED)
        return;
    cJSON_AddNumberToObject(added, "minimum_packets", queue->red_minimum_packets);
    cJSON_AddNumberToObject(added, "maximum_packets", queue->red_maximum_packets);
    cJSON_AddNumberToObject(added, "maximum_probability", queue->red_maximum_probability);
    cJSON_AddNumberToObject(added, "weight", queue->red_weight);
}

cJSON *json_from_parameters(const struct parameters *parameters) {
    cJSON *object = cJSON_CreateObject();
    add(object, "rate_bps", parameters->rate_bps);
    add(object, "delay_us", parameters->delay_us);
    add(object, "jitter_us", parameters->jitter_us);
    cJSON_AddNumberToObject(object, "loss", parameters->loss);
    cJSON_AddNumberToObject(object, "duplicate", parameters->duplicate);
    cJSON_AddNumberToObject(object, "reorder", parameters->reorder);
    add(object, "reorder_extra_us", parameters->reorder_extra_us);
    cJSON_AddBoolToObject(object, "outage", parameters->outage);
    cJSON_AddBoolToObject(object, "drop_options", parameters->drop_options);
    add_queue(object, &parameters->queue);
    if (parameters->burst.enabled) {
        cJSON *burst = cJSON_AddObjectToObject(object, "burst");
        cJSON_AddNumberToObject(burst, "enter", parameters->burst.enter);
        cJSON_AddNumberToObject(burst, "leave", parameters->burst.leave);
        cJSON_AddNumberToObject(burst, "loss_good", parameters->burst.loss_good);
        cJSON_AddNumberToObject(burst, "loss_bad", parameters->burst.loss_bad);
    } else {
        cJSON_AddNullToObject(object, "burst");
    }
    add(object, "scheduled_losses", parameters->schedule.count);
    return object;
}

static void add_amount(cJSON *object, const char *name, struct amount amount) {
    cJSON *added = cJSON_AddObjectToObject(object, name);
    add(added, "packets", amount.packets);
    add(added, "bytes", amount.bytes);
}

static void add_histogram(cJSON *object, const char *name, const struct histogram *histogram) {
    cJSON *added = cJSON_AddObjectToObject(object, name);
    cJSON_AddNumberToObject(added, "p50_us", (double)histogram_quantile(histogram, 0.5) / 1e3);
    cJSON_AddNumberToObject(added, "p99_us", (double)histogram_quantile(histogram, 0.99) / 1e3);
    cJSON_AddNumberToObject(added, "maximum_us", (double)histogram->maximum_ns / 1e3);
    add(added, "packets", histogram->total);
}

cJSON *json_from_counters(const struct direction *direction, uint64_t now_ns) {
    static const char *const causes[DROP_CAUSES] = {"loss", "queue", "red", "outage", "device", "options"};
    const struct counters *counters = &direction->counters;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "elapsed_us", (double)(now_ns - counters->since_ns) / 1e3);
    add_amount(object, "offered", counters->offered);
    add_amount(object, "carried", counters->carried);
    add_amount(object, "duplicated", counters->duplicated);
    add_amount(object, "reordered", counters->reordered);
    cJSON *dropped = cJSON_AddObjectToObject(object, "dropped");
    for (int cause = 0; cause < DROP_CAUSES; cause++)
        add_amount(dropped, causes[cause], counters->dropped[cause]);
    cJSON *queue = cJSON_AddObjectToObject(object, "queue");
    add(queue, "packets", direction->queue_packets);
    add(queue, "bytes", direction->queue_bytes);
    add(queue, "maximum_packets", counters->queue_maximum_packets);
    add(queue, "maximum_bytes", counters->queue_maximum_bytes);
    cJSON_AddNumberToObject(queue, "mean_bytes", direction_queue_mean_bytes(direction, now_ns));
    add(object, "sending_packets", direction->sending ? 1 : 0);
    add(object, "wire_packets", direction->wire_packets);
    add(object, "wire_bytes", direction->wire_bytes);
    add_histogram(object, "spacing_error", &counters->spacing_error);
    add_histogram(object, "lateness", &counters->lateness);
    return object;
}
