/* The codec of CHART's in-band signalling protocol, for BPF programs and user space alike (docs/signalling.md).
 *
 * Brassil et al., The CHART System, sections 2 and 5: a 12-octet QoS structure (after TIA-1039) travels with a flow and
 * every element on the path may lower the rates in it. Nothing here calls libc, allocates or loops without a bound;
 * large intermediate data stands in a scratch area that the caller passes in (BPF: a per-CPU map).
 *
 * A BPF program includes vmlinux.h (or linux/types.h) first. Functions return CHART_QOS_OK or an error of
 * enum chart_qos_error; outputs are named ret_* and are unspecified after an error.
 */
#ifndef CHART_QOS_H
#define CHART_QOS_H

#include "qos_types.h"

#include "qos_rate.h"
#include "qos_structure.h"

#include "qos_hmac.h"
#include "qos_parse.h"
#include "qos_replay.h"

#include "qos_build.h"
#include "qos_pair.h"

#endif
