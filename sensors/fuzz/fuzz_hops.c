/* What routers answer: any bytes as a raw ICMP socket delivers them, for flows of both protocols; then reports of
 * traces made of such answers. First byte: which protocol. */
#include <stdlib.h>
#include <string.h>

#include "hop_packet.h"
#include "trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hop_flow flow = {.source_port = 0x9c40, .destination_port = 33434};
    struct trace_parameters parameters;
    struct hop_trace trace = {.unreachable = -1};
    struct failure failure = {0};
    struct record record = {0};
    struct hop_reply reply;
    cJSON *details = NULL;

    if (size < 2)
        return 0;
    flow.protocol = data[0] % 2 ? HOP_ICMP : HOP_UDP;
    flow.destination.s_addr = 0x0900000a;
    if (hop_packet_read(&flow, data + 1, size - 1, &reply)) {
        if (reply.tag == 0)
            abort();
        trace.count = (reply.tag - 1u) % HOP_TTL_MAX + 1;
        trace.reached = reply.answer == HOP_REACHED;
        trace.hops[trace.count - 1] = (struct hop){.address = reply.address, .sent = 1, .answered = 1, .rtts_us = {1}};
        trace_defaults(&parameters);
        (void)trace_report(&parameters, &trace, &record, &details, &failure);
        cJSON_Delete(details);
    }
    return 0;
}
