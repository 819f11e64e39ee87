/* See datapath.h. This file: advice that the classifier gives to flows which nobody controls here. */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "grants/datapath_state.h"
#include "grants/selectors.h"
#include "lib/advice/advice.h"

/* A time of the wall clock by CLOCK_MONOTONIC; 0: it is over. */
static uint64_t expires_ns(int64_t until_us, int64_t now_us) {
    return until_us > now_us ? datapath_monotonic_ns() + (uint64_t)(until_us - now_us) * 1000 : 0;
}

static void police(struct datapath *datapath, struct datapath_link *link, bool wanted) {
    if (wanted && !link->polices)
        datapath->classify->bss->policing_links++;
    else if (!wanted && link->polices)
        datapath->classify->bss->policing_links--;
    link->polices = wanted;
}

/* A trie is walked anew after each entry that goes. */
static void forget_prefixes(struct datapath *datapath, uint32_t ifindex) {
    int fd = bpf_map__fd(datapath->classify->maps.advice_prefixes);
    struct chart_advice_prefix key, next;
    int more = bpf_map_get_next_key(fd, NULL, &next);

    while (more == 0) {
        key = next;
        more = bpf_map_get_next_key(fd, &key, &next);
        if (key.ifindex == ifindex && bpf_map_delete_elem(fd, &key) == 0)
            more = bpf_map_get_next_key(fd, NULL, &next);
    }
}

int datapath_advise_prefixes(struct datapath *datapath, uint32_t ifindex, const struct decide_prefix *prefixes,
                             size_t n_prefixes) {
    int fd = bpf_map__fd(datapath->classify->maps.advice_prefixes);
    uint8_t known = 1;

    forget_prefixes(datapath, ifindex);
    for (size_t i = 0; i < n_prefixes; i++) {
        struct chart_selector mapped = {0};
        struct decide_selector selector = {.source = prefixes[i]};
        struct chart_advice_prefix key = {.ifindex = ifindex};
        int error = selector_to_kernel(&selector, &mapped);

        if (error)
            return error;
        key.bits = 32 + prefixes[i].bits + (prefixes[i].family == AF_INET ? 96 : 0);
        memcpy(key.address, mapped.source, sizeof(key.address));
        if (bpf_map_update_elem(fd, &key, &known, BPF_ANY))
            return -errno;
    }
    return 0;
}

int datapath_advise(struct datapath *datapath, uint32_t ifindex, const struct datapath_advice *advice, int64_t now_us) {
    struct datapath_link *link = datapath_find_link(datapath, ifindex);
    struct chart_link_advice kernel = {
        .fair_bps = advice->fair_bps,
        .fair_expires_ns = expires_ns(advice->fair_until_us, now_us),
        .spare_bps = advice->spare_bps,
        .spare_expires_ns = expires_ns(advice->spare_until_us, now_us),
        .scone = advice->scone,
        .quick_start = advice->quick_start,
        .begin_bps = advice->begin_bps,
        .scone_police = advice->scone_police,
        .prefixes = advice->prefixes,
    };

    if (!link)
        return -ENOENT;
    if (bpf_map_update_elem(bpf_map__fd(datapath->classify->maps.link_advice), &ifindex, &kernel, BPF_ANY))
        return -errno;
    datapath->classify->bss->advising_links += !link->advises;
    link->advises = true;
    police(datapath, link, advice->scone && advice->scone_police);
    return 0;
}

void datapath_no_advice(struct datapath *datapath, uint32_t ifindex) {
    struct datapath_link *link = datapath_find_link(datapath, ifindex);

    if (!link || !link->advises)
        return;
    bpf_map_delete_elem(bpf_map__fd(datapath->classify->maps.link_advice), &ifindex);
    datapath->classify->bss->advising_links--;
    link->advises = false;
    police(datapath, link, false);
    forget_prefixes(datapath, ifindex);
}
