/* The certificate with which this agent speaks to the broker: a file that its enrolment makes and renewals replace. The
 * client library reads it once, so the streams wait for it, and are opened anew when it changed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define STREAMS_PATH_LEN 256

struct streams_identity {
    /* `ssl.certificate.location` of CHART_KAFKA_PROPERTIES; "": none is stated. */
    char certificate[STREAMS_PATH_LEN];
    /* Of the file that was last used: its number, and when it was written. */
    uint64_t inode;
    int64_t written_us;
};

void streams_identity_open(struct streams_identity *identity);

/* Whether the streams can be opened now: no certificate is stated, or it is there. */
bool streams_identity_ready(const struct streams_identity *identity);

/* Note the file that is there as the one in use. */
void streams_identity_use(struct streams_identity *identity);

/* Whether another file is there than the one in use. */
bool streams_identity_changed(const struct streams_identity *identity);
