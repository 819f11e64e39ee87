/* What the client says of itself: complaints, the clock, `chart-agent --status`, metrics; see authority_client.h. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "authority/authority.h"
#include "authority/authority_client.h"
#include "core/log.h"
#include "core/loop.h"

#define SECOND_US 1000000
#define CLOCK_LIMIT_S 5

static struct authority *running;

/* Sentences that differ in numbers only (times, attempts) say the same. */
static bool same_words(const char *one, const char *other) {
    static const char digits[] = "0123456789";
    while (*one || *other) {
        one += strspn(one, digits);
        other += strspn(other, digits);
        if (*one != *other)
            return false;
        if (*one) {
            one++;
            other++;
        }
    }
    return true;
}

void authority_complain(struct authority *authority, const char *what, const char *why) {
    char text[AUTHORITY_ERROR_LEN];
    snprintf(text, sizeof(text), "%.40s: %.200s", what, why);
    if (same_words(text, authority->error))
        return;
    log_warning("authority: %s; what is known stays until it ends", text);
    memcpy(authority->error, text, sizeof(text));
}

/* Leases of rates and grants are moments: a clock that is off by more than a few seconds makes them too short, or none.
 */
void authority_note_clock(struct authority *authority, int64_t ahead_us) {
    int64_t off_s = (ahead_us < 0 ? -ahead_us : ahead_us) / SECOND_US;
    bool was = authority->clock_fault[0] != '\0';
    if (off_s < CLOCK_LIMIT_S) {
        authority->clock_fault[0] = '\0';
        return;
    }
    snprintf(authority->clock_fault, sizeof(authority->clock_fault),
             "this machine's clock is %lld s %s the authority's: set it right, leases end by the clock",
             (long long)off_s, ahead_us > 0 ? "behind" : "ahead of");
    if (!was)
        log_error("authority: %s", authority->clock_fault);
}

void authority_say_silence(struct authority *authority, int64_t now_us) {
    const char *first = "";
    int64_t since_us = 0;
    char text[AUTHORITY_ERROR_LEN] = "", since[sizeof("23:59:59")] = "", more[32] = "";
    size_t n = authority_state_silent(&authority->state, now_us, &first, &since_us);
    time_t since_s = (time_t)(since_us / SECOND_US);
    struct tm moment;
    authority->n_silent = n;
    if (n && gmtime_r(&since_s, &moment))
        strftime(since, sizeof(since), "%H:%M:%S", &moment);
    if (n > 1)
        snprintf(more, sizeof(more), " and %zu more", n - 1);
    if (n)
        snprintf(text, sizeof(text),
                 "%s%s answers no signals since %s UTC, flows there are ordinary TCP: no agent that enforces, or a "
                 "firewall (IP options, UDP 18400) or NAT on the way",
                 first, more, since);
    if (strcmp(text, authority->silence) == 0)
        return;
    if (n)
        log_warning("signals: %s", text);
    else
        log_info("signals: every neighbour that was asked lately answers again");
    memcpy(authority->silence, text, sizeof(text));
}

static bool holds_keys(const struct authority *authority, int64_t now_us) {
    bool held = authority_signing_epoch(&authority->records, now_us) != NULL;
    for (size_t i = 0; !held && i < authority->state.n_pairs; i++)
        held = authority_signing_epoch(&authority->state.pairs[i], now_us) != NULL;
    return held;
}

void authority_note_keys(struct authority *authority, int64_t now_us) {
    bool held = holds_keys(authority, now_us);
    if (authority->held_keys && !held && !authority->revoked)
        log_error("authority: the last key has ended and there is no other: nothing is signalled in band and records "
                  "wait; flows are ordinary TCP until the authority answers");
    if (!authority->held_keys && held)
        log_info("authority: keys are there");
    authority->held_keys = held;
}

static bool sign_record(const char *topic, const char *key, const void *value, size_t length,
                        char ret[RECORD_MAC_LEN]) {
    const struct authority_epoch *epoch = running ? authority_signing_epoch(&running->records, agent_now_us()) : NULL;
    return epoch && record_mac(running->state.node, epoch->epoch, epoch->key, topic, key, value, length, ret);
}

void authority_present(struct authority *authority) {
    running = authority;
    authority_use_signer(authority ? sign_record : NULL);
}

const char *authority_fault(void) {
    if (!running)
        return "";
    if (running->revoked)
        return "this node's certificate is revoked: enrol it again, if it shall come back";
    return *running->clock_fault ? running->clock_fault : running->error;
}

const char *authority_silence(void) {
    return running ? running->silence : "";
}

static void gauge(FILE *out, const char *name, const char *help, double value) {
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n%s %.17g\n", name, help, name, name, value);
}

void authority_render(FILE *out) {
    if (!running)
        return;
    gauge(out, "chart_agent_authority_enrolled_ratio", "1 while the node's certificate is valid",
          authority_identity_valid(&running->identity, agent_now_us()) && !running->revoked);
    gauge(out, "chart_agent_authority_revoked_ratio", "1 when the authority refused the certificate as revoked",
          running->revoked);
    gauge(out, "chart_agent_authority_fault_ratio", "1 while something is wrong between node and authority",
          *authority_fault() != '\0');
    gauge(out, "chart_agent_silent_neighbours", "Neighbours that answer no signals although they are asked",
          (double)running->n_silent);
    gauge(out, "chart_agent_authority_clock_ahead_seconds", "How far the authority's clock is ahead of the node's",
          (double)running->records.ahead_us / SECOND_US);
    gauge(out, "chart_agent_records_signed_ratio", "1 while the node's records are signed", authority_signs_records());
}

void authority_status(void *context, struct cJSON *object) {
    const struct authority *authority = context;
    size_t keys = 0;
    if (!authority->https)
        return;
    struct cJSON *part = cJSON_AddObjectToObject(object, "authority");
    for (size_t i = 0; i < authority->state.n_pairs; i++)
        keys += authority->state.pairs[i].n_epochs;
    cJSON_AddBoolToObject(part, "enrolled", authority_identity_valid(&authority->identity, agent_now_us()));
    cJSON_AddBoolToObject(part, "revoked", authority->revoked);
    cJSON_AddNumberToObject(part, "element", authority_element_id(&authority->state, authority->state.node));
    cJSON_AddNumberToObject(part, "next_hops", (double)authority->state.n_hops);
    cJSON_AddNumberToObject(part, "authorisations", (double)authority->state.n_authorisations);
    cJSON_AddNumberToObject(part, "pairs", (double)authority->state.n_pairs);
    cJSON_AddNumberToObject(part, "keys", (double)keys);
    cJSON_AddBoolToObject(part, "records_signed", authority_signs_records());
    cJSON_AddNumberToObject(part, "reports_sent", (double)authority->reports.sent);
    cJSON_AddNumberToObject(part, "reports_healed", (double)authority->reports.healed);
    cJSON_AddStringToObject(part, "error", authority_fault());
    cJSON_AddStringToObject(part, "silence", authority->silence);
}
