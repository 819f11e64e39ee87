/* What chart-blast was asked to do. */
#ifndef BLAST_OPTIONS_H
#define BLAST_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "chart.h"

#define BLAST_FALLBACK_BPS 1000000u
#define BLAST_DATAGRAM_BYTES 1400u
#define BLAST_DURATION_S 10.0
#define BLAST_TIMEOUT_S 30.0

struct blast_options {
    bool send;
    bool listen;
    bool udp;
    bool json;
    bool asks;       /* a rate is asked for */
    bool must_agree; /* --require: no rate is a failure */
    char host[256];  /* empty: any address (listening) */
    char port[32];
    char bind[256];
    struct chart_ask ask;
    uint64_t bytes; /* 0: for duration_s */
    double duration_s;
    double interval_s; /* 0: no intervals */
    double timeout_s;  /* without any progress */
    uint32_t datagram_bytes;
    uint64_t fallback_bps;
};

enum blast_parsed { BLAST_RUN, BLAST_HELP, BLAST_VERSION, BLAST_WRONG };

/* `complaint` gets a sentence when the words are wrong (BLAST_WRONG). */
enum blast_parsed blast_options_parse(int argc, char **argv, struct blast_options *ret, char *complaint, size_t size);
void blast_options_help(FILE *file);

/* "50M", "1.5G", "800k", "64000", and "all" where CHART_ALL may be meant. Decimal multiples. False: it is none. */
bool blast_parse_amount(const char *text, bool all, uint64_t *ret);

#endif
