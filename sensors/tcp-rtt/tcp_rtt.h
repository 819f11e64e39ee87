/* tcp-rtt: round-trip time and loss of live TCP connections, read from the kernel; nothing is sent (CHART System,
 * section 6: sensors may infer passively "the current RTTs of a link from communication pattern of a TCP connection").
 */
#ifndef CHART_SENSORS_TCP_RTT_H
#define CHART_SENSORS_TCP_RTT_H

#include "options.h"
#include "record.h"

struct tcp_rtt_parameters {
    struct common_parameters common;
    double duration_ms;
};

extern const struct option_table TCP_RTT_OPTIONS;
void tcp_rtt_defaults(struct tcp_rtt_parameters *parameters);
int tcp_rtt_check(const struct tcp_rtt_parameters *parameters, struct failure *failure);
void tcp_rtt_declare(const struct tcp_rtt_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms);
int tcp_rtt_run(const struct tcp_rtt_parameters *parameters, struct record *record, struct failure *failure);

#endif
