/* See kernel_tc.h. */
#include "core/kernel_tc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel.h"
#include "core/kernel_features.h"
#include "core/netlink.h"

#define ATTACH_TYPE_TCX_INGRESS 46
#define ATTACH_TYPE_TCX_EGRESS 47
#define ATTACH_BEFORE (1u << 3)
#define MESSAGE_BYTES 512
/* How the agent's filters are known from others': their handle, and names that begin so. */
#define FILTER_HANDLE 0xc4a7
#define NAME_PREFIX "chart-"

struct place {
    bool ingress;
    /* Before the programs that are there, or behind them. */
    bool first;
    /* Of the filter: the lower is asked first. */
    uint16_t priority;
    const char *name;
};

static const struct place places[] = {
    [KERNEL_TC_POLICE] = {true, true, 100, NAME_PREFIX "police"},
    [KERNEL_TC_SIGNAL_IN] = {true, true, 101, NAME_PREFIX "signal"},
    [KERNEL_TC_QUICK_START_IN] = {true, false, 102, NAME_PREFIX "quick-start"},
    [KERNEL_TC_OVERLAY_IN] = {true, false, 103, NAME_PREFIX "overlay"},
    [KERNEL_TC_OVERLAY_OUT] = {false, true, 99, NAME_PREFIX "overlay"},
    [KERNEL_TC_SIGNAL_OUT] = {false, true, 100, NAME_PREFIX "signal"},
    [KERNEL_TC_CLASSIFY] = {false, false, 60000, NAME_PREFIX "classify"},
};

/* The agent's own filters and those of others, as a dump counts them. */
struct filters {
    unsigned own;
    unsigned others;
};

static uint32_t parent_of(bool ingress) {
    return TC_H_MAKE(TC_H_CLSACT, ingress ? TC_H_MIN_INGRESS : TC_H_MIN_EGRESS);
}

static struct nlmsghdr *begin(char *buffer, uint16_t type, uint16_t flags, const struct tcmsg *message) {
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct tcmsg *put;
    request->nlmsg_type = type;
    request->nlmsg_flags = flags;
    put = mnl_nlmsg_put_extra_header(request, sizeof(*put));
    *put = *message;
    return request;
}

static struct tcmsg filter_message(uint32_t ifindex, const struct place *place) {
    return (struct tcmsg){
        .tcm_family = AF_UNSPEC,
        .tcm_ifindex = (int)ifindex,
        .tcm_handle = FILTER_HANDLE,
        .tcm_parent = parent_of(place->ingress),
        .tcm_info = TC_H_MAKE((uint32_t)place->priority << 16, htons(ETH_P_ALL)),
    };
}

static int change_clsact(struct netlink *netlink, uint32_t ifindex, uint16_t type, uint16_t flags) {
    char buffer[MESSAGE_BYTES];
    const struct tcmsg message = {.tcm_family = AF_UNSPEC,
                                  .tcm_ifindex = (int)ifindex,
                                  .tcm_handle = TC_H_MAKE(TC_H_CLSACT, 0),
                                  .tcm_parent = TC_H_CLSACT};
    struct nlmsghdr *request = begin(buffer, type, flags, &message);
    mnl_attr_put_strz(request, TCA_KIND, "clsact");
    return netlink_talk(netlink, request);
}

/* One of the same handle and priority, left by an agent that was killed, is replaced. */
static int add_filter(struct netlink *netlink, int program_fd, uint32_t ifindex, const struct place *place) {
    char buffer[MESSAGE_BYTES];
    const struct tcmsg message = filter_message(ifindex, place);
    struct nlmsghdr *request = begin(buffer, RTM_NEWTFILTER, NLM_F_CREATE, &message);
    struct nlattr *options;
    mnl_attr_put_strz(request, TCA_KIND, "bpf");
    options = mnl_attr_nest_start(request, TCA_OPTIONS);
    mnl_attr_put_u32(request, TCA_BPF_FD, (uint32_t)program_fd);
    mnl_attr_put_strz(request, TCA_BPF_NAME, place->name);
    mnl_attr_put_u32(request, TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
    mnl_attr_nest_end(request, options);
    return netlink_talk(netlink, request);
}

static int remove_filter(struct netlink *netlink, uint32_t ifindex, const struct place *place) {
    char buffer[MESSAGE_BYTES];
    const struct tcmsg message = filter_message(ifindex, place);
    struct nlmsghdr *request = begin(buffer, RTM_DELTFILTER, 0, &message);
    mnl_attr_put_strz(request, TCA_KIND, "bpf");
    return netlink_talk(netlink, request);
}

static int read_option(const struct nlattr *attribute, void *context) {
    bool *own = context;
    if (mnl_attr_get_type(attribute) == TCA_BPF_NAME && mnl_attr_validate(attribute, MNL_TYPE_STRING) >= 0)
        *own = strncmp(mnl_attr_get_str(attribute), NAME_PREFIX, strlen(NAME_PREFIX)) == 0;
    return MNL_CB_OK;
}

static int read_attribute(const struct nlattr *attribute, void *context) {
    return mnl_attr_get_type(attribute) == TCA_OPTIONS ? mnl_attr_parse_nested(attribute, read_option, context)
                                                       : MNL_CB_OK;
}

/* A filter's priority is dumped once without handle, its programs each with theirs. */
static int count_filter(const struct nlmsghdr *header, void *context) {
    const struct tcmsg *message = mnl_nlmsg_get_payload(header);
    struct filters *filters = context;
    bool own = false;
    if (!message->tcm_handle)
        return MNL_CB_OK;
    mnl_attr_parse(header, sizeof(*message), read_attribute, &own);
    if (own && message->tcm_handle == FILTER_HANDLE)
        filters->own++;
    else
        filters->others++;
    return MNL_CB_OK;
}

/* An interface without clsact has none. */
static int count_filters(struct netlink *netlink, uint32_t ifindex, struct filters *ret) {
    struct filters filters = {0};
    for (int ingress = 0; ingress < 2; ingress++) {
        char buffer[MESSAGE_BYTES];
        const struct tcmsg message = {
            .tcm_family = AF_UNSPEC, .tcm_ifindex = (int)ifindex, .tcm_parent = parent_of(ingress)};
        int error = netlink_dump(netlink, begin(buffer, RTM_GETTFILTER, NLM_F_DUMP, &message), count_filter, &filters);
        if (error)
            return error;
    }
    *ret = filters;
    return 0;
}

static int remove_idle_clsact(struct netlink *netlink, uint32_t ifindex) {
    struct filters filters;
    int error = count_filters(netlink, ifindex, &filters);
    return error || filters.own || filters.others ? error : change_clsact(netlink, ifindex, RTM_DELQDISC, 0);
}

static int attach_filter(int program_fd, uint32_t ifindex, const struct place *place) {
    struct netlink netlink;
    int error = netlink_open(&netlink);
    if (error)
        return error;
    error = change_clsact(&netlink, ifindex, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL);
    if (!error || error == -EEXIST)
        error = add_filter(&netlink, program_fd, ifindex, place);
    netlink_close(&netlink);
    return error;
}

static void detach_filter(uint32_t ifindex, const struct place *place) {
    struct netlink netlink;
    if (netlink_open(&netlink))
        return;
    /* An interface that is gone took its filters along. */
    if (remove_filter(&netlink, ifindex, place) == 0)
        (void)remove_idle_clsact(&netlink, ifindex);
    netlink_close(&netlink);
}

int kernel_attach_tc(int program_fd, uint32_t ifindex, enum kernel_tc_place place, struct kernel_tc *ret) {
    const struct place *wanted = &places[place];
    int fd = -1, error = 0;
    *ret = (struct kernel_tc){.fd = -1};
    if (kernel_features()->tcx) {
        fd = kernel_link_create((uint32_t)program_fd, ifindex,
                                wanted->ingress ? ATTACH_TYPE_TCX_INGRESS : ATTACH_TYPE_TCX_EGRESS,
                                wanted->first ? ATTACH_BEFORE : 0);
        error = fd < 0 ? fd : 0;
    } else {
        error = attach_filter(program_fd, ifindex, wanted);
    }
    if (!error)
        *ret = (struct kernel_tc){.fd = fd, .ifindex = ifindex, .place = place};
    return error;
}

void kernel_detach_tc(struct kernel_tc *attached) {
    if (!attached->ifindex)
        return;
    if (attached->fd >= 0)
        close(attached->fd);
    else
        detach_filter(attached->ifindex, &places[attached->place]);
    *attached = (struct kernel_tc){.fd = -1};
}

static int clean_interface(struct netlink *netlink, uint32_t ifindex) {
    struct filters before = {0}, after = {0};
    int error = count_filters(netlink, ifindex, &before);
    if (error || !before.own)
        return error;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        (void)remove_filter(netlink, ifindex, &places[i]);
    error = count_filters(netlink, ifindex, &after);
    error = error ? error : remove_idle_clsact(netlink, ifindex);
    return error ? error : (int)(before.own - after.own);
}

int kernel_clean_tc(void) {
    struct netlink netlink;
    struct if_nameindex *interfaces;
    int removed = 0, error = 0;
    if (kernel_features()->tcx)
        return 0;
    error = netlink_open(&netlink);
    if (error)
        return error;
    interfaces = if_nameindex();
    for (const struct if_nameindex *one = interfaces; one && one->if_index; one++) {
        int result = clean_interface(&netlink, one->if_index);
        removed += result > 0 ? result : 0;
        error = result < 0 && !error ? result : error;
    }
    if_freenameindex(interfaces);
    netlink_close(&netlink);
    return error ? error : removed;
}
