/* The certificate with which a program of this node speaks to the broker: a file that the node's enrolment makes and
 * renewals replace. The client library reads it once, so who uses it opens its clients anew when it changed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define BROKER_IDENTITY_PATH 256

struct broker_identity {
    /* `ssl.certificate.location` of CHART_KAFKA_PROPERTIES; "": none is stated. */
    char certificate[BROKER_IDENTITY_PATH];
    /* Of the file that was last used: its number, and when it was written. */
    uint64_t inode;
    int64_t written_us;
};

void broker_identity_open(struct broker_identity *identity);

/* Whether the streams can be opened now: no certificate is stated, or it is there. */
bool broker_identity_ready(const struct broker_identity *identity);

/* Note the file that is there as the one in use. */
void broker_identity_use(struct broker_identity *identity);

/* Whether another file is there than the one in use. */
bool broker_identity_changed(const struct broker_identity *identity);
