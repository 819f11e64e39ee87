/* The links of the node: from configuration and topology to interfaces with a queue and a classifier; see node.h. */
#include "node/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/options.h"
#include "lib/advice/quick_start.h"
#include "signal/signal_source.h"
#include "signal/signal_tables.h"

/* What was worked out of a link's loads is good for ten intervals: then nobody knows. */
#define SPARE_LASTS_US 1000000ll

/* The registry's capacity is none that the interface can be meant with, and --link gives none. */
static bool refuses_capacity(const struct node_link *link) {
    return !link->option_capacity_bps && link->stated_capacity_bps &&
           !bounds_capacity(link->stated_capacity_bps, link->speed_bps);
}

uint64_t node_link_capacity_bps(const struct node_link *link) {
    if (link->option_capacity_bps)
        return link->option_capacity_bps;
    return link->stated_capacity_bps && !refuses_capacity(link) ? link->stated_capacity_bps : link->speed_bps;
}

uint64_t node_link_own_capacity_bps(const struct node_link *link) {
    return link->option_capacity_bps ? link->option_capacity_bps : link->speed_bps;
}

static void set_fault(struct node_link *link, const char *what, const char *why) {
    char text[NODE_REASON_LEN];

    snprintf(text, sizeof(text), "link %.60s %s: %s", link->id, what, why);
    memcpy(link->fault, text, sizeof(text));
}

static struct node_link *find_link(struct node *node, const char *id) {
    for (int i = 0; i < AGENT_LINKS_MAX; i++)
        if (node->links[i].used && strcmp(node->links[i].id, id) == 0)
            return &node->links[i];
    return NULL;
}

static struct node_link *add_link(struct node *node, const char *id, const char *interface) {
    if (strlen(id) >= DECIDE_ID_LEN || strlen(interface) >= IF_NAMESIZE)
        return NULL;
    for (int i = 0; i < AGENT_LINKS_MAX; i++) {
        struct node_link *link = &node->links[i];

        if (link->used)
            continue;
        *link = (struct node_link){.used = true};
        strcpy(link->id, id);
        strcpy(link->interface_name, interface);
        return link;
    }
    return NULL;
}

/* Give the interface back: no queue, no bound and no classifier of ours. */
static void release_interface(struct node *node, struct node_link *link) {
    int err = htb_remove(&node->netlink, &link->htb);

    if (err)
        log_warning("link %s: its HTB stays: %s", link->id, strerror(-err));
    node_settings_unbound(node, link);
    if (link->classified)
        datapath_detach_link(node->datapath, link->interface.ifindex);
    link->classified = false;
    link->prefixes_written = false;
    link->have_before = false;
}

void node_links_open(struct node *node) {
    for (size_t i = 0; i < node->options->n_links; i++) {
        const struct agent_link_option *option = &node->options->links[i];
        struct node_link *link = add_link(node, option->id, option->interface);

        if (!link)
            continue;
        link->fixed = true;
        link->option_capacity_bps = option->capacity_bps;
    }
}

void node_links_close(struct node *node) {
    for (int i = 0; i < AGENT_LINKS_MAX; i++)
        if (node->links[i].used)
            release_interface(node, &node->links[i]);
}

static uint32_t permille(double stated, uint32_t otherwise) {
    return stated > 0 && stated <= 1 ? (uint32_t)(stated * 1000 + 0.5) : otherwise;
}

/* Whom advice of a link is for: what cannot be read serves nobody. */
static void state_advice(struct node_link *link, const struct messages_link *stated) {
    link->scone = stated->scone;
    link->scone_police = stated->scone_police;
    link->quick_start = stated->quick_start;
    link->quick_start_threshold_permille = permille(stated->quick_start_threshold, CHART_QS_THRESHOLD_PERMILLE);
    link->quick_start_share_permille = permille(stated->quick_start_share, 1000);
    link->prefixes_limit = stated->n_advice_prefixes;
    link->prefixes_written = false;
    link->n_advice_prefixes = 0;
    for (size_t i = 0; i < stated->n_advice_prefixes; i++) {
        struct decide_prefix *prefix = &link->advice_prefixes[link->n_advice_prefixes];

        if (link->n_advice_prefixes == DATAPATH_ADVICE_PREFIXES_MAX)
            log_warning("link %s: advice is for %d prefixes at most, %s is left out", link->id,
                        DATAPATH_ADVICE_PREFIXES_MAX, stated->advice_prefixes[i]);
        else if (decide_parse_prefix(stated->advice_prefixes[i], prefix) == 0 && prefix->family)
            link->n_advice_prefixes++;
        else
            log_warning("link %s: %s is no prefix, it gets no advice", link->id, stated->advice_prefixes[i]);
    }
}

void node_links_stated(const struct messages_link *stated, void *context) {
    struct node *node = context;
    struct node_link *link = find_link(node, stated->id);

    if (!*stated->interface) {
        if (link && !link->fixed) {
            log_info("link %s is no longer in the topology", link->id);
            release_interface(node, link);
            signal_source_no_link(link->interface_name);
            link->used = false;
        }
        return;
    }
    if (!link)
        link = add_link(node, stated->id, stated->interface);
    if (!link) {
        log_warning("link %s cannot be taken: too many links or a name too long", stated->id);
        return;
    }
    if (!link->fixed && strcmp(link->interface_name, stated->interface) != 0 &&
        strlen(stated->interface) < IF_NAMESIZE) {
        release_interface(node, link);
        signal_source_no_link(link->interface_name);
        link->interface = (struct netlink_interface){0};
        strcpy(link->interface_name, stated->interface);
    }
    link->stated_capacity_bps = stated->capacity_bps;
    state_advice(link, stated);
    link->counted = false;
}

/* What of the link's commands is outside of this node's bounds: counted once for each record, when the interface is
 * known, and said while it lasts. */
static void check_bounds(struct node *node, struct node_link *link, bool enforce, int64_t now_us) {
    bool capacity = refuses_capacity(link);
    char why[72];

    if (!link->counted && link->interface.ifindex) {
        if (capacity)
            decide_count_refused(node->decide, BOUNDS_CAPACITY);
        if (!link->fixed)
            decide_count_refused(node->decide, BOUNDS_LINK);
        link->counted = true;
    }
    if (capacity) {
        snprintf(why, sizeof(why), "%llu bit/s on an interface of %llu", (unsigned long long)link->stated_capacity_bps,
                 (unsigned long long)link->speed_bps);
        set_fault(link, "refuses its capacity", why);
    } else if (enforce && !link->fixed) {
        set_fault(link, "is only observed", "no --link of this node names it");
    } else if (decide_rate_is_refused(node->decide, link->id, now_us)) {
        set_fault(link, "refuses its rate", "it is above the link's capacity");
    }
}

static uint64_t legacy_share_bps(const struct node *node, const struct node_link *link, int64_t now_us) {
    const struct decide_link_rate *rate = decide_link_rate(node->decide, link->id, now_us);

    /* 0 would mean "not known". */
    if (!rate)
        return 0;
    return rate->legacy_share_bps ? rate->legacy_share_bps : 1;
}

static void look_at_interface(struct node *node, struct node_link *link) {
    struct netlink_interface interface = {0};
    int err = netlink_interface(&node->netlink, 0, link->interface_name, &interface);

    if (interface.ifindex != link->interface.ifindex && link->interface.ifindex) {
        /* The interface went, or one of the same name came: queue and classifier went with it. */
        link->htb.installed = false;
        link->classified = false;
        link->have_before = false;
        node_settings_unbound(node, link);
    }
    /* A speed is agreed on anew when the interface comes up. */
    if (interface.ifindex != link->interface.ifindex || interface.up != link->interface.up)
        link->speed_bps = netlink_speed_bps(&interface);
    link->interface = interface;
    if (err)
        set_fault(link, "has no interface", strerror(-err));
}

static void classify(struct node *node, struct node_link *link) {
    int err;

    if (link->classified || !link->interface.ifindex)
        return;
    err = datapath_attach_link(node->datapath, link->interface.ifindex);
    if (err) {
        set_fault(link, "has no classifier", strerror(-err));
        return;
    }
    link->classified = true;
    link->have_before = false;
}

/* An agent that was killed while it enforced may have left its queue. */
static void sweep(struct node *node, struct node_link *link) {
    if (link->swept || !link->interface.ifindex)
        return;
    link->swept = true;
    if (htb_cleanup(&node->netlink, link->interface.ifindex) > 0)
        log_info("link %s: HTB of an earlier agent removed", link->id);
}

static void shape(struct node *node, struct node_link *link, bool wanted, int64_t now_us) {
    uint64_t capacity_bps = node_link_capacity_bps(link);
    bool current = link->htb.installed && link->htb.capacity_bps == capacity_bps &&
                   link->htb.ifindex == link->interface.ifindex && link->htb.mtu == link->interface.mtu;
    int err;

    if (!wanted) {
        node_settings_unbound(node, link);
        sweep(node, link);
    } else if (link->interface.ifindex) {
        node_settings_bound(node, link);
    }
    if (wanted ? current || !link->interface.ifindex : !link->htb.installed)
        return;
    if (!wanted) {
        err = htb_remove(&node->netlink, &link->htb);
        log_info("link %s: HTB removed", link->id);
    } else {
        err = htb_install(&node->netlink, &link->interface, capacity_bps, legacy_share_bps(node, link, now_us), now_us,
                          &link->htb);
        if (!err)
            log_info("link %s: HTB on %s at 0.99 of %llu bit/s", link->id, link->interface_name,
                     (unsigned long long)capacity_bps);
    }
    link->have_before = false;
    if (err)
        set_fault(link, "has no HTB", err == -EBUSY ? "the interface has a queue that is not ours" : strerror(-err));
}

void node_links_refresh(struct node *node, int64_t now_us) {
    struct decide_link links[AGENT_LINKS_MAX];
    bool enforce = datapath_mode(node->datapath) == DECIDE_MODE_ENFORCE;
    size_t n = 0;

    node_settings_follow(node);
    memset(links, 0, sizeof(links));
    for (int i = 0; i < AGENT_LINKS_MAX; i++) {
        struct node_link *link = &node->links[i];
        uint64_t capacity_bps;

        if (!link->used)
            continue;
        link->fault[0] = '\0';
        look_at_interface(node, link);
        capacity_bps = node_link_capacity_bps(link);
        if (link->interface.ifindex && !capacity_bps)
            set_fault(link, "is only observed, it has no capacity",
                      "neither --link nor registry nor interface says one");
        signal_source_link(link->interface_name, capacity_bps);
        classify(node, link);
        check_bounds(node, link, enforce, now_us);
        /* Queues and offload are changed only where the node's own configuration says that there is a link. */
        shape(node, link, enforce && capacity_bps && link->fixed, now_us);
        memcpy(links[n].id, link->id, sizeof(links[n].id));
        links[n].ifindex = link->interface.ifindex;
        links[n].up = link->interface.up;
        links[n].capacity_bps = capacity_bps;
        n++;
    }
    node->looked = true;
    if (decide_set_links(node->decide, links, n) > 0)
        node->dirty = true;
}

static void take_sample(struct node *node, struct node_link *link, struct load_sample *ret) {
    *ret = (struct load_sample){.link_header_bytes = link->interface.link_header_bytes};
    if (link->classified)
        ret->have_classifier = datapath_link_counters(node->datapath, link->interface.ifindex, &ret->classifier) == 0;
    if (link->htb.installed)
        ret->have_htb = htb_read(&node->netlink, link->interface.ifindex, &ret->htb) == 0;
    if (!ret->have_htb) {
        struct netlink_interface interface;

        if (netlink_interface(&node->netlink, link->interface.ifindex, NULL, &interface) == 0) {
            ret->interface_packets = interface.sent_packets;
            ret->interface_bytes = interface.sent_bytes;
            ret->interface_dropped = interface.dropped_packets;
        }
    }
}

/* What reservations leaves to the flows that ask in band here, what they hold of it, and the rate of the link's
 * controller, which they share with all others. */
static void follow_lease(const struct node *node, struct node_link *link, int64_t now_us) {
    int64_t until_us = 0;
    uint64_t lease_bps = decide_in_band_lease(node->decide, link->id, now_us, &until_us);
    uint64_t rate_bps = 0;
    int64_t rate_until_us = 0;
    struct signal_load load;

    signal_source_lease(link->interface.ifindex, lease_bps, until_us);
    decide_in_band_rate(node->decide, link->id, now_us, &rate_bps, &rate_until_us);
    signal_source_rate(link->interface.ifindex, rate_bps, rate_until_us);
    signal_source_load(link->interface.ifindex, &load);
    link->load.in_band_committed_bps = load.held_bps;
    link->in_band_flows = load.flows;
    link->in_band_users = load.users;
}

/* Flows that have no grant are advised the rate that the link's controller gives every user; those that ask for a rate
 * to begin with share what the busiest moment of late left. */
static void follow_advice(struct node *node, struct node_link *link, int64_t now_us) {
    struct datapath_advice advice = {.scone = link->scone,
                                     .scone_police = link->scone_police,
                                     .quick_start = link->quick_start,
                                     .prefixes = link->prefixes_limit};
    uint64_t peak_bps;
    int error = 0;

    link->advised_bps = link->spare_bps = 0;
    if ((!link->scone && !link->quick_start) || !link->classified ||
        datapath_mode(node->datapath) != DECIDE_MODE_ENFORCE) {
        datapath_no_advice(node->datapath, link->interface.ifindex);
        link->prefixes_written = false;
        return;
    }
    if (!link->prefixes_written)
        error = datapath_advise_prefixes(node->datapath, link->interface.ifindex, link->advice_prefixes,
                                         link->n_advice_prefixes);
    if (error)
        log_warning("link %s: not all prefixes get advice: %s", link->id, strerror(-error));
    link->prefixes_written = true;
    decide_in_band_rate(node->decide, link->id, now_us, &advice.fair_bps, &advice.fair_until_us);
    if (link->quick_start && load_peak(&link->peaks, &peak_bps) == 0) {
        advice.spare_bps =
            chart_qs_spare_bps(node_link_capacity_bps(link), link->quick_start_threshold_permille, peak_bps);
        advice.begin_bps = advice.spare_bps / 1000 * link->quick_start_share_permille;
        advice.spare_until_us = now_us + SPARE_LASTS_US;
    }
    if (datapath_advise(node->datapath, link->interface.ifindex, &advice, now_us) < 0)
        return;
    link->advised_bps = advice.fair_bps;
    link->spare_bps = advice.spare_bps;
}

static void count_advice(struct node_link *link, const struct load_sample *before, const struct load_sample *now) {
    const struct datapath_link_counters *was = &before->classifier, *is = &now->classifier;

    if (!before->have_classifier || !now->have_classifier || is->scone_packets < was->scone_packets)
        return;
    link->total_scone_packets += is->scone_packets - was->scone_packets;
    link->total_scone_lowered += is->scone_lowered - was->scone_lowered;
    link->total_scone_policed += is->scone_policed - was->scone_policed;
    link->total_quick_start_requests += is->quick_start_requests - was->quick_start_requests;
    link->total_quick_start_lowered += is->quick_start_lowered - was->quick_start_lowered;
    link->total_quick_start_refused += is->quick_start_refused - was->quick_start_refused;
}

void node_links_sample(struct node *node, int64_t now_us) {
    for (int i = 0; i < AGENT_LINKS_MAX; i++) {
        struct node_link *link = &node->links[i];
        struct load_sample sample;

        if (!link->used)
            continue;
        link->load = (struct link_load){.link_id = link->id};
        if (!link->interface.ifindex)
            continue;
        if (htb_follow(&node->netlink, &link->htb, legacy_share_bps(node, link, now_us), now_us) < 0)
            link->htb.installed = false;
        take_sample(node, link, &sample);
        if (link->have_before && link->before.have_htb == sample.have_htb) {
            load_difference(&link->before, &sample, &link->load);
            load_peak_note(&link->peaks, link->load.sent_bytes, now_us - link->sampled_us);
        }
        link->sampled_us = now_us;
        if (link->have_before)
            count_advice(link, &link->before, &sample);
        link->before = sample;
        link->have_before = true;
        link->load.active_flows = sample.classifier.active_grants;
        link->load.legacy_flows = sample.classifier.legacy_flows;
        if (node->streams)
            follow_lease(node, link, now_us);
        follow_advice(node, link, now_us);
        link->total_sent_bytes += link->load.sent_bytes;
        link->total_explicit_rate_bytes += link->load.explicit_rate_bytes;
        link->total_dropped_packets += link->load.dropped_packets;
    }
}
