/* The command line, see options.h. */
#include "options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elasticity.h"
#include "frame.h"
#include "node_applications.h"
#include "privileges.h"
#include "tun.h"

enum {
    OPT_CONTROL = 256,
    OPT_TUN,
    OPT_MTU,
    OPT_DESTINATION,
    OPT_BIND,
    OPT_CONNECTIONS,
    OPT_CONGESTION,
    OPT_MSS,
    OPT_PERIOD,
    OPT_CLASS,
    OPT_QUEUE,
    OPT_BATCH,
    OPT_LISTEN,
    OPT_PEER,
    OPT_RESEQUENCE_PACKETS,
    OPT_RESEQUENCE_MS,
    OPT_METRICS,
    OPT_TLS_CERTIFICATE,
    OPT_TLS_KEY,
    OPT_TLS_AUTHORITY,
    OPT_TLS_NAME,
    OPT_NO_OFFLOAD,
    OPT_APPLICATION,
    OPT_APPLICATION_DIR,
    OPT_BROKER,
    OPT_BROKER_SETTING,
    OPT_TUNNEL,
    OPT_NODE,
    OPT_PEER_NODE,
    OPT_AUTHORITY,
    OPT_AUTHORITY_CA,
    OPT_STATE_DIR,
    OPT_USER,
    OPT_ROUTE,
    OPT_STATUS,
    OPT_JSON,
    OPT_HELP
};

static const struct option TABLE[] = {
    {"control", required_argument, NULL, OPT_CONTROL},
    {"tun", required_argument, NULL, OPT_TUN},
    {"mtu", required_argument, NULL, OPT_MTU},
    {"destination", required_argument, NULL, OPT_DESTINATION},
    {"bind", required_argument, NULL, OPT_BIND},
    {"connections", required_argument, NULL, OPT_CONNECTIONS},
    {"congestion", required_argument, NULL, OPT_CONGESTION},
    {"mss", required_argument, NULL, OPT_MSS},
    {"period-ms", required_argument, NULL, OPT_PERIOD},
    {"class", required_argument, NULL, OPT_CLASS},
    {"queue-bytes", required_argument, NULL, OPT_QUEUE},
    {"batch-bytes", required_argument, NULL, OPT_BATCH},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"peer", required_argument, NULL, OPT_PEER},
    {"resequence-packets", required_argument, NULL, OPT_RESEQUENCE_PACKETS},
    {"resequence-ms", required_argument, NULL, OPT_RESEQUENCE_MS},
    {"metrics", required_argument, NULL, OPT_METRICS},
    {"tls-certificate", required_argument, NULL, OPT_TLS_CERTIFICATE},
    {"tls-key", required_argument, NULL, OPT_TLS_KEY},
    {"tls-authority", required_argument, NULL, OPT_TLS_AUTHORITY},
    {"tls-name", required_argument, NULL, OPT_TLS_NAME},
    {"no-offload", no_argument, NULL, OPT_NO_OFFLOAD},
    {"application", required_argument, NULL, OPT_APPLICATION},
    {"application-dir", required_argument, NULL, OPT_APPLICATION_DIR},
    {"broker", required_argument, NULL, OPT_BROKER},
    {"broker-setting", required_argument, NULL, OPT_BROKER_SETTING},
    {"tunnel", required_argument, NULL, OPT_TUNNEL},
    {"node", required_argument, NULL, OPT_NODE},
    {"peer-node", required_argument, NULL, OPT_PEER_NODE},
    {"authority", required_argument, NULL, OPT_AUTHORITY},
    {"authority-ca", required_argument, NULL, OPT_AUTHORITY_CA},
    {"state-dir", required_argument, NULL, OPT_STATE_DIR},
    {"user", required_argument, NULL, OPT_USER},
    {"route", required_argument, NULL, OPT_ROUTE},
    {"status", no_argument, NULL, OPT_STATUS},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

socklen_t endpoint_bytes(const union endpoint *endpoint) {
    return endpoint->any.sa_family == AF_INET6 ? sizeof(endpoint->v6) : sizeof(endpoint->v4);
}

static int read_address(const char *text, uint16_t port, union endpoint *ret) {
    union endpoint endpoint;
    memset(&endpoint, 0, sizeof(endpoint));
    if (inet_pton(AF_INET, text, &endpoint.v4.sin_addr) == 1) {
        endpoint.v4.sin_family = AF_INET;
        endpoint.v4.sin_port = htons(port);
    } else if (inet_pton(AF_INET6, text, &endpoint.v6.sin6_addr) == 1) {
        endpoint.v6.sin6_family = AF_INET6;
        endpoint.v6.sin6_port = htons(port);
    } else {
        return -EINVAL;
    }
    *ret = endpoint;
    return 0;
}

static int read_range(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *ret) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-' || value < minimum || value > maximum)
        return -EINVAL;
    *ret = value;
    return 0;
}

/* ADDRESS:PORT or [ADDRESS]:PORT; the address alone is written to address, of OPTION_ADDRESS_BYTES. */
static int read_endpoint(const char *text, char *address, union endpoint *ret) {
    char copy[OPTION_ADDRESS_BYTES + 10];
    uint64_t port;
    snprintf(copy, sizeof(copy), "%s", text);
    char *colon = strrchr(copy, ':'), *start = copy;
    if (!colon || strlen(text) >= sizeof(copy) || read_range(colon + 1, 1, 65535, &port) < 0)
        return -EINVAL;
    *colon = '\0';
    if (start[0] == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        start++;
    }
    snprintf(address, OPTION_ADDRESS_BYTES, "%.*s", OPTION_ADDRESS_BYTES - 1, start);
    return read_address(start, (uint16_t)port, ret);
}

static int read_class(const char *text, struct options *options) {
    const char *equals = strchr(text, '='), *colon = equals ? strchr(equals, ':') : NULL;
    char weight[12] = "";
    uint64_t number;
    if (!colon || options->class_count == SCHEDULER_CLASSES)
        return -EINVAL;
    struct class_option *class = &options->classes[options->class_count];
    size_t name_bytes = (size_t)(equals - text), weight_bytes = (size_t)(colon - equals - 1);
    if (!name_bytes || name_bytes >= sizeof(class->name) || weight_bytes >= sizeof(weight))
        return -EINVAL;
    memcpy(class->name, text, name_bytes);
    class->name[name_bytes] = '\0';
    memcpy(weight, equals + 1, weight_bytes);
    for (uint32_t i = 0; i < options->class_count; i++)
        if (strcmp(options->classes[i].name, class->name) == 0)
            return -EINVAL;
    if (read_range(weight, 1, SCHEDULER_WEIGHT_MAX, &number) < 0 || selector_parse(colon + 1, &class->selector) < 0)
        return -EINVAL;
    class->weight = (uint32_t)number;
    options->class_count++;
    return 0;
}

static int read_numeric(int option, const char *value, struct options *options) {
    static const struct {
        int option;
        uint64_t minimum, maximum;
    } RANGES[] = {
        {OPT_MTU, 576, FRAME_PAYLOAD_MAX},
        {OPT_CONNECTIONS, 1, TUNNEL_CONNECTIONS_MAX},
        {OPT_MSS, 88, 65535},
        {OPT_PERIOD, 10, 60000},
        {OPT_QUEUE, 16384, 1000000000},
        {OPT_BATCH, 1, 65536},
        {OPT_RESEQUENCE_PACKETS, 1, 1000000},
        {OPT_RESEQUENCE_MS, 0, 60000},
    };
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof(RANGES) / sizeof(RANGES[0]); i++)
        if (RANGES[i].option == option && read_range(value, RANGES[i].minimum, RANGES[i].maximum, &number) < 0)
            return -EINVAL;
    switch (option) {
    case OPT_MTU:
        options->mtu_bytes = (unsigned)number;
        break;
    case OPT_CONNECTIONS:
        options->connections = (unsigned)number;
        break;
    case OPT_MSS:
        options->mss_bytes = (unsigned)number;
        break;
    case OPT_PERIOD:
        options->period_us = number * 1000;
        break;
    case OPT_QUEUE:
        options->queue_bytes = number;
        break;
    case OPT_BATCH:
        options->batch_bytes = (unsigned)number;
        break;
    case OPT_RESEQUENCE_PACKETS:
        options->resequence_packets = number;
        break;
    case OPT_RESEQUENCE_MS:
        options->resequence_us = number * 1000;
        break;
    default:
        return -EINVAL;
    }
    return 0;
}

static int append(const char *value, const char **list, size_t most, size_t *count) {
    if (*count == most)
        return -EINVAL;
    list[(*count)++] = value;
    return 0;
}

/* Options that are taken as they stand; false: none of these. */
static bool read_text(int option, const char *value, struct options *options) {
    const struct {
        int option;
        const char **place;
    } places[] = {
        {OPT_CONTROL, &options->control},
        {OPT_TLS_CERTIFICATE, &options->tls.certificate},
        {OPT_TLS_KEY, &options->tls.key},
        {OPT_TLS_AUTHORITY, &options->tls.authority},
        {OPT_TLS_NAME, &options->tls.name},
        {OPT_BROKER, &options->broker},
        {OPT_TUNNEL, &options->tunnel},
        {OPT_NODE, &options->node},
        {OPT_PEER_NODE, &options->peer_node},
        {OPT_AUTHORITY, &options->authority},
        {OPT_AUTHORITY_CA, &options->authority_ca},
        {OPT_STATE_DIR, &options->state_dir},
        {OPT_APPLICATION_DIR, &options->application_dir},
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (places[i].option == option) {
            *places[i].place = value;
            return true;
        }
    }
    return false;
}

static int read_option(int option, const char *value, struct options *options) {
    char ignored[OPTION_ADDRESS_BYTES];
    union endpoint checked;
    if (read_text(option, value, options))
        return value[0] ? 0 : -EINVAL;
    switch (option) {
    case OPT_TUN:
        snprintf(options->tun, sizeof(options->tun), "%s", value);
        return value[0] && strlen(value) < sizeof(options->tun) ? 0 : -EINVAL;
    case OPT_DESTINATION:
    case OPT_LISTEN:
        options->endpoint_text = value;
        return read_endpoint(value, options->address_text, &options->endpoint);
    case OPT_METRICS:
        options->metrics = value;
        return read_endpoint(value, ignored, &checked);
    case OPT_BIND:
        options->has_bind = true;
        return read_address(value, 0, &options->bind);
    case OPT_PEER:
        options->has_peer = true;
        return read_address(value, 0, &options->peer);
    case OPT_CONGESTION:
        options->congestion = value;
        return strcmp(value, "cubic") == 0 || strcmp(value, "reno") == 0 ? 0 : -EINVAL;
    case OPT_CLASS:
        return read_class(value, options);
    case OPT_NO_OFFLOAD:
        options->offload = false;
        return 0;
    case OPT_APPLICATION:
        return append(value, options->applications, OPTION_LIST, &options->application_count);
    case OPT_BROKER_SETTING:
        return strchr(value, '=') ? append(value, options->broker_settings, OPTION_LIST, &options->broker_setting_count)
                                  : -EINVAL;
    case OPT_ROUTE:
        return tun_prefix_good(value) ? append(value, options->routes, OPTION_ROUTES, &options->route_count) : -EINVAL;
    case OPT_USER:
        options->user = value;
        return privileges_known(value) ? 0 : -EINVAL;
    case OPT_STATUS:
        options->role = ROLE_STATUS;
        return 0;
    case OPT_JSON:
        options->json = true;
        return 0;
    default:
        return read_numeric(option, value, options);
    }
}

static int complain(const char *sentence) {
    fprintf(stderr, "chart-tunnel: %s (--help shows the usage)\n", sentence);
    return 2;
}

static int check_node(const struct options *options) {
    if (!options->state_dir)
        return complain("--state-dir DIRECTORY is missing: chart-agent writes there which ends this node has");
    if (!options->authority_ca)
        return complain("--authority-ca FILE is missing: ends know each other by their nodes' certificates");
    return 0;
}

static int check(const struct options *options, bool role_named) {
    if (options->role == ROLE_NODE)
        return check_node(options);
    if (!options->control)
        return complain("--control SOCKET is missing");
    if (options->role == ROLE_STATUS)
        return 0;
    if (!role_named)
        return complain("say whether this is the origin, the destination, or the node with all its ends");
    if (!options->endpoint_text)
        return complain(options->role == ROLE_ORIGIN ? "--destination ADDRESS:PORT is missing"
                                                     : "--listen ADDRESS:PORT is missing");
    if ((options->has_bind && options->bind.any.sa_family != options->endpoint.any.sa_family) ||
        (options->has_peer && options->peer.any.sa_family != options->endpoint.any.sa_family))
        return complain("addresses of IPv4 and IPv6 cannot be mixed on one tunnel");
    if (!options->tls.certificate != !options->tls.key || !options->tls.key != !options->tls.authority)
        return complain("--tls-certificate, --tls-key and --tls-authority go together");
    if (options->tls.name && !options->tls.certificate)
        return complain("--tls-name wants --tls-certificate, --tls-key and --tls-authority");
    if (options->broker && (!options->tunnel || !options->node))
        return complain("--broker wants --tunnel NAME and --node NAME");
    if (options->broker && options->role != ROLE_ORIGIN)
        return complain("--broker is the origin's: it reports for both ends");
    if (!options->authority != !options->authority_ca)
        return complain("--authority and --authority-ca go together");
    if (options->authority && !options->state_dir && !options->tls.certificate)
        return complain("--authority wants --state-dir, or --tls-certificate and --tls-key of the node");
    if (options->route_count && options->role != ROLE_ORIGIN)
        return complain("--route is the origin's: the destination's device only gives packets out");
    if (options->authority && !options->broker)
        return complain("--authority signs the reports that --broker takes");
    return 0;
}

static bool read_role(const char *word, enum role *ret) {
    static const char *const NAMES[] = {
        [ROLE_ORIGIN] = "origin", [ROLE_DESTINATION] = "destination", [ROLE_NODE] = "node"};
    for (enum role role = ROLE_ORIGIN; role <= ROLE_NODE; role++) {
        if (strcmp(word, NAMES[role]) == 0) {
            *ret = role;
            return true;
        }
    }
    return false;
}

int options_read(int count, char **arguments, struct options *ret) {
    struct options options = {
        .role = ROLE_ORIGIN,
        .tun = "chart-itm0",
        .mtu_bytes = 1500, /* whatever comes from an Ethernet passes whole */
        .connections = 1,
        .congestion = "cubic",
        .period_us = 1000000,
        .queue_bytes = 500000,
        .batch_bytes = 4096,
        .resequence_packets = 4096,
        .resequence_us = 1000000,
        .offload = true,
        .application_dir = NODE_APPLICATIONS_DIRECTORY,
    };
    char message[256];
    bool role_named = false;
    int option, index = 0;
    while ((option = getopt_long(count, arguments, "", TABLE, &index)) != -1) {
        if (option == OPT_HELP) {
            fputs(OPTIONS_USAGE, stdout);
            return 1;
        }
        if (option == '?')
            return 2;
        if (read_option(option, optarg, &options) < 0) {
            snprintf(message, sizeof(message), "--%s cannot be %.150s", TABLE[index].name, optarg);
            return complain(message);
        }
    }
    if (optind < count && options.role != ROLE_STATUS) {
        role_named = read_role(arguments[optind], &options.role);
        optind++;
    }
    if (optind < count)
        return complain("there is an argument too many");
    if (!options.class_count) {
        snprintf(options.classes[0].name, sizeof(options.classes[0].name), "everybody");
        options.classes[0].weight = 1;
        (void)selector_parse("any", &options.classes[0].selector);
        options.class_count = 1;
    }
    if (options.role == ROLE_NODE && !options.user)
        options.user = "nobody";
    int status = check(&options, role_named);
    if (status == 0)
        *ret = options;
    return status;
}
