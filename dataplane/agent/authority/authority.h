/* The agent's client of the authority: enrols with a one-time token, renews its certificate at half life, follows next
 * hops, element ids, authorisations and keys, and hands them to signalling. Without --authority nothing of it runs.
 *
 *   authority.c           the module: what is asked when, back-off, hand-over
 *   authority_status.c    what it says of itself
 *   authority_identity.c  key, signing request, certificate files
 *   authority_state.c     answers in
 *   authority_tables.c    tables out
 *   authority_report.c    signals that failed here, told to the authority
 *   authority_record.c    who signs the records that this node writes
 *
 * HTTPS, keys and the code of a record are in lib/authority, which chart-tunnel shares. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/authority/record_mac.h"

struct agent_module;
extern const struct agent_module authority_module;

/* The value of the header that authenticates a record. False: this node has no stream key now. */
bool authority_sign_record(const char *topic, const char *key, const void *value, size_t length,
                           char ret[RECORD_MAC_LEN]);

/* Whether this node has an authority: then no record goes out without its code, it waits for the key. */
bool authority_must_sign(void);

/* Whether records are authenticated now: from the first stream key on. */
bool authority_signs_records(void);

/* What is wrong between this node and its authority, a sentence for people; "": nothing. */
const char *authority_fault(void);

/* Which neighbours answer no signals, a sentence for people; "": all do. */
const char *authority_silence(void);

/* The client's metrics; none without an authority. */
void authority_render(FILE *out);

/* Who answers `authority_sign_record`: the client that runs, NULL when none does. */
typedef bool (*authority_signer)(const char *topic, const char *key, const void *value, size_t length,
                                 char ret[RECORD_MAC_LEN]);
void authority_use_signer(authority_signer signer);
