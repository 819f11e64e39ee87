/* chart-tunnel: both ends of an elastic tunnel. Guirguis et al., Providing Soft Bandwidth Guarantees Using Elastic
 * TCP-based Tunnels (BUCS-TR-2003-028). */
#include <string.h>

#include "ends.h"
#include "host.h"
#include "loop.h"
#include "node.h"
#include "options.h"
#include "state.h"

int main(int count, char **arguments) {
    static struct options options;
    if (count == 4 && strcmp(arguments[1], HOST_ROLE) == 0)
        return host_run(arguments[2], arguments[3]);
    int status = options_read(count, arguments, &options);
    if (status)
        return status == 1 ? 0 : status;
    loop_catch_signals();
    if (options.role == ROLE_STATUS)
        return state_print(options.control, options.json);
    if (options.role == ROLE_NODE)
        return node_run(&options);
    return options.role == ROLE_ORIGIN ? origin_run(&options) : destination_run(&options);
}
