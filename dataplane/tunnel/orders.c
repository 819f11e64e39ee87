/* Commands and policy, see orders.h. */
#include "orders.h"

#include <errno.h>
#include <string.h>

#include "chart/v1/policy.pb-c.h"
#include "chart/v1/tunnel_command.pb-c.h"
#include "elasticity.h"

void orders_init(struct orders *orders, const struct options *options) {
    *orders = (struct orders){.options = options};
}

/* Writes the weight of a customer of this name; names of customers that this tunnel has not are somebody else's. */
static void note_weight(const struct orders *orders, uint32_t *weights, const char *name, uint32_t weight) {
    if (weight < 1 || weight > SCHEDULER_WEIGHT_MAX)
        return;
    for (uint32_t i = 0; i < orders->options->class_count; i++)
        if (strcmp(orders->options->classes[i].name, name) == 0)
            weights[i] = weight;
}

/* Left of a lease that began at issued_us on another clock: never more than all of it. */
static uint64_t left_of(uint64_t lease_us, int64_t issued_us, int64_t now_us) {
    int64_t age_us = now_us > issued_us ? now_us - issued_us : 0;
    return (uint64_t)age_us < lease_us ? lease_us - (uint64_t)age_us : 0;
}

int orders_command(struct orders *orders, const uint8_t *bytes, size_t count, int64_t now_us, struct order *ret) {
    Chart__V1__TunnelCommand *command = chart__v1__tunnel_command__unpack(NULL, count, bytes);
    if (!command || strcmp(command->tunnel, orders->options->tunnel) != 0) {
        if (command)
            chart__v1__tunnel_command__free_unpacked(command, NULL);
        orders->unreadable++;
        return -EBADMSG;
    }
    if (command->generation <= orders->generation) {
        chart__v1__tunnel_command__free_unpacked(command, NULL);
        orders->ignored++;
        return -ESTALE;
    }
    orders->generation = command->generation;
    orders->taken++;
    for (size_t i = 0; i < command->n_weights; i++)
        note_weight(orders, orders->commanded, command->weights[i]->key, command->weights[i]->value);
    struct order order = {command->connections, 0, command->limit_bps};
    if (order.connections > TUNNEL_CONNECTIONS_MAX)
        order.connections = TUNNEL_CONNECTIONS_MAX;
    if (order.connections && command->lease_us) {
        int64_t issued_us = command->issued_us > 0 ? command->issued_us : 0;
        order.lease_us = left_of(command->lease_us, issued_us, now_us);
        /* Read too late: m is as if nobody had said anything. */
        if (!order.lease_us)
            order.connections = 0;
    }
    chart__v1__tunnel_command__free_unpacked(command, NULL);
    *ret = order;
    return 0;
}

int orders_policy(struct orders *orders, const char *key, const uint8_t *bytes, size_t count) {
    const char *node = orders->options->node;
    uint32_t *weights = NULL;
    if (node && strcmp(key, node) == 0)
        weights = orders->of_node;
    else if (strcmp(key, ORDERS_DEFAULT_POLICY) == 0)
        weights = orders->of_all;
    else
        return -ENOENT;
    Chart__V1__Policy *policy = bytes ? chart__v1__policy__unpack(NULL, count, bytes) : NULL;
    if (bytes && !policy) {
        orders->unreadable++;
        return -EBADMSG;
    }
    memset(weights, 0, sizeof(orders->of_node));
    for (size_t i = 0; policy && i < policy->n_customer_weights; i++)
        note_weight(orders, weights, policy->customer_weights[i]->key, policy->customer_weights[i]->value);
    if (policy)
        chart__v1__policy__free_unpacked(policy, NULL);
    return 0;
}

void orders_weight(struct orders *orders, uint32_t class_id, uint32_t weight) {
    orders->commanded[class_id] = weight;
}

uint32_t orders_effective(const struct orders *orders, uint32_t class_id) {
    const uint32_t said[] = {orders->commanded[class_id], orders->of_node[class_id], orders->of_all[class_id]};
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        if (said[i])
            return said[i];
    return orders->options->classes[class_id].weight;
}
