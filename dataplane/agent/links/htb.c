/* HTB on CHART links by rtnetlink; what and why in htb.h. */
#include "links/htb.h"

#include <errno.h>
#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <string.h>

#define LINK_PER_MILLE 990
#define FLOOR_PER_MILLE 10
/* Legacy keeps this much even when it asked for nothing lately, so that its next flow can start. */
#define LEAST_LEGACY_PER_MILLE 50
/* 0.99 less the default admission share of 0.8: the part of the link that admission never commits. */
#define DEFAULT_LEGACY_PER_MILLE 190
#define MINIMUM_RATE_BYTES_PER_S 1000
#define MILLISECONDS(bytes_per_s, n) ((bytes_per_s) * (n) / 1000)
#define EXPEDITED_QUEUE_MS 5
#define EXPLICIT_RATE_QUEUE_MS 100
#define LEGACY_QUEUE_MS 50
#define BACKGROUND_QUEUE_MS 20
#define LEAST_QUEUE_PACKETS 20
/* psched ticks are 64 ns (PSCHED_SHIFT 6). */
#define TICK_NS 64
#define MESSAGE_BYTES 1024

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t greatest(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

void htb_make_plan(uint64_t capacity_bps, uint64_t legacy_share_bps, uint32_t mtu, uint32_t link_header_bytes,
                   struct htb_plan *ret) {
    /* Octets per second of the link as HTB sees them when every packet is full. */
    uint64_t raw = (uint64_t)((__uint128_t)capacity_bps / 8 * (mtu + link_header_bytes) / mtu);
    uint64_t link = greatest(raw * LINK_PER_MILLE / 1000, 10 * MINIMUM_RATE_BYTES_PER_S);
    uint64_t floor = greatest(link * FLOOR_PER_MILLE / 1000, MINIMUM_RATE_BYTES_PER_S);
    uint64_t legacy = legacy_share_bps ? (uint64_t)((__uint128_t)legacy_share_bps / 8 * (mtu + link_header_bytes) / mtu)
                                       : raw * DEFAULT_LEGACY_PER_MILLE / 1000;
    uint32_t packet = mtu + link_header_bytes;
    const uint32_t queues_ms[] = {EXPEDITED_QUEUE_MS, EXPLICIT_RATE_QUEUE_MS, LEGACY_QUEUE_MS, BACKGROUND_QUEUE_MS};
    const uint32_t minors[] = {HTB_MINOR_EXPEDITED, HTB_MINOR_EXPLICIT_RATE, HTB_MINOR_LEGACY, HTB_MINOR_BACKGROUND};

    legacy = least(greatest(legacy, link * LEAST_LEGACY_PER_MILLE / 1000), link - 3 * floor);
    *ret = (struct htb_plan){.link_bytes_per_s = link};
    ret->gso_max_bytes = (uint32_t)least(greatest(MILLISECONDS(capacity_bps / 8, 1), 2ull * mtu), HTB_GSO_MAX_BYTES);
    /* One millisecond also covers the lateness of a timer on a busy machine. */
    ret->burst_bytes = (uint32_t)greatest(ret->gso_max_bytes + packet, MILLISECONDS(link, 1));
    ret->quantum_bytes = ret->gso_max_bytes + packet;
    for (int i = 0; i < HTB_CLASSES; i++) {
        struct htb_class_plan *class = &ret->classes[i];

        class->minor = minors[i];
        class->priority = (uint32_t)i;
        class->ceil_bytes_per_s = link;
        class->queue_bytes = (uint32_t)least(
            greatest(MILLISECONDS(link, queues_ms[i]), LEAST_QUEUE_PACKETS * (uint64_t)packet), 256u << 20);
        class->rate_bytes_per_s = floor;
    }
    ret->classes[HTB_LEGACY].rate_bytes_per_s = legacy;
    ret->classes[HTB_EXPEDITED].rate_bytes_per_s = link - legacy - 2 * floor;
}

static struct nlmsghdr *start(char *buffer, uint16_t type, uint16_t flags, uint32_t ifindex, uint32_t handle,
                              uint32_t parent) {
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct tcmsg *message;

    request->nlmsg_type = type;
    request->nlmsg_flags = flags;
    message = mnl_nlmsg_put_extra_header(request, sizeof(*message));
    message->tcm_family = AF_UNSPEC;
    message->tcm_ifindex = (int)ifindex;
    message->tcm_handle = handle;
    message->tcm_parent = parent;
    return request;
}

struct root_search {
    uint32_t ifindex;
    bool found;
    bool ours;
    /* Something that the kernel did not put there by itself. */
    bool foreign;
};

static int find_kind(const struct nlattr *attribute, void *context) {
    if (mnl_attr_get_type(attribute) == TCA_KIND)
        *(const char **)context = mnl_attr_get_str(attribute);
    return MNL_CB_OK;
}

static int find_root(const struct nlmsghdr *header, void *context) {
    const struct tcmsg *message = mnl_nlmsg_get_payload(header);
    struct root_search *search = context;
    const char *kind = "";

    /* The kernel dumps every interface. */
    if ((uint32_t)message->tcm_ifindex != search->ifindex || message->tcm_parent != TC_H_ROOT)
        return MNL_CB_OK;
    mnl_attr_parse(header, sizeof(*message), find_kind, &kind);
    search->found = true;
    search->ours = message->tcm_handle == HTB_CLASS_ID(0) && strcmp(kind, "htb") == 0;
    search->foreign = !search->ours && message->tcm_handle != 0;
    return MNL_CB_OK;
}

static int look_at_root(struct netlink *netlink, uint32_t ifindex, struct root_search *ret) {
    char buffer[MESSAGE_BYTES];

    *ret = (struct root_search){.ifindex = ifindex};
    return netlink_dump(netlink, start(buffer, RTM_GETQDISC, NLM_F_DUMP, ifindex, 0, 0), find_root, ret);
}

static int put_root(struct netlink *netlink, uint32_t ifindex) {
    char buffer[MESSAGE_BYTES];
    struct nlmsghdr *request =
        start(buffer, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, ifindex, HTB_CLASS_ID(0), TC_H_ROOT);
    struct tc_htb_glob options = {.version = 3, .rate2quantum = 10, .defcls = HTB_MINOR_LEGACY};
    struct nlattr *nest;

    mnl_attr_put_strz(request, TCA_KIND, "htb");
    nest = mnl_attr_nest_start(request, TCA_OPTIONS);
    mnl_attr_put(request, TCA_HTB_INIT, sizeof(options), &options);
    mnl_attr_nest_end(request, nest);
    return netlink_talk(netlink, request);
}

/* A bucket is told as the time it lasts at a rate. */
static uint32_t bucket_ticks(uint64_t bytes, uint64_t bytes_per_s) {
    return (uint32_t)least((uint64_t)((__uint128_t)bytes * 1000000000 / bytes_per_s / TICK_NS), UINT32_MAX);
}

static int put_class(struct netlink *netlink, uint32_t ifindex, uint32_t parent, const struct htb_plan *plan,
                     const struct htb_class_plan *class) {
    char buffer[MESSAGE_BYTES];
    struct nlmsghdr *request = start(buffer, RTM_NEWTCLASS, NLM_F_CREATE, ifindex, HTB_CLASS_ID(class->minor), parent);
    struct tc_htb_opt options = {.quantum = plan->quantum_bytes, .prio = class->priority};
    struct nlattr *nest;

    options.rate.linklayer = options.ceil.linklayer = TC_LINKLAYER_ETHERNET;
    options.rate.rate = (uint32_t)least(class->rate_bytes_per_s, UINT32_MAX);
    options.ceil.rate = (uint32_t)least(class->ceil_bytes_per_s, UINT32_MAX);
    options.buffer = bucket_ticks(plan->burst_bytes, class->rate_bytes_per_s);
    options.cbuffer = bucket_ticks(plan->burst_bytes, class->ceil_bytes_per_s);
    mnl_attr_put_strz(request, TCA_KIND, "htb");
    nest = mnl_attr_nest_start(request, TCA_OPTIONS);
    mnl_attr_put(request, TCA_HTB_PARMS, sizeof(options), &options);
    if (class->rate_bytes_per_s >= UINT32_MAX)
        mnl_attr_put_u64(request, TCA_HTB_RATE64, class->rate_bytes_per_s);
    if (class->ceil_bytes_per_s >= UINT32_MAX)
        mnl_attr_put_u64(request, TCA_HTB_CEIL64, class->ceil_bytes_per_s);
    mnl_attr_nest_end(request, nest);
    return netlink_talk(netlink, request);
}

/* A queue bounded in octets under a class (the kernel here has no fq_codel). */
static int put_queue(struct netlink *netlink, uint32_t ifindex, const struct htb_class_plan *class) {
    char buffer[MESSAGE_BYTES];
    struct nlmsghdr *request = start(buffer, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, ifindex,
                                     (HTB_MAJOR + class->minor) << 16, HTB_CLASS_ID(class->minor));
    struct tc_fifo_qopt options = {.limit = class->queue_bytes};

    mnl_attr_put_strz(request, TCA_KIND, "bfifo");
    mnl_attr_put(request, TCA_OPTIONS, sizeof(options), &options);
    return netlink_talk(netlink, request);
}

static int put_classes(struct netlink *netlink, uint32_t ifindex, const struct htb_plan *plan) {
    const struct htb_class_plan link = {.minor = HTB_MINOR_LINK,
                                        .rate_bytes_per_s = plan->link_bytes_per_s,
                                        .ceil_bytes_per_s = plan->link_bytes_per_s};
    int err = put_class(netlink, ifindex, HTB_CLASS_ID(0), plan, &link);

    for (int i = 0; !err && i < HTB_CLASSES; i++)
        err = put_class(netlink, ifindex, HTB_CLASS_ID(HTB_MINOR_LINK), plan, &plan->classes[i]);
    for (int i = 0; !err && i < HTB_CLASSES; i++)
        err = put_queue(netlink, ifindex, &plan->classes[i]);
    return err;
}

int htb_install(struct netlink *netlink, const struct netlink_interface *interface, uint64_t capacity_bps,
                uint64_t legacy_share_bps, int64_t now_us, struct htb_link *link) {
    struct root_search root;
    struct htb_plan plan;
    int err = look_at_root(netlink, interface->ifindex, &root);

    if (err)
        return err;
    if (root.foreign)
        return -EBUSY;
    htb_make_plan(capacity_bps, legacy_share_bps, interface->mtu, interface->link_header_bytes, &plan);
    if (!root.ours)
        err = put_root(netlink, interface->ifindex);
    if (!err)
        err = put_classes(netlink, interface->ifindex, &plan);
    if (err)
        return err;
    link->installed = true;
    link->ifindex = interface->ifindex;
    link->mtu = interface->mtu;
    link->link_header_bytes = interface->link_header_bytes;
    link->capacity_bps = capacity_bps;
    link->legacy_share_bps = legacy_share_bps;
    link->changed_at_us = now_us;
    return 0;
}

int htb_follow(struct netlink *netlink, struct htb_link *link, uint64_t legacy_share_bps, int64_t now_us) {
    uint64_t difference = legacy_share_bps > link->legacy_share_bps ? legacy_share_bps - link->legacy_share_bps
                                                                    : link->legacy_share_bps - legacy_share_bps;
    struct htb_plan plan;
    int err;

    if (!link->installed || difference == 0 || now_us < link->changed_at_us + HTB_CHANGE_INTERVAL_US ||
        difference * 50 < link->capacity_bps)
        return 0;
    htb_make_plan(link->capacity_bps, legacy_share_bps, link->mtu, link->link_header_bytes, &plan);
    link->changed_at_us = now_us;
    /* Lower first, so that the classes never promise more than the link. */
    int first = legacy_share_bps > link->legacy_share_bps ? HTB_EXPEDITED : HTB_LEGACY;
    int second = first == HTB_LEGACY ? HTB_EXPEDITED : HTB_LEGACY;
    err = put_class(netlink, link->ifindex, HTB_CLASS_ID(HTB_MINOR_LINK), &plan, &plan.classes[first]);
    if (!err)
        err = put_class(netlink, link->ifindex, HTB_CLASS_ID(HTB_MINOR_LINK), &plan, &plan.classes[second]);
    if (err)
        return err;
    link->legacy_share_bps = legacy_share_bps;
    return 1;
}

static int remove_ours(struct netlink *netlink, uint32_t ifindex) {
    char buffer[MESSAGE_BYTES];
    struct root_search root;
    int err = look_at_root(netlink, ifindex, &root);

    if (err || !root.ours)
        return err;
    err = netlink_talk(netlink, start(buffer, RTM_DELQDISC, 0, ifindex, HTB_CLASS_ID(0), TC_H_ROOT));
    return err ? err : 1;
}

int htb_remove(struct netlink *netlink, struct htb_link *link) {
    int err;

    if (!link->installed)
        return 0;
    link->installed = false;
    err = remove_ours(netlink, link->ifindex);
    return err == -ENODEV || err > 0 ? 0 : err;
}

int htb_cleanup(struct netlink *netlink, uint32_t ifindex) {
    return remove_ours(netlink, ifindex);
}

struct stats_reading {
    struct htb_stats *stats;
    int found;
};

static int read_counters(const struct nlattr *attribute, void *context) {
    struct htb_class_stats *class = context;
    size_t length = mnl_attr_get_payload_len(attribute);

    if (mnl_attr_get_type(attribute) == TCA_STATS_BASIC && length >= sizeof(uint64_t) + sizeof(uint32_t)) {
        uint32_t packets;

        memcpy(&class->bytes, mnl_attr_get_payload(attribute), sizeof(class->bytes));
        memcpy(&packets, (const char *)mnl_attr_get_payload(attribute) + sizeof(class->bytes), sizeof(packets));
        if (class->packets < packets)
            class->packets = packets;
    } else if (mnl_attr_get_type(attribute) == TCA_STATS_PKT64 && length >= sizeof(uint64_t)) {
        memcpy(&class->packets, mnl_attr_get_payload(attribute), sizeof(class->packets));
    } else if (mnl_attr_get_type(attribute) == TCA_STATS_QUEUE && length >= sizeof(struct gnet_stats_queue)) {
        struct gnet_stats_queue queue;

        memcpy(&queue, mnl_attr_get_payload(attribute), sizeof(queue));
        class->queue_bytes = queue.backlog;
        class->dropped_packets = queue.drops;
    }
    return MNL_CB_OK;
}

static int read_class_attribute(const struct nlattr *attribute, void *context) {
    if (mnl_attr_get_type(attribute) == TCA_STATS2)
        mnl_attr_parse_nested(attribute, read_counters, context);
    return MNL_CB_OK;
}

static int read_class(const struct nlmsghdr *header, void *context) {
    static const uint32_t minors[HTB_CLASSES] = {HTB_MINOR_EXPEDITED, HTB_MINOR_EXPLICIT_RATE, HTB_MINOR_LEGACY,
                                                 HTB_MINOR_BACKGROUND};
    const struct tcmsg *message = mnl_nlmsg_get_payload(header);
    struct stats_reading *reading = context;

    for (int i = 0; i < HTB_CLASSES; i++) {
        if (message->tcm_handle == HTB_CLASS_ID(minors[i])) {
            mnl_attr_parse(header, sizeof(*message), read_class_attribute, &reading->stats->classes[i]);
            reading->found++;
        }
    }
    return MNL_CB_OK;
}

int htb_read(struct netlink *netlink, uint32_t ifindex, struct htb_stats *ret) {
    char buffer[MESSAGE_BYTES];
    struct htb_stats stats = {0};
    struct stats_reading reading = {.stats = &stats};
    int err = netlink_dump(netlink, start(buffer, RTM_GETTCLASS, NLM_F_DUMP, ifindex, 0, 0), read_class, &reading);

    if (err)
        return err;
    if (reading.found < HTB_CLASSES)
        return -ENOENT;
    *ret = stats;
    return 0;
}
