/* Authentication of the origin's records: the node's stream key, asked of the authority with the certificate that the
 * node's agent keeps, and the code of a record (lib/authority/record_mac.h). */
#ifndef ITM_SIGNING_H
#define ITM_SIGNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/authority/record_mac.h"
#include "options.h"

struct signing;

/* 0, or -EINVAL (addresses or file names that are none; a sentence on standard error), -ENOMEM. */
int signing_open(const struct options *options, struct signing **ret);
void signing_close(struct signing *signing);
/* Asks when it is time. Returns when to call it again; now_us is monotonic. */
uint64_t signing_tick(struct signing *signing, uint64_t now_us);
/* The value of the header of a record. False: there is no key now. */
bool signing_code(const struct signing *signing, const char *topic, const char *key, const void *value, size_t bytes,
                  char ret[RECORD_MAC_LEN]);
/* There is a key now. */
bool signing_ready(const struct signing *signing);
/* Why there is none, a sentence; "": nothing is wrong. */
const char *signing_fault(const struct signing *signing);

#endif
