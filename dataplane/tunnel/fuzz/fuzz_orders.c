/* What comes from the broker: commands and policies of any bytes. Whatever they say, weights and m stay in their
 * bounds.
 */
#include <stdlib.h>
#include <string.h>

#include "elasticity.h"
#include "orders.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct options options = {.tunnel = "t",
                                     .node = "n",
                                     .class_count = 2,
                                     .classes = {{.name = "gold", .weight = 3}, {.name = "rest", .weight = 1}}};
    struct orders orders;
    struct order order = {0};
    static const char *const KEYS[] = {"default", "n", "other"};
    orders_init(&orders, &options);
    while (size > 2) {
        uint8_t kind = data[0] % 4;
        size_t bytes = data[1] < size - 2 ? data[1] : size - 2;
        data += 2;
        size -= 2;
        if (kind < 3) {
            (void)orders_policy(&orders, KEYS[kind], data, bytes);
        } else if (orders_command(&orders, data, bytes, 1000000, &order) == 0 &&
                   (order.connections > TUNNEL_CONNECTIONS_MAX || order.lease_us > UINT32_MAX)) {
            abort();
        }
        for (uint32_t i = 0; i < options.class_count; i++) {
            uint32_t weight = orders_effective(&orders, i);
            if (weight < 1 || weight > SCHEDULER_WEIGHT_MAX)
                abort();
        }
        data += bytes;
        size -= bytes;
    }
    return 0;
}
