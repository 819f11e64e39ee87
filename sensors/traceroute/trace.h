/* traceroute: the hops of a path, their round-trip times, and whether the path changed since the last run (CHART
 * System, section 6). All probes belong to one flow (hop_packet.h). */
#ifndef CHART_SENSORS_TRACE_H
#define CHART_SENSORS_TRACE_H

#include <cjson/cJSON.h>

#include "hop_trace.h"
#include "options.h"
#include "record.h"

struct trace_parameters {
    struct common_parameters common;
    char protocol[OPTION_TEXT_BYTES]; /* "udp" or "icmp" */
    uint64_t destination_port;
    uint64_t max_hops;
    uint64_t queries;
    double interval_ms;
    double timeout_ms;
    uint64_t packet_bytes;
    bool partial;
};

extern const struct option_table TRACE_OPTIONS;
void trace_defaults(struct trace_parameters *parameters);
int trace_check(const struct trace_parameters *parameters, struct failure *failure);
void trace_declare(const struct trace_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms);
int trace_run(const struct trace_parameters *parameters, struct record *record, cJSON **ret_details,
              struct failure *failure);

/* What a trace says, without having sent it: metrics into the record, hops as JSON. Pure but for the memory of paths,
 * which lasts as long as the process. -1 and `unreachable` when the destination did not answer. */
int trace_report(const struct trace_parameters *parameters, const struct hop_trace *trace, struct record *record,
                 cJSON **ret_details, struct failure *failure);

#endif
