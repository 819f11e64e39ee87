/* Signals that failed here are told to the authority: when one proves that its sender takes this element for another,
 * the sender's next hops heal (Brassil et al., The CHART System, section 3). One signal of each sender at a time, a few
 * a second: a flood of junk costs the authority little and is in its audit. */
#pragma once

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "authority/authority_state.h"
#include "qos.h"
#include "signal_maps.h"

struct ring_buffer;

#define AUTHORITY_REPORT_LEN 256
/* Reports of one look, and of one sender. */
#define AUTHORITY_REPORTS_AT_ONCE 4
#define AUTHORITY_REPORT_EVERY_US 10000000
#define AUTHORITY_REPORTS_TOLD 64

struct authority_reports {
    struct ring_buffer *ring;
    struct authority_state *state;
    int64_t now_us;
    struct chart_signal_report waiting[AUTHORITY_REPORTS_AT_ONCE];
    size_t n_waiting;
    /* The senders that were reported last, the oldest written over. */
    struct {
        uint16_t sender;
        int64_t at_us;
    } told[AUTHORITY_REPORTS_TOLD];
    size_t next_told;
    uint64_t sent;
    uint64_t healed;
};

/* Keep a failed signal for the next look unless its sender is unknown, this node, or was reported a moment ago. */
bool authority_report_want(struct authority_reports *reports, const struct chart_signal_report *report);
/* The call's body: the signal as a datagram of the shim, which holds all that its tag covers. */
void authority_report_body(const struct chart_signal_report *report, char ret[AUTHORITY_REPORT_LEN]);

/* Sends the body of a call; false: it could not be sent. */
typedef bool (*authority_report_send)(void *context, const char *body);

/* With every tick: take what the kernel reported, and ask for the keys of senders that are ahead of this node. ring_fd:
 * the map `signal_reports`, negative: signalling is not running. */
void authority_reports_look(struct authority_reports *reports, struct authority_state *state, int ring_fd,
                            int64_t now_us);
/* Once a second: it goes out. */
void authority_reports_send(struct authority_reports *reports, authority_report_send send, void *context);
void authority_reports_close(struct authority_reports *reports);
