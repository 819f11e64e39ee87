/* What the running kernel can do, by its own type information (BTF): distributions carry features to older versions and
 * leave out others, so no version number is asked. */
#pragma once

#include <stdbool.h>

struct kernel_features {
    /* Classifiers are attached by links (tcx). Without it by clsact and cls_bpf, which outlive the agent. */
    bool tcx;
    /* Operations are registered by a link. Without it their registration outlives the agent. */
    bool struct_ops_link;
    /* Arguments of tcp_congestion_ops.cong_control: 4 (socket, acknowledgement, flag, sample) or 2 (socket, sample). */
    unsigned cong_control_arguments;
};

/* Read once; lives as long as the process. Without BTF everything is missing, and the loading of programs says why. */
const struct kernel_features *kernel_features(void);

/* Whether a killed agent leaves programs behind that somebody has to remove. */
bool kernel_keeps_programs(void);
