/* The --serve protocol of a sensor: one JSON request per line of standard input, one JSON answer per line of output.
 *
 * Request: {"id": ..., <parameters of the option table, words joined by '_'>}. A line that is no request is answered
 * with an error record; the program goes on. End of input: finish what runs, then exit with status 0. */
#ifndef CHART_SENSORS_SERVE_H
#define CHART_SENSORS_SERVE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "failure.h"
#include "options.h"

/* A request is far shorter; a longer line is answered with an error and skipped. */
#define SERVE_LINE_MAX_BYTES 16384

struct serve_input {
    int descriptor;
    bool ended;
    bool skipping; /* inside a line that was too long */
    size_t used;
    char buffer[SERVE_LINE_MAX_BYTES];
};

enum serve_line {
    SERVE_NOTHING = 0,  /* no whole line yet */
    SERVE_LINE = 1,     /* a line was returned */
    SERVE_TOO_LONG = 2, /* a line was dropped */
};

/* Read what is there (blocks unless the descriptor has O_NONBLOCK); returns false once the input has ended. */
bool serve_fill(struct serve_input *input);
/* Take the next whole line, zero-terminated and without its end, into `line` of SERVE_LINE_MAX_BYTES. */
enum serve_line serve_next_line(struct serve_input *input, char *line);

/* Parse one request over the defaults in `parameters`. `*ret_id` is a copy of the id (NULL when there is none), to be
 * deleted by the caller, set on failure too whenever the line was JSON with an id. */
int serve_parse_request(const struct option_table *table, const char *line, void *parameters, cJSON **ret_id,
                        struct failure *failure);

#endif
