/* See broker_identity.h. */
#include "lib/kafka/broker_identity.h"

#include <sys/stat.h>

#include "lib/kafka/kafka_properties.h"

void broker_identity_open(struct broker_identity *identity) {
    *identity = (struct broker_identity){0};
    if (kafka_properties_value("ssl.certificate.location", identity->certificate, sizeof(identity->certificate)))
        identity->certificate[0] = '\0';
}

/* 0: there is no such file. */
static uint64_t look(const struct broker_identity *identity, int64_t *ret_written_us) {
    struct stat found;

    if (stat(identity->certificate, &found) || !found.st_size)
        return 0;
    *ret_written_us = (int64_t)found.st_mtim.tv_sec * 1000000 + found.st_mtim.tv_nsec / 1000;
    return found.st_ino;
}

bool broker_identity_ready(const struct broker_identity *identity) {
    int64_t written_us;

    return !identity->certificate[0] || look(identity, &written_us);
}

void broker_identity_use(struct broker_identity *identity) {
    if (identity->certificate[0])
        identity->inode = look(identity, &identity->written_us);
}

bool broker_identity_changed(const struct broker_identity *identity) {
    int64_t written_us = 0;
    uint64_t inode = identity->certificate[0] ? look(identity, &written_us) : 0;

    return inode && (inode != identity->inode || written_us != identity->written_us);
}
