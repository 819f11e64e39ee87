/* What a policy says besides the mode, brought to the parts that do it; see node.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "export/ipfix.h"
#include "node/node.h"

static const char *said(const char *own, const char *of_all, const char *option) {
    if (*own)
        return own;
    return *of_all || !option ? of_all : option;
}

void node_policy_quick_start(struct node *node) {
    const struct node_policy *own = &node->own_policy, *of_all = &node->policy_of_all;
    int error = datapath_set_quick_start(node->datapath, own->says_quick_start      ? own->quick_start_bps
                                                         : of_all->says_quick_start ? of_all->quick_start_bps
                                                                                    : node->options->quick_start_bps);

    if (error)
        log_error("what new connections ask for by Quick-Start cannot be set: %s", strerror(-error));
}

void node_policy_stated(const struct messages_policy *stated, void *context) {
    struct node *node = context;
    struct node_policy *policy = strcmp(stated->id, node->options->node) == 0 ? &node->own_policy
                                 : strcmp(stated->id, "default") == 0         ? &node->policy_of_all
                                                                              : NULL;
    int error;

    if (!policy)
        return;
    snprintf(policy->default_control, sizeof(policy->default_control), "%s", stated->default_control);
    snprintf(policy->ipfix_collector, sizeof(policy->ipfix_collector), "%s", stated->ipfix_collector);
    error = datapath_set_default_control(
        node->datapath,
        said(node->own_policy.default_control, node->policy_of_all.default_control, node->options->default_control));
    if (error)
        log_error("the congestion control of flows without a rate cannot be set: %s", strerror(-error));
    policy->says_quick_start = stated->says_quick_start;
    policy->quick_start_bps = stated->quick_start_bps;
    node_policy_quick_start(node);
    ipfix_send_to(node->agent,
                  said(node->own_policy.ipfix_collector, node->policy_of_all.ipfix_collector, node->options->ipfix));
}
