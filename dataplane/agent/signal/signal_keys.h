/* What the files of signal_tables share, and the part that keeps keys, windows and sequences; not for others. */
#pragma once

#include <endian.h>
#include <linux/bpf.h>

#include "maps.h"
#include "signal/signal_tables.h"
#include "signal_maps.h"

/* What was known of a pair before this process started. */
struct signal_kept {
    bool out;
    uint16_t element;
    uint8_t epoch;
    uint32_t sequence;
};

struct signal_tables {
    struct signal_map_fds fds;
    struct chart_signal_config config;
    struct chart_signal_ask asks[CHART_SIGNAL_ASKS_MAX];
    struct chart_signal_prefix *hops;
    size_t n_hops;
    struct chart_signal_client *clients; /* in their order */
    size_t n_clients;
    /* Installed now. */
    struct chart_signal_in_key *in;
    size_t n_in;
    uint32_t *out;
    size_t n_out;
    struct signal_kept *kept;
    size_t n_kept;
    char path[256];
    bool write_failed;
};

uint64_t signal_monotonic_ns(void);
/* 0 or -EINVAL; no prefix (family 0) is every address. */
int signal_prefix_key(const struct decide_prefix *prefix, struct chart_signal_prefix *ret);
void signal_keys_load(struct signal_tables *tables, const char *directory);
void signal_keys_free(struct signal_tables *tables);
/* This element has another id: none of its keys is right any more. */
void signal_keys_forget(struct signal_tables *tables);
