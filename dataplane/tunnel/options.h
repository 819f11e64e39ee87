/* The command line of chart-tunnel. */
#ifndef ITM_OPTIONS_H
#define ITM_OPTIONS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "packet.h"
#include "scheduler.h"
#include "tls.h"

#define OPTION_NAME_BYTES 24
#define OPTION_LIST 8
#define OPTION_ROUTES 64
#define OPTION_ADDRESS_BYTES 46

union endpoint {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct class_option {
    char name[OPTION_NAME_BYTES];
    uint32_t weight;
    struct selector selector;
};

enum role { ROLE_ORIGIN, ROLE_DESTINATION, ROLE_NODE, ROLE_STATUS };

struct options {
    enum role role;
    const char *control; /* path of the unix socket */
    char tun[16];
    unsigned mtu_bytes;
    union endpoint endpoint; /* origin: the destination's; destination: where it listens */
    const char *endpoint_text;
    char address_text[OPTION_ADDRESS_BYTES]; /* the endpoint without its port */
    union endpoint bind, peer;
    bool has_bind, has_peer;
    unsigned connections, batch_bytes, mss_bytes;
    const char *congestion;
    uint64_t period_us, queue_bytes;
    uint64_t resequence_packets, resequence_us;
    struct class_option classes[SCHEDULER_CLASSES];
    uint32_t class_count;
    bool json;
    bool offload;           /* the device leaves checksums and segmentation to the far end */
    struct tls_options tls; /* certificate NULL: plain */
    const char *metrics;    /* ADDRESS:PORT for Prometheus, or NULL */
    const char *tunnel;     /* key of its records */
    const char *broker;     /* HOST:PORT[,...], or NULL */
    const char *node, *peer_node;
    const char *user;                  /* whom the end becomes after its start, or NULL */
    const char *routes[OPTION_ROUTES]; /* prefixes that the origin leads into its device */
    size_t route_count;
    /* The authority's replicas and what their certificate is checked with; where the agent keeps the node's own. */
    const char *authority, *authority_ca, *state_dir;
    const char *application_dir; /* where a node keeps traffic controllers */
    const char *broker_settings[OPTION_LIST], *applications[OPTION_LIST];
    size_t broker_setting_count, application_count;
};

extern const char OPTIONS_USAGE[];

/* Returns 0, or 2 (the exit status) after a sentence on standard error; 1 after --help. */
int options_read(int count, char **arguments, struct options *ret);
socklen_t endpoint_bytes(const union endpoint *endpoint);

#endif
