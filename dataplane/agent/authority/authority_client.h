/* What the files of the authority's client share; see authority.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "authority/authority_identity.h"
#include "authority/authority_report.h"
#include "authority/authority_state.h"

struct agent;
struct authority_https;
struct cJSON;

struct poll {
    bool asking;
    int64_t at_us;
    unsigned failures;
};

struct authority {
    struct agent *agent;
    struct authority_https *https;
    struct authority_identity identity;
    struct authority_state state;
    struct authority_pair records;
    struct poll certificate, hops, authorisations;
    struct authority_reports reports;
    unsigned asking;
    bool dirty;
    bool revoked;
    /* There were keys at the last look. */
    bool held_keys;
    char error[AUTHORITY_ERROR_LEN];
    /* What is wrong with this machine's clock; "": nothing. */
    char clock_fault[AUTHORITY_ERROR_LEN];
    /* Neighbours that answer no signals; "": all do, or none was asked. */
    size_t n_silent;
    char silence[AUTHORITY_ERROR_LEN];
};

/* Say what is wrong once, until something else is. */
void authority_complain(struct authority *authority, const char *what, const char *why);
/* The authority's clock is ahead of this machine's by so much. */
void authority_note_clock(struct authority *authority, int64_t ahead_us);
/* Once a second: the last key ended, or keys are there again. */
void authority_note_keys(struct authority *authority, int64_t now_us);
/* Whether neighbours answer what is asked of them in band: one sentence when that changes. */
void authority_say_silence(struct authority *authority, int64_t now_us);
/* Records are signed by what runs, and faults are its: one per process, NULL when it ends. */
void authority_present(struct authority *authority);
void authority_status(void *context, struct cJSON *object);
