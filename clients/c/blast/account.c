/* See account.h. */
#include "account.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"

int blast_account_begin(struct blast_account *account, const struct blast_options *options) {
    memset(account, 0, sizeof(*account));
    account->options = options;
    account->first_rate_s = -1;
    account->intervals = cJSON_CreateArray();
    account->digest = EVP_MD_CTX_new();
    if (!account->intervals || !account->digest || EVP_DigestInit_ex(account->digest, EVP_sha256(), NULL) != 1)
        return -ENOMEM;
    return 0;
}

void blast_account_end(struct blast_account *account) {
    cJSON_Delete(account->intervals);
    cJSON_Delete(account->peer);
    EVP_MD_CTX_free(account->digest);
}

static double seconds(const struct blast_account *account, uint64_t now_ns) {
    return (double)(now_ns - account->start_ns) / (double)CHART_NS_PER_S;
}

static void line(const struct blast_account *account, const char *text) {
    if (account->options->json)
        return;
    puts(text);
    fflush(stdout);
}

void blast_account_bytes(struct blast_account *account, const void *data, size_t length) {
    account->bytes += length;
    account->interval_bytes += length;
    EVP_DigestUpdate(account->digest, data, length);
}

static void end_interval(struct blast_account *account, uint64_t end_ns) {
    double from = seconds(account, account->interval_ns), to = seconds(account, end_ns);
    double rate_bps = to > from ? 8 * (double)account->interval_bytes / (to - from) : 0;
    char text[160];
    struct cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "start_s", from);
    cJSON_AddNumberToObject(object, "end_s", to);
    cJSON_AddNumberToObject(object, "bytes", (double)account->interval_bytes);
    cJSON_AddNumberToObject(object, "bits_per_second", rate_bps);
    cJSON_AddNumberToObject(object, "rate_bps", (double)account->rate.bps);
    cJSON_AddItemToArray(account->intervals, object);
    int length = snprintf(text, sizeof(text), "%7.2f-%.2f s  %10.3f MB  %10.3f Mb/s", from, to,
                          (double)account->interval_bytes / 1e6, rate_bps / 1e6);
    if (account->options->asks)
        snprintf(text + length, sizeof(text) - (size_t)length, "  rate %.3f Mb/s", (double)account->rate.bps / 1e6);
    line(account, text);
    account->interval_ns = end_ns;
    account->interval_bytes = 0;
}

void blast_account_tick(struct blast_account *account, uint64_t now_ns) {
    uint64_t length_ns = (uint64_t)(account->options->interval_s * (double)CHART_NS_PER_S);
    if (!account->interval_ns)
        account->interval_ns = account->start_ns;
    while (length_ns && now_ns >= account->interval_ns + length_ns)
        end_interval(account, account->interval_ns + length_ns);
}

void blast_account_rate(struct blast_account *account, const struct chart_rate *rate, uint64_t now_ns) {
    char text[160];
    account->rate = *rate;
    if (rate->bps)
        account->agreed = *rate;
    if (rate->bps && account->first_rate_s < 0)
        account->first_rate_s = seconds(account, now_ns);
    if (account->n_events < BLAST_EVENTS_MAX)
        account->events[account->n_events++] = (struct blast_event){seconds(account, now_ns), *rate};
    else
        account->more_events++;
    snprintf(text, sizeof(text), "%7.3f s  %s: guaranteed %.3f Mb/s, available %.3f Mb/s%s", seconds(account, now_ns),
             chart_state_name(rate->state), (double)rate->guaranteed_bps / 1e6, (double)rate->available_bps / 1e6,
             rate->bps || rate->state != CHART_STATE_AGREED ? "" : " (ended)");
    line(account, text);
}

void blast_account_close(struct blast_account *account) {
    unsigned char octets[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    account->end_ns = account->end_ns ? account->end_ns : chart_now_ns();
    if (account->options->interval_s > 0 && account->interval_bytes)
        end_interval(account, account->end_ns);
    EVP_DigestFinal_ex(account->digest, octets, &length);
    for (unsigned i = 0; i < length && 2 * i + 2 < BLAST_DIGEST_TEXT; i++)
        snprintf(account->digest_text + 2 * i, 3, "%02x", octets[i]);
}

bool blast_account_whole(const struct blast_account *account) {
    const struct cJSON *digest = cJSON_GetObjectItemCaseSensitive(account->peer, "sha256");
    return account->options->udp || !cJSON_IsString(digest) || strcmp(digest->valuestring, account->digest_text) == 0;
}

static double goodput_bps(const struct blast_account *account) {
    double lasted = seconds(account, account->end_ns);
    return lasted > 0 ? 8 * (double)account->bytes / lasted : 0;
}

struct cJSON *blast_account_brief(const struct blast_account *account) {
    struct cJSON *object = cJSON_CreateObject();
    const struct blast_datagrams *datagrams = &account->datagrams;
    cJSON_AddNumberToObject(object, "bytes", (double)account->bytes);
    cJSON_AddNumberToObject(object, "seconds", seconds(account, account->end_ns));
    cJSON_AddNumberToObject(object, "bits_per_second", goodput_bps(account));
    if (account->options->udp) {
        uint64_t lost = datagrams->sent > datagrams->received ? datagrams->sent - datagrams->received : 0;
        cJSON_AddNumberToObject(object, "datagrams", (double)datagrams->received);
        cJSON_AddNumberToObject(object, "lost", (double)lost);
        cJSON_AddNumberToObject(object, "duplicates", (double)datagrams->duplicates);
        cJSON_AddNumberToObject(object, "reordered", (double)datagrams->reordered);
    } else {
        cJSON_AddStringToObject(object, "sha256", account->digest_text);
    }
    return object;
}

static void add_address(struct cJSON *object, const char *name, const struct sockaddr_storage *address) {
    char host[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 16];
    bool six = address->ss_family == AF_INET6;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)address;
    inet_ntop(address->ss_family, six ? (const void *)&in6->sin6_addr : (const void *)&in4->sin_addr, host,
              sizeof(host));
    snprintf(text, sizeof(text), six ? "[%s]:%u" : "%s:%u", host, ntohs(six ? in6->sin6_port : in4->sin_port));
    cJSON_AddStringToObject(object, name, text);
}

static void add_tcp(struct cJSON *object, int socket) {
    struct tcp_info info = {0};
    char control[16] = "";
    socklen_t size = sizeof(info), control_size = sizeof(control) - 1;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size))
        return;
    getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, control, &control_size);
    struct cJSON *tcp = cJSON_AddObjectToObject(object, "tcp");
    cJSON_AddStringToObject(tcp, "congestion", control);
    cJSON_AddNumberToObject(tcp, "rtt_us", info.tcpi_rtt);
    cJSON_AddNumberToObject(tcp, "min_rtt_us", info.tcpi_min_rtt);
    cJSON_AddNumberToObject(tcp, "retransmitted_packets", info.tcpi_total_retrans);
}

static void add_asked(struct cJSON *object, const struct blast_account *account) {
    static const char *const services[] = {"available", "guaranteed", "maximum", "variable"};
    const struct chart_ask *ask = &account->options->ask;
    struct cJSON *asked = cJSON_AddObjectToObject(object, "asked");
    cJSON_AddNumberToObject(asked, "guaranteed_bps", (double)ask->guaranteed_bps);
    if (ask->available_bps == CHART_ALL)
        cJSON_AddStringToObject(asked, "available_bps", "all");
    else
        cJSON_AddNumberToObject(asked, "available_bps", (double)ask->available_bps);
    cJSON_AddStringToObject(asked, "service", services[ask->service]);
    if (account->request_error)
        cJSON_AddStringToObject(object, "no_rate_because", chart_error_text(account->request_error));
}

static void add_events(struct cJSON *object, const struct blast_account *account) {
    struct cJSON *events = cJSON_AddArrayToObject(object, "rate_events");
    for (size_t i = 0; i < account->n_events; i++) {
        const struct blast_event *event = &account->events[i];
        struct cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "at_s", event->at_s);
        cJSON_AddStringToObject(item, "state", chart_state_name(event->rate.state));
        cJSON_AddNumberToObject(item, "rate_bps", (double)event->rate.bps);
        cJSON_AddNumberToObject(item, "guaranteed_bps", (double)event->rate.guaranteed_bps);
        cJSON_AddNumberToObject(item, "available_bps", (double)event->rate.available_bps);
        cJSON_AddItemToArray(events, item);
    }
    cJSON_AddNumberToObject(object, "rate_events_left_out", (double)account->more_events);
}

static void print_json(const struct blast_account *account, int socket) {
    struct cJSON *object = blast_account_brief(account);
    struct sockaddr_storage address;
    socklen_t size = sizeof(address);
    cJSON_AddStringToObject(object, "role", account->options->send ? "send" : "receive");
    cJSON_AddStringToObject(object, "protocol", account->options->udp ? "udp" : "tcp");
    if (getsockname(socket, (struct sockaddr *)&address, &size) == 0)
        add_address(object, "local", &address);
    size = sizeof(address);
    if (getpeername(socket, (struct sockaddr *)&address, &size) == 0)
        add_address(object, "remote", &address);
    cJSON_AddNumberToObject(object, "open_s", seconds(account, account->open_ns));
    if (account->options->asks) {
        add_asked(object, account);
        cJSON_AddStringToObject(object, "state", chart_state_name(account->rate.state));
        cJSON_AddNumberToObject(object, "rate_bps", (double)account->agreed.bps);
        cJSON_AddNumberToObject(object, "guaranteed_bps", (double)account->agreed.guaranteed_bps);
        cJSON_AddNumberToObject(object, "available_bps", (double)account->agreed.available_bps);
        if (account->first_rate_s >= 0)
            cJSON_AddNumberToObject(object, "first_rate_s", account->first_rate_s);
        else
            cJSON_AddNullToObject(object, "first_rate_s");
        add_events(object, account);
    }
    if (!account->options->udp)
        add_tcp(object, socket);
    if (account->options->udp && account->options->send) {
        cJSON_DeleteItemFromObject(object, "lost");
        cJSON_DeleteItemFromObject(object, "duplicates");
        cJSON_DeleteItemFromObject(object, "reordered");
    }
    cJSON_AddItemReferenceToObject(object, "intervals", account->intervals);
    if (account->peer)
        cJSON_AddItemReferenceToObject(object, "receiver", account->peer);
    char *text = cJSON_Print(object);
    puts(text ? text : "{}");
    free(text);
    cJSON_Delete(object);
}

void blast_account_print(const struct blast_account *account, int socket) {
    if (account->options->json) {
        print_json(account, socket);
        return;
    }
    printf("%s %.3f MB in %.3f s: %.3f Mb/s\n", account->options->send ? "sent" : "received",
           (double)account->bytes / 1e6, seconds(account, account->end_ns), goodput_bps(account) / 1e6);
    if (account->options->asks && account->agreed.bps)
        printf("rate %.3f Mb/s, known after %.1f ms\n", (double)account->agreed.bps / 1e6, account->first_rate_s * 1e3);
    else if (account->options->asks)
        printf("no rate was agreed on (%s)\n", account->request_error ? chart_error_text(account->request_error)
                                                                      : chart_state_name(account->rate.state));
    if (account->peer) {
        char *text = cJSON_PrintUnformatted(account->peer);
        printf("the receiver tells: %s\n", text ? text : "");
        free(text);
    }
}
