/* The agent's client of the authority: enrols with a one-time token, renews its certificate at half life, follows next
 * hops, element ids, authorisations and keys, and hands them to signalling. Without --authority nothing of it runs.
 *
 *   authority.c           the module: what is asked when, back-off, hand-over
 *   authority_https.c     HTTPS with mutual TLS in the agent's loop
 *   authority_replicas.c  the replicas that may be asked
 *   authority_identity.c  key, signing request, certificate files
 *   authority_state.c     answers in
 *   authority_tables.c    tables out
 *   authority_report.c    signals that failed here, told to the authority
 *   authority_record.c    authentication of the records that this node writes */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent_module;
extern const struct agent_module authority_module;

#define AUTHORITY_MAC_HEADER "chart-mac"
#define AUTHORITY_MAC_LEN 400

/* The value of the header that authenticates a record (services/chart/common/record_mac.py). False: this node has no
 * stream key now, the record goes out without. */
bool authority_sign_record(const char *topic, const char *key, const void *value, size_t length,
                           char ret[AUTHORITY_MAC_LEN]);

/* Whether records are authenticated now: from the first stream key on. */
bool authority_signs_records(void);

/* Who answers `authority_sign_record`: the client that runs, NULL when none does. */
typedef bool (*authority_signer)(const char *topic, const char *key, const void *value, size_t length,
                                 char ret[AUTHORITY_MAC_LEN]);
void authority_use_signer(authority_signer signer);

/* The same with a given key; pure. */
bool authority_record_mac(const char *node, uint8_t epoch, const uint8_t key_octets[32], const char *topic,
                          const char *key, const void *value, size_t length, char ret[AUTHORITY_MAC_LEN]);
