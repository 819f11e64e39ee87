/* What chart-blast keeps of a flow and tells of it: lines while it runs, or one JSON object at the end. */
#ifndef BLAST_ACCOUNT_H
#define BLAST_ACCOUNT_H

#include <cjson/cJSON.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>

#include "chart.h"
#include "options.h"

#define BLAST_EVENTS_MAX 4096u
#define BLAST_DIGEST_TEXT 65

struct blast_event {
    double at_s;
    struct chart_rate rate;
};

struct blast_datagrams {
    uint64_t sent, received, duplicates, reordered, highest;
};

struct blast_account {
    const struct blast_options *options;
    uint64_t start_ns; /* connect() or accept() */
    uint64_t open_ns;  /* established */
    uint64_t end_ns;
    uint64_t bytes;
    uint64_t interval_ns, interval_bytes;
    struct cJSON *intervals;
    struct blast_event events[BLAST_EVENTS_MAX];
    size_t n_events, more_events;
    struct chart_rate rate;   /* seen last */
    struct chart_rate agreed; /* the last that was above 0 */
    double first_rate_s;      /* after the start; negative: there was none */
    int request_error;        /* negative errno of chart_request: the flow went on without a rate */
    struct blast_datagrams datagrams;
    EVP_MD_CTX *digest;
    char digest_text[BLAST_DIGEST_TEXT];
    struct cJSON *peer; /* what the other side told */
};

int blast_account_begin(struct blast_account *account, const struct blast_options *options);
void blast_account_end(struct blast_account *account);
void blast_account_bytes(struct blast_account *account, const void *data, size_t length);
/* Ends intervals that are over, and prints their lines. */
void blast_account_tick(struct blast_account *account, uint64_t now_ns);
void blast_account_rate(struct blast_account *account, const struct chart_rate *rate, uint64_t now_ns);
/* The digest is complete. */
void blast_account_close(struct blast_account *account);
/* Whether the other side got what was sent; true when it told nothing of it. */
bool blast_account_whole(const struct blast_account *account);
/* What a receiver tells the sender. The caller deletes it. */
struct cJSON *blast_account_brief(const struct blast_account *account);
/* Lines or JSON, on standard output. */
void blast_account_print(const struct blast_account *account, int socket);

#endif
