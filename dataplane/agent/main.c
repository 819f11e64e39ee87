/* chart-agent: takes grants from the streams or a file and makes the kernel keep them (Brassil et al., The CHART
 * System, section 5; architecture.md, "chart-agent").
 *
 * This file: the parts in their order, and what the command line asks for. */
#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdio.h>

#include "authority/authority.h"
#include "control/control.h"
#include "core/agent.h"
#include "core/options.h"
#include "export/ipfix.h"
#include "grants/datapath.h"
#include "grants/ratefile.h"
#include "grants/trinity_share.h"
#include "links/edges.h"
#include "node/node.h"
#include "paths/overlay.h"
#include "signal/signal.h"

static const struct agent_module *const modules[] = {
    &datapath_module, &trinity_share_module, &ratefile_module, &signal_module, &authority_module,
    &ipfix_module,    &edges_module,         &overlay_module,  &node_module,   &control_module,
};

static int print_libbpf(enum libbpf_print_level level, const char *format, va_list arguments) {
    if (level != LIBBPF_WARN)
        return 0;
    return vfprintf(stderr, format, arguments);
}

int main(int argc, char **argv) {
    struct options options;
    if (options_parse(argc, argv, stderr, &options))
        return 2;
    libbpf_set_print(print_libbpf);
    libbpf_set_strict_mode(LIBBPF_STRICT_ALL);
    switch (options.action) {
    case OPTIONS_HELP:
        options_help(stdout);
        return 0;
    case OPTIONS_RUN:
        return agent_run(&options.agent, modules, sizeof(modules) / sizeof(modules[0]));
    case OPTIONS_OFF:
        return control_client(&options, "off");
    case OPTIONS_ON:
        return control_client(&options, "on");
    case OPTIONS_STATUS:
        return control_client(&options, "status");
    case OPTIONS_EXPLAIN:
        return control_client(&options, "explain");
    case OPTIONS_CLEANUP:
        return control_cleanup(&options);
    }
    return 2;
}
