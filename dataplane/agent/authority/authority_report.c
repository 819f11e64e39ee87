/* See authority_report.h. */
#include "authority/authority_report.h"

#include <bpf/libbpf.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static uint16_t sender_of(const struct chart_signal_report *report) {
    struct chart_signal signal;
    return chart_signal_unpack(&signal, report->signal) == CHART_QOS_OK ? signal.sender : 0;
}

static bool is_neighbour(const struct authority_state *state, uint16_t sender) {
    for (size_t i = 0; i < state->n_elements; i++)
        if (state->elements[i].id == sender)
            return strcmp(state->elements[i].name, state->node) != 0;
    return false;
}

bool authority_report_want(struct authority_reports *reports, const struct chart_signal_report *report) {
    uint16_t sender = sender_of(report);
    if (!sender || reports->n_waiting == AUTHORITY_REPORTS_AT_ONCE || !is_neighbour(reports->state, sender))
        return false;
    for (size_t i = 0; i < AUTHORITY_REPORTS_TOLD; i++)
        if (reports->told[i].sender == sender && reports->now_us - reports->told[i].at_us < AUTHORITY_REPORT_EVERY_US)
            return false;
    reports->told[reports->next_told].sender = sender;
    reports->told[reports->next_told].at_us = reports->now_us;
    reports->next_told = (reports->next_told + 1) % AUTHORITY_REPORTS_TOLD;
    reports->waiting[reports->n_waiting++] = *report;
    return true;
}

void authority_report_body(const struct chart_signal_report *report, char ret[AUTHORITY_REPORT_LEN]) {
    uint8_t datagram[CHART_SHIM_IPV6_OCTETS];
    unsigned char text[2 * CHART_SHIM_IPV6_OCTETS];
    struct chart_signal signal;
    (void)chart_signal_unpack(&signal, report->signal);
    chart_shim_build(datagram, &signal, &report->flow);
    EVP_EncodeBlock(text, datagram, (int)chart_shim_octets(report->flow.family));
    snprintf(ret, AUTHORITY_REPORT_LEN, "{\"carrier\": \"shim\", \"packet\": \"%s\"}", (const char *)text);
}

static int on_report(void *context, void *data, size_t size) {
    struct authority_reports *reports = context;
    const struct chart_signal_report *report = data;
    if (size < sizeof(*report))
        return 0;
    if (report->error == CHART_QOS_UNKNOWN_EPOCH)
        authority_state_behind(reports->state, sender_of(report), reports->now_us);
    (void)authority_report_want(reports, report);
    return 0;
}

void authority_reports_look(struct authority_reports *reports, struct authority_state *state, int ring_fd,
                            int64_t now_us) {
    if (!reports->ring && ring_fd >= 0)
        reports->ring = ring_buffer__new(ring_fd, on_report, reports, NULL);
    if (!reports->ring)
        return;
    reports->state = state;
    reports->now_us = now_us;
    (void)ring_buffer__consume(reports->ring);
}

void authority_reports_send(struct authority_reports *reports, authority_report_send send, void *context) {
    char body[AUTHORITY_REPORT_LEN];
    for (size_t i = 0; i < reports->n_waiting; i++) {
        authority_report_body(&reports->waiting[i], body);
        reports->sent += send(context, body);
    }
    reports->n_waiting = 0;
}

void authority_reports_close(struct authority_reports *reports) {
    ring_buffer__free(reports->ring);
    reports->ring = NULL;
}
