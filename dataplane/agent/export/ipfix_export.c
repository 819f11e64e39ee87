/* See ipfix_export.h. */
#include "export/ipfix_export.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fixbuf/public.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export/records.h"

#define TEMPLATE_IPV4 256
#define TEMPLATE_IPV6 257
#define HOST_LEN 64
#define TCP 6
/* flowEndReason of the registry of IPFIX information elements: 2 active timeout, 3 end of flow detected. */
#define STILL_ACTIVE 2
#define FLOW_ENDED 3

#define HEAD                                                                                                           \
    {"flowStartMilliseconds", 8, 0}, {"flowEndMilliseconds", 8, 0}, {"octetDeltaCount", 8, 0},                         \
        {"packetDeltaCount", 8, 0}
#define TAIL                                                                                                           \
    {"sourceTransportPort", 2, 0}, {"destinationTransportPort", 2, 0}, {"protocolIdentifier", 1, 0},                   \
        {"flowEndReason", 1, 0}, {"ipClassOfService", 1, 0}, FB_IESPEC_NULL

static fbInfoElementSpec_t ipv4_elements[] = {
    HEAD, {"sourceIPv4Address", 4, 0}, {"destinationIPv4Address", 4, 0}, TAIL};
static fbInfoElementSpec_t ipv6_elements[] = {
    HEAD, {"sourceIPv6Address", 16, 0}, {"destinationIPv6Address", 16, 0}, TAIL};

/* As the templates lay it out: no gaps. */
struct __attribute__((packed)) head {
    uint64_t start_ms;
    uint64_t end_ms;
    uint64_t octets;
    uint64_t packets;
};
struct __attribute__((packed)) tail {
    uint16_t source_port;
    uint16_t destination_port;
    uint8_t protocol;
    uint8_t end_reason;
    uint8_t class_of_service;
};
struct __attribute__((packed)) ipv4_record {
    struct head head;
    uint32_t source;
    uint32_t destination;
    struct tail tail;
};
struct __attribute__((packed)) ipv6_record {
    struct head head;
    uint8_t source[16];
    uint8_t destination[16];
    struct tail tail;
};

struct ipfix_export {
    char host[HOST_LEN];
    char port[8];
    fbConnSpec_t where;
    fbInfoModel_t *model;
    /* Owns session and exporter. */
    fBuf_t *buffer;
    fbSession_t *session;
    int64_t templates_at_us;
};

static int failed(GError **error, char ret_error[IPFIX_ERROR_LEN]) {
    snprintf(ret_error, IPFIX_ERROR_LEN, "%s", *error ? (*error)->message : "unknown");
    g_clear_error(error);
    return -EIO;
}

static bool add_template(struct ipfix_export *ipfix, uint16_t id, fbInfoElementSpec_t *elements, GError **error) {
    fbTemplate_t *template = fbTemplateAlloc(ipfix->model);

    /* Records in memory and on the wire have one form. */
    return fbTemplateAppendSpecArray(template, elements, UINT32_MAX, error) &&
           fbSessionAddTemplate(ipfix->session, TRUE, id, template, error) &&
           fbSessionAddTemplate(ipfix->session, FALSE, id, template, error);
}

/* Several agents may share an address behind a translator: RFC 7011 tells them apart by domain. FNV-1a. */
static uint32_t domain_of(const char *node) {
    uint32_t hash = 2166136261u;

    for (; *node; node++)
        hash = (hash ^ (uint8_t)*node) * 16777619u;
    return hash;
}

int ipfix_export_open(const char *collector, const char *node, char ret_error[IPFIX_ERROR_LEN],
                      struct ipfix_export **ret) {
    struct ipfix_export *ipfix = calloc(1, sizeof(*ipfix));
    struct in6_addr address;
    GError *error = NULL;
    uint32_t port;

    if (!ipfix)
        return -ENOMEM;
    if (records_split(collector, ipfix->host, sizeof(ipfix->host), &port) || port == 0 ||
        (inet_pton(AF_INET, ipfix->host, &address) != 1 && inet_pton(AF_INET6, ipfix->host, &address) != 1)) {
        snprintf(ret_error, IPFIX_ERROR_LEN, "%.80s is not ADDR:PORT or [ADDR]:PORT, in numbers", collector);
        free(ipfix);
        return -EINVAL;
    }
    snprintf(ipfix->port, sizeof(ipfix->port), "%u", port);
    ipfix->where = (fbConnSpec_t){.transport = FB_UDP, .host = ipfix->host, .svc = ipfix->port};
    ipfix->model = fbInfoModelAlloc();
    ipfix->session = fbSessionAlloc(ipfix->model);
    fbSessionSetDomain(ipfix->session, domain_of(node));
    ipfix->buffer = fBufAllocForExport(ipfix->session, fbExporterAllocNet(&ipfix->where));
    fBufSetAutomaticMode(ipfix->buffer, TRUE);
    if (!add_template(ipfix, TEMPLATE_IPV4, ipv4_elements, &error) ||
        !add_template(ipfix, TEMPLATE_IPV6, ipv6_elements, &error)) {
        ipfix_export_close(ipfix);
        return failed(&error, ret_error);
    }
    *ret = ipfix;
    return 0;
}

static int append(struct ipfix_export *ipfix, uint16_t id, void *record, size_t size, char ret_error[IPFIX_ERROR_LEN]) {
    GError *error = NULL;

    if (fBufSetInternalTemplate(ipfix->buffer, id, &error) && fBufSetExportTemplate(ipfix->buffer, id, &error) &&
        fBufAppend(ipfix->buffer, record, size, &error))
        return 0;
    return failed(&error, ret_error);
}

int ipfix_export_add(struct ipfix_export *ipfix, const struct flow_record *record, char ret_error[IPFIX_ERROR_LEN]) {
    struct head head = {.start_ms = (uint64_t)record->since_us / 1000,
                        .end_ms = (uint64_t)record->ended_at_us / 1000,
                        .octets = record->new_bytes,
                        .packets = record->new_packets};
    struct tail tail = {.source_port = (uint16_t)record->source_port,
                        .destination_port = (uint16_t)record->destination_port,
                        .protocol = TCP,
                        .end_reason = record->final ? FLOW_ENDED : STILL_ACTIVE,
                        .class_of_service = (uint8_t)(record->dscp << 2)};
    struct ipv4_record ipv4 = {.head = head, .tail = tail};
    struct ipv6_record ipv6 = {.head = head, .tail = tail};
    struct in_addr source, destination;

    if (inet_pton(AF_INET, record->source_address, &source) == 1 &&
        inet_pton(AF_INET, record->destination_address, &destination) == 1) {
        /* The library turns numbers into the order of the network; an address is one to it. */
        ipv4.source = ntohl(source.s_addr);
        ipv4.destination = ntohl(destination.s_addr);
        return append(ipfix, TEMPLATE_IPV4, &ipv4, sizeof(ipv4), ret_error);
    }
    if (inet_pton(AF_INET6, record->source_address, ipv6.source) == 1 &&
        inet_pton(AF_INET6, record->destination_address, ipv6.destination) == 1)
        return append(ipfix, TEMPLATE_IPV6, &ipv6, sizeof(ipv6), ret_error);
    snprintf(ret_error, IPFIX_ERROR_LEN, "%.60s to %.60s are no two addresses of one family", record->source_address,
             record->destination_address);
    return -EINVAL;
}

int ipfix_export_flush(struct ipfix_export *ipfix, int64_t now_us, char ret_error[IPFIX_ERROR_LEN]) {
    GError *error = NULL;

    /* They were sent first when the export was opened. */
    if (!ipfix->templates_at_us)
        ipfix->templates_at_us = now_us;
    if (now_us >= ipfix->templates_at_us + IPFIX_TEMPLATES_US) {
        ipfix->templates_at_us = now_us;
        if (!fbSessionExportTemplates(ipfix->session, &error))
            return failed(&error, ret_error);
    }
    return fBufEmit(ipfix->buffer, &error) ? 0 : failed(&error, ret_error);
}

void ipfix_export_close(struct ipfix_export *ipfix) {
    if (!ipfix)
        return;
    fBufFree(ipfix->buffer);
    fbInfoModelFree(ipfix->model);
    free(ipfix);
}
