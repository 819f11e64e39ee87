/* chart-tunnel: both ends of an elastic tunnel. Guirguis et al., Providing Soft Bandwidth Guarantees Using Elastic
 * TCP-based Tunnels (BUCS-TR-2003-028). */
#include "ends.h"
#include "loop.h"
#include "node.h"
#include "options.h"
#include "state.h"

int main(int count, char **arguments) {
    static struct options options;
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
