/* Commands and policy: generations, leases on another clock, which weight holds, what cannot be read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "chart/v1/policy.pb-c.h"
#include "chart/v1/tunnel_command.pb-c.h"
#include "elasticity.h"
#include "orders.h"

#define NOW_US 1000000000LL

static struct options options = {
    .tunnel = "west-east",
    .node = "west",
    .class_count = 2,
    .classes = {{.name = "gold", .weight = 3}, {.name = "rest", .weight = 1}},
};

struct said {
    const char *tunnel;
    uint64_t generation;
    int64_t issued_us;
    uint32_t connections, lease_us;
    const char *customer;
    uint32_t weight;
    uint64_t limit_bps;
};

static int command(struct orders *orders, struct said said, struct order *ret) {
    Chart__V1__TunnelCommand message = CHART__V1__TUNNEL_COMMAND__INIT;
    Chart__V1__TunnelCommand__WeightsEntry entry = CHART__V1__TUNNEL_COMMAND__WEIGHTS_ENTRY__INIT,
                                           *entries[] = {&entry};
    uint8_t bytes[256];
    message.tunnel = (char *)(said.tunnel ? said.tunnel : "west-east");
    message.generation = said.generation;
    message.issued_us = said.issued_us ? said.issued_us : NOW_US;
    message.connections = said.connections;
    message.lease_us = said.lease_us;
    message.limit_bps = said.limit_bps;
    if (said.customer) {
        entry.key = (char *)said.customer;
        entry.value = said.weight;
        message.n_weights = 1;
        message.weights = entries;
    }
    size_t count = chart__v1__tunnel_command__pack(&message, bytes);
    return orders_command(orders, bytes, count, NOW_US, ret);
}

static int policy(struct orders *orders, const char *key, const char *customer, uint32_t weight) {
    Chart__V1__Policy message = CHART__V1__POLICY__INIT;
    Chart__V1__Policy__CustomerWeightsEntry entry = CHART__V1__POLICY__CUSTOMER_WEIGHTS_ENTRY__INIT,
                                            *entries[] = {&entry};
    uint8_t bytes[256];
    message.id = (char *)key;
    entry.key = (char *)customer;
    entry.value = weight;
    message.n_customer_weights = 1;
    message.customer_weights = entries;
    return orders_policy(orders, key, bytes, chart__v1__policy__pack(&message, bytes));
}

static void test_older_commands_are_ignored(void **unused) {
    (void)unused;
    struct orders orders;
    struct order order;
    orders_init(&orders, &options);
    assert_int_equal(command(&orders, (struct said){.generation = 7, .connections = 5}, &order), 0);
    assert_int_equal(order.connections, 5);
    assert_int_equal(order.lease_us, 0);
    assert_int_equal(order.limit_bps, 0);
    order.connections = 99;
    assert_int_equal(command(&orders, (struct said){.generation = 7, .connections = 6}, &order), -ESTALE);
    assert_int_equal(command(&orders, (struct said){.generation = 6, .connections = 6}, &order), -ESTALE);
    assert_int_equal(order.connections, 99);
    assert_int_equal(orders.ignored, 2);
    assert_int_equal(command(&orders, (struct said){.generation = 8, .connections = 1000}, &order), 0);
    assert_int_equal(order.connections, TUNNEL_CONNECTIONS_MAX);
    struct said limited = {.generation = 9, .connections = 4, .limit_bps = 7000000};
    assert_int_equal(command(&orders, limited, &order), 0);
    assert_int_equal(order.limit_bps, 7000000);
}

static void test_a_lease_counts_from_its_issue(void **unused) {
    (void)unused;
    struct orders orders;
    struct order order;
    orders_init(&orders, &options);
    struct said said = {.generation = 1, .connections = 5, .lease_us = 3000000, .issued_us = NOW_US - 1000000};
    assert_int_equal(command(&orders, said, &order), 0);
    assert_int_equal(order.lease_us, 2000000);
    /* A clock that is ahead gives no more than the lease. */
    said.generation++;
    said.issued_us = NOW_US + 9000000;
    assert_int_equal(command(&orders, said, &order), 0);
    assert_int_equal(order.lease_us, 3000000);
    /* Over when it is read: only its weights count. */
    said.generation++;
    said.issued_us = NOW_US - 3000000;
    said.customer = "gold";
    said.weight = 9;
    assert_int_equal(command(&orders, said, &order), 0);
    assert_int_equal(order.connections, 0);
    assert_int_equal(orders_effective(&orders, 0), 9);
    said.generation++;
    said.issued_us = -5;
    assert_int_equal(command(&orders, said, &order), 0);
    assert_int_equal(order.connections, 0);
}

static void test_which_weight_holds(void **unused) {
    (void)unused;
    struct orders orders;
    struct order order;
    orders_init(&orders, &options);
    assert_int_equal(orders_effective(&orders, 0), 3);
    assert_int_equal(policy(&orders, "default", "gold", 8), 0);
    assert_int_equal(orders_effective(&orders, 0), 8);
    assert_int_equal(policy(&orders, "west", "gold", 20), 0);
    assert_int_equal(orders_effective(&orders, 0), 20);
    assert_int_equal(policy(&orders, "east", "gold", 50), -ENOENT);
    assert_int_equal(command(&orders, (struct said){.generation = 1, .customer = "gold", .weight = 6}, &order), 0);
    assert_int_equal(orders_effective(&orders, 0), 6);
    assert_int_equal(orders_effective(&orders, 1), 1);
    orders_weight(&orders, 0, 2);
    assert_int_equal(orders_effective(&orders, 0), 2);
    /* A policy replaces what it said before; one that is gone says nothing. */
    assert_int_equal(policy(&orders, "default", "rest", 4), 0);
    assert_int_equal(orders_effective(&orders, 1), 4);
    assert_int_equal(orders_policy(&orders, "default", NULL, 0), 0);
    assert_int_equal(orders_effective(&orders, 1), 1);
    assert_int_equal(policy(&orders, "west", "rest", SCHEDULER_WEIGHT_MAX + 1), 0);
    assert_int_equal(orders_effective(&orders, 1), 1);
}

static void test_what_is_not_for_us(void **unused) {
    (void)unused;
    struct orders orders;
    struct order order;
    static const uint8_t GARBAGE[] = {0xff, 0xff, 0xff};
    orders_init(&orders, &options);
    assert_int_equal(command(&orders, (struct said){.tunnel = "other", .generation = 1}, &order), -EBADMSG);
    assert_int_equal(orders_command(&orders, GARBAGE, sizeof(GARBAGE), NOW_US, &order), -EBADMSG);
    assert_int_equal(orders_policy(&orders, "default", GARBAGE, sizeof(GARBAGE)), -EBADMSG);
    assert_int_equal(orders.unreadable, 3);
    assert_int_equal(orders.generation, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_older_commands_are_ignored),
        cmocka_unit_test(test_a_lease_counts_from_its_issue),
        cmocka_unit_test(test_which_weight_holds),
        cmocka_unit_test(test_what_is_not_for_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
