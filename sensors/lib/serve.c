/* The --serve protocol; see serve.h. */
#include "serve.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

bool serve_fill(struct serve_input *input) {
    ssize_t got;

    if (input->ended)
        return false;
    got = read(input->descriptor, input->buffer + input->used, sizeof(input->buffer) - input->used);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0) {
        input->ended = true;
        /* A last line without its end still counts. */
        if (input->used > 0 && input->used < sizeof(input->buffer))
            input->buffer[input->used++] = '\n';
        return false;
    }
    input->used += (size_t)got;
    return true;
}

enum serve_line serve_next_line(struct serve_input *input, char *line) {
    for (;;) {
        char *end = memchr(input->buffer, '\n', input->used);
        size_t length = end ? (size_t)(end - input->buffer) : input->used;
        bool skipped = input->skipping;

        if (!end) {
            if (input->used == sizeof(input->buffer)) {
                input->skipping = true;
                input->used = 0;
            }
            return SERVE_NOTHING;
        }
        memcpy(line, input->buffer, length);
        line[length] = '\0';
        input->used -= length + 1;
        memmove(input->buffer, end + 1, input->used);
        input->skipping = false;
        if (skipped)
            return SERVE_TOO_LONG;
        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        return SERVE_LINE;
    }
}

int serve_parse_request(const struct option_table *table, const char *line, void *parameters, cJSON **ret_id,
                        struct failure *failure) {
    cJSON *request = cJSON_Parse(line);
    const cJSON *id;
    int result;

    *ret_id = NULL;
    if (!request)
        return failure_set(failure, FAILURE_USAGE, "the request is not JSON");
    id = cJSON_GetObjectItemCaseSensitive(request, "id");
    if (cJSON_IsString(id) || cJSON_IsNumber(id)) {
        *ret_id = cJSON_Duplicate(id, false);
        result = options_read_json(table, request, parameters, failure);
    } else {
        result = failure_set(failure, FAILURE_USAGE, "the request has no id (text or number)");
    }
    cJSON_Delete(request);
    return result;
}
