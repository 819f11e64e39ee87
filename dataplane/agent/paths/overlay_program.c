/* See overlay_program.h. */
#include "paths/overlay_program.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/kernel_tc.h"
#include "core/log.h"
#include "grants/datapath.h"
#include "overlay.skel.h"
#include "qos_build.h"

#define DEVICE_PLACES 2
#define INTERFACE_PLACES 2
/* So that probe and answer are as long as a small packet with headers. */
#define PROBE_PADDING_BYTES 14
#define PATH_PROBE_BYTES_MAX                                                                                           \
    (sizeof(struct ether_header) + sizeof(struct ip6_hdr) + sizeof(struct udphdr) + sizeof(struct chart_overlay_probe))
#define PATH_PROBE_HOPS 64
/* The program's word for it (TCX_NEXT). */
#define SENT (-1)

struct hooks {
    uint32_t ifindex;
    struct kernel_tc places[INTERFACE_PLACES];
};

/* A whole datagram; nothing: there is no path of this number. */
struct path_probe {
    uint8_t frame[PATH_PROBE_BYTES_MAX];
    uint32_t bytes;
};

/* Whether a key of a map of the kernel is to stay. */
typedef bool (*stays)(const struct overlay_program *program, const void *key);

struct overlay_program {
    struct chart_overlay *skeleton;
    struct chart_overlay_liveness *liveness;
    size_t liveness_bytes;
    struct kernel_tc device[DEVICE_PLACES];
    struct hooks hooks[CHART_OVERLAY_INTERFACES_MAX];
    size_t n_hooks;
    /* By number; a name that is not empty has it. */
    char names[CHART_OVERLAY_NEIGHBOURS_MAX][OVERLAY_NAME_LEN];
    struct chart_overlay_neighbour neighbours[CHART_OVERLAY_NEIGHBOURS_MAX];
    /* By place in the table. */
    uint32_t numbers[OVERLAY_LINKS_MAX];
    size_t n_numbers;
    /* Owners that were ever named have their number for good: it is the key of paths. */
    struct strmap owners;
    uint32_t last_owner;
    struct path_probe path_probes[CHART_OVERLAY_PROBED_MAX - CHART_OVERLAY_NEIGHBOURS_MAX];
    uint16_t port;
    /* What the table of now has, sorted, while it is applied. */
    struct chart_overlay_prefix *prefixes;
    size_t n_prefixes;
    struct chart_overlay_path_key *paths;
    size_t n_paths;
};

static size_t value_bytes(void) {
    return (sizeof(struct chart_overlay_liveness) + 7) & ~(size_t)7;
}

/* Maps that others own, and those that only other programs with the same headers use. */
static int share_maps(struct chart_overlay *skeleton, const struct datapath *datapath) {
    int error = bpf_map__set_autocreate(skeleton->maps.usage, false);

    error = error ? error : bpf_map__set_autocreate(skeleton->maps.flows, false);
    return error ? error
                 : datapath_share_grants(datapath, skeleton->maps.rates, skeleton->maps.node_config,
                                         skeleton->maps.selectors);
}

int overlay_program_open(const struct datapath *datapath, struct overlay_program **ret) {
    struct overlay_program *program = calloc(1, sizeof(*program));
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *shared;
    int error;

    if (!program)
        return -ENOMEM;
    for (size_t i = 0; i < DEVICE_PLACES; i++)
        program->device[i].fd = -1;
    program->skeleton = chart_overlay__open();
    if (!program->skeleton) {
        free(program);
        return -ENOMEM;
    }
    bpf_program__set_expected_attach_type(program->skeleton->progs.overlay_enter, 0);
    bpf_program__set_expected_attach_type(program->skeleton->progs.overlay_originate, 0);
    bpf_program__set_expected_attach_type(program->skeleton->progs.overlay_receive, 0);
    bpf_program__set_expected_attach_type(program->skeleton->progs.overlay_send, 0);
    bpf_program__set_expected_attach_type(program->skeleton->progs.overlay_probe, 0);
    bpf_program__set_expected_attach_type(program->skeleton->progs.overlay_probe_path, 0);
    error = share_maps(program->skeleton, datapath);
    error = error ? error : chart_overlay__load(program->skeleton);
    if (error) {
        overlay_program_close(program);
        return error;
    }
    program->liveness_bytes = (value_bytes() * CHART_OVERLAY_PROBED_MAX + page - 1) / page * page;
    shared = mmap(NULL, program->liveness_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                  bpf_map__fd(program->skeleton->maps.overlay_liveness), 0);
    if (shared == MAP_FAILED) {
        error = -errno;
        overlay_program_close(program);
        return error;
    }
    program->liveness = shared;
    *ret = program;
    return 0;
}

void overlay_program_close(struct overlay_program *program) {
    if (!program)
        return;
    overlay_program_detach(program);
    if (program->liveness)
        munmap(program->liveness, program->liveness_bytes);
    chart_overlay__destroy(program->skeleton);
    strmap_free(&program->owners, NULL);
    free(program);
}

static int put(struct bpf_map *map, const void *key, const void *value) {
    return bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY) ? -errno : 0;
}

static struct chart_overlay_neighbour describe(const struct overlay_link *link) {
    struct chart_overlay_neighbour neighbour = {.family = link->local.family,
                                                .direct = *link->interface != '\0',
                                                .used = 1,
                                                .ifindex = *link->interface ? if_nametoindex(link->interface) : 0,
                                                .mtu = link->mtu};
    struct chart_overlay_prefix local = overlay_prefix_to_kernel(&link->local);
    struct chart_overlay_prefix remote = overlay_prefix_to_kernel(&link->remote);

    memcpy(neighbour.local, local.address, sizeof(neighbour.local));
    memcpy(neighbour.remote, remote.address, sizeof(neighbour.remote));
    return neighbour;
}

/* The number that a link had, or a free one. There are as many as links. */
static uint32_t number_of(const struct overlay_program *program, const char *name) {
    uint32_t unused = 0;

    for (uint32_t i = CHART_OVERLAY_NEIGHBOURS_MAX - 1; i > 0; i--) {
        if (strcmp(program->names[i], name) == 0)
            return i;
        if (!*program->names[i])
            unused = i;
    }
    return unused;
}

static void forget_neighbour(struct overlay_program *program, uint32_t number) {
    struct chart_overlay_remote remote;

    memcpy(remote.address, program->neighbours[number].remote, sizeof(remote.address));
    (void)bpf_map_delete_elem(bpf_map__fd(program->skeleton->maps.overlay_remotes), &remote);
    program->neighbours[number] = (struct chart_overlay_neighbour){0};
    (void)put(program->skeleton->maps.overlay_neighbours, &number, &program->neighbours[number]);
    *overlay_program_liveness(program, number) = (struct chart_overlay_liveness){0};
    program->names[number][0] = '\0';
}

static void forget_gone(struct overlay_program *program, const struct overlay_table *table) {
    for (uint32_t number = 1; number < CHART_OVERLAY_NEIGHBOURS_MAX; number++) {
        bool stays = !*program->names[number];

        for (size_t i = 0; i < table->n_links && !stays; i++) {
            struct chart_overlay_neighbour wanted = describe(&table->links[i]);

            /* Its addresses are what it is known by. */
            stays =
                strcmp(table->links[i].name, program->names[number]) == 0 &&
                memcmp(&wanted, &program->neighbours[number], offsetof(struct chart_overlay_neighbour, ifindex)) == 0;
        }
        if (!stays)
            forget_neighbour(program, number);
    }
}

static int apply_links(struct overlay_program *program, const struct overlay_table *table) {
    forget_gone(program, table);
    program->n_numbers = 0;
    for (size_t i = 0; i < table->n_links; i++) {
        const struct overlay_link *link = &table->links[i];
        uint32_t number = number_of(program, link->name);
        struct chart_overlay_remote remote;
        int error;

        program->neighbours[number] = describe(link);
        strcpy(program->names[number], link->name);
        memcpy(remote.address, program->neighbours[number].remote, sizeof(remote.address));
        error = put(program->skeleton->maps.overlay_neighbours, &number, &program->neighbours[number]);
        error = error ? error : put(program->skeleton->maps.overlay_remotes, &remote, &number);
        if (error)
            return error;
        program->numbers[program->n_numbers++] = number;
    }
    return 0;
}

void overlay_program_renew(struct overlay_program *program, const struct overlay_table *table) {
    for (size_t i = 0; i < table->n_links && i < program->n_numbers; i++) {
        uint32_t number = program->numbers[i];
        struct chart_overlay_neighbour now = describe(&table->links[i]);

        if (now.ifindex == program->neighbours[number].ifindex)
            continue;
        program->neighbours[number] = now;
        (void)put(program->skeleton->maps.overlay_neighbours, &number, &now);
    }
}

/* 0: no memory. */
static uint32_t owner_number(struct overlay_program *program, const char *node, const char *self) {
    uintptr_t number;

    if (strcmp(node, self) == 0)
        return CHART_OVERLAY_SELF;
    number = (uintptr_t)strmap_get(&program->owners, node);
    if (number)
        return (uint32_t)number;
    number = program->last_owner + 1;
    if (strmap_put(&program->owners, node, (void *)number, NULL))
        return 0;
    return program->last_owner = (uint32_t)number;
}

static int apply_owner(struct overlay_program *program, const struct overlay_owner *owner, const char *self) {
    uint32_t number = owner_number(program, owner->node, self);
    int error = number ? 0 : -ENOMEM;

    for (size_t i = 0; i < owner->n_routes && !error; i++) {
        const struct overlay_route *route = &owner->routes[i];
        struct chart_overlay_path path = {0};
        struct chart_overlay_path_key key = {.owner = number, .colour = route->colour};

        for (size_t k = 0; k < route->n_hops; k++)
            path.hops[k] = program->numbers[route->hops[k]];
        error = put(program->skeleton->maps.overlay_paths, &key, &path);
        program->paths[program->n_paths++] = key;
    }
    /* Paths before prefixes: a packet whose owner is known finds its way. */
    for (size_t i = 0; i < owner->n_prefixes && !error; i++) {
        struct chart_overlay_prefix prefix = overlay_prefix_to_kernel(&owner->prefixes[i]);

        error = put(program->skeleton->maps.overlay_owners, &prefix, &number);
        program->prefixes[program->n_prefixes++] = prefix;
    }
    return error;
}

static int compare_prefixes(const void *left, const void *right) {
    return memcmp(left, right, sizeof(struct chart_overlay_prefix));
}

static int compare_paths(const void *left, const void *right) {
    return memcmp(left, right, sizeof(struct chart_overlay_path_key));
}

static bool has_prefix(const struct overlay_program *program, const void *key) {
    return bsearch(key, program->prefixes, program->n_prefixes, sizeof(*program->prefixes), compare_prefixes) != NULL;
}

static bool has_path(const struct overlay_program *program, const void *key) {
    return bsearch(key, program->paths, program->n_paths, sizeof(*program->paths), compare_paths) != NULL;
}

/* Take out of a map of the kernel what the table of now has not. */
static int sweep(const struct overlay_program *program, struct bpf_map *map, size_t most, stays wanted) {
    size_t bytes = bpf_map__key_size(map), n = 0;
    char *keys = calloc(most + 1, bytes);
    const void *before = NULL;
    int fd = bpf_map__fd(map);

    if (!keys)
        return -ENOMEM;
    while (n < most && bpf_map_get_next_key(fd, before, keys + n * bytes) == 0) {
        before = keys + n * bytes;
        n++;
    }
    for (size_t i = 0; i < n; i++)
        if (!wanted(program, keys + i * bytes))
            (void)bpf_map_delete_elem(fd, keys + i * bytes);
    free(keys);
    return 0;
}

static int apply_owners(struct overlay_program *program, const struct overlay_table *table, const char *self) {
    int error = 0;

    for (size_t i = 0; i < table->n_owners && !error; i++)
        error = apply_owner(program, &table->owners[i], self);
    if (error)
        return error;
    qsort(program->prefixes, program->n_prefixes, sizeof(*program->prefixes), compare_prefixes);
    qsort(program->paths, program->n_paths, sizeof(*program->paths), compare_paths);
    error = sweep(program, program->skeleton->maps.overlay_owners, CHART_OVERLAY_PREFIXES_MAX, has_prefix);
    return error ? error : sweep(program, program->skeleton->maps.overlay_paths, CHART_OVERLAY_PATHS_MAX, has_path);
}

int overlay_program_apply(struct overlay_program *program, const struct overlay_table *table, const char *self) {
    int error;

    program->port = table->port;
    program->n_prefixes = program->n_paths = 0;
    program->prefixes = calloc(CHART_OVERLAY_PREFIXES_MAX, sizeof(*program->prefixes));
    program->paths = calloc(CHART_OVERLAY_PATHS_MAX, sizeof(*program->paths));
    error = program->prefixes && program->paths ? 0 : -ENOMEM;
    error = error ? error : apply_links(program, table);
    error = error ? error : apply_owners(program, table, self);
    free(program->prefixes);
    free(program->paths);
    program->prefixes = NULL;
    program->paths = NULL;
    return error;
}

uint32_t overlay_program_neighbour(const struct overlay_program *program, size_t link) {
    return link < program->n_numbers ? program->numbers[link] : 0;
}

int overlay_program_configure(struct overlay_program *program, const struct chart_overlay_config *config) {
    uint32_t zero = 0;

    return put(program->skeleton->maps.overlay_config, &zero, config);
}

static void detach_device(struct overlay_program *program) {
    for (size_t i = 0; i < DEVICE_PLACES; i++)
        kernel_detach_tc(&program->device[i]);
}

int overlay_program_attach_device(struct overlay_program *program, uint32_t ifindex) {
    int error;

    detach_device(program);
    error = kernel_attach_tc(bpf_program__fd(program->skeleton->progs.overlay_receive), ifindex, KERNEL_TC_OVERLAY_IN,
                             &program->device[0]);
    error = error ? error
                  : kernel_attach_tc(bpf_program__fd(program->skeleton->progs.overlay_send), ifindex,
                                     KERNEL_TC_OVERLAY_OUT, &program->device[1]);
    if (error)
        detach_device(program);
    return error;
}

static void detach_hooks(struct overlay_program *program, size_t place) {
    struct hooks *hooks = &program->hooks[place];

    for (size_t i = 0; i < INTERFACE_PLACES; i++)
        kernel_detach_tc(&hooks->places[i]);
    (void)bpf_map_delete_elem(bpf_map__fd(program->skeleton->maps.overlay_interfaces), &hooks->ifindex);
    *hooks = program->hooks[--program->n_hooks];
}

static int attach_hooks(struct overlay_program *program, uint32_t ifindex) {
    struct hooks *hooks = &program->hooks[program->n_hooks];
    uint32_t header_bytes = datapath_link_header_bytes(ifindex);
    int error;

    if (program->n_hooks == CHART_OVERLAY_INTERFACES_MAX)
        return -ENOSPC;
    *hooks = (struct hooks){.ifindex = ifindex, .places = {{.fd = -1}, {.fd = -1}}};
    program->n_hooks++;
    error = put(program->skeleton->maps.overlay_interfaces, &ifindex, &header_bytes);
    error = error ? error
                  : kernel_attach_tc(bpf_program__fd(program->skeleton->progs.overlay_enter), ifindex,
                                     KERNEL_TC_OVERLAY_IN, &hooks->places[0]);
    error = error ? error
                  : kernel_attach_tc(bpf_program__fd(program->skeleton->progs.overlay_originate), ifindex,
                                     KERNEL_TC_OVERLAY_OUT, &hooks->places[1]);
    if (error)
        detach_hooks(program, program->n_hooks - 1);
    return error;
}

static bool has(const uint32_t *ifindexes, size_t n, uint32_t ifindex) {
    for (size_t i = 0; i < n; i++)
        if (ifindexes[i] == ifindex)
            return true;
    return false;
}

static bool is_hooked(const struct overlay_program *program, uint32_t ifindex) {
    for (size_t i = 0; i < program->n_hooks; i++)
        if (program->hooks[i].ifindex == ifindex)
            return true;
    return false;
}

size_t overlay_program_attach(struct overlay_program *program, const uint32_t *ifindexes, size_t n) {
    for (size_t i = 0; i < program->n_hooks;) {
        if (has(ifindexes, n, program->hooks[i].ifindex))
            i++;
        else
            detach_hooks(program, i);
    }
    for (size_t i = 0; i < n; i++) {
        int error = is_hooked(program, ifindexes[i]) ? 0 : attach_hooks(program, ifindexes[i]);

        if (error && error != -ENODEV)
            log_warning("the overlay cannot take packets of interface %u: %s", ifindexes[i], strerror(-error));
    }
    return program->n_hooks;
}

void overlay_program_detach(struct overlay_program *program) {
    while (program->n_hooks)
        detach_hooks(program, 0);
    detach_device(program);
}

struct chart_overlay_liveness *overlay_program_liveness(const struct overlay_program *program, uint32_t number) {
    return (struct chart_overlay_liveness *)((char *)program->liveness + number * value_bytes());
}

uint32_t overlay_program_owner(const struct overlay_program *program, const char *node) {
    return (uint32_t)(uintptr_t)strmap_get(&program->owners, node);
}

/* The IP header in front of so many octets; how long it is. */
static size_t write_ip(uint8_t *at, const struct decide_prefix *local, const struct decide_prefix *remote,
                       size_t bytes) {
    struct ip6_hdr ipv6 = {.ip6_flow = htonl(6u << 28),
                           .ip6_plen = htons((uint16_t)bytes),
                           .ip6_nxt = IPPROTO_UDP,
                           .ip6_hlim = PATH_PROBE_HOPS};
    struct iphdr ipv4 = {.version = 4,
                         .ihl = sizeof(ipv4) / 4,
                         .tot_len = htons((uint16_t)(bytes + sizeof(ipv4))),
                         .frag_off = htons(IP_DF),
                         .ttl = PATH_PROBE_HOPS,
                         .protocol = IPPROTO_UDP};

    if (local->family == AF_INET6) {
        memcpy(&ipv6.ip6_src, local->address, sizeof(ipv6.ip6_src));
        memcpy(&ipv6.ip6_dst, remote->address, sizeof(ipv6.ip6_dst));
        memcpy(at, &ipv6, sizeof(ipv6));
        return sizeof(ipv6);
    }
    memcpy(&ipv4.saddr, local->address, sizeof(ipv4.saddr));
    memcpy(&ipv4.daddr, remote->address, sizeof(ipv4.daddr));
    ipv4.check = htons(chart_ipv4_checksum((const uint8_t *)&ipv4, sizeof(ipv4)));
    memcpy(at, &ipv4, sizeof(ipv4));
    return sizeof(ipv4);
}

int overlay_program_set_path(struct overlay_program *program, uint32_t number, const struct decide_prefix *local,
                             const struct decide_prefix *remote, uint8_t colour) {
    struct path_probe *path = &program->path_probes[number - CHART_OVERLAY_NEIGHBOURS_MAX];
    struct ether_header ethernet = {.ether_type = htons(local->family == AF_INET6 ? ETHERTYPE_IPV6 : ETHERTYPE_IP)};
    struct chart_overlay_probe probe = {.version = CHART_OVERLAY_PROBE_VERSION,
                                        .kind = CHART_OVERLAY_PATH_PROBE,
                                        .number = htons((uint16_t)number),
                                        .colour = htonl(colour)};
    /* Read by programs only, so that it needs no checksum. */
    struct udphdr udp = {
        .source = htons(program->port), .dest = htons(program->port), .len = htons(sizeof(udp) + sizeof(probe))};
    size_t at = sizeof(ethernet);

    memcpy(path->frame, &ethernet, sizeof(ethernet));
    at += write_ip(path->frame + at, local, remote, sizeof(udp) + sizeof(probe));
    memcpy(path->frame + at, &udp, sizeof(udp));
    at += sizeof(udp);
    memcpy(path->frame + at, &probe, sizeof(probe));
    path->bytes = (uint32_t)(at + sizeof(probe));
    return 0;
}

void overlay_program_forget_path(struct overlay_program *program, uint32_t number) {
    program->path_probes[number - CHART_OVERLAY_NEIGHBOURS_MAX].bytes = 0;
    *overlay_program_liveness(program, number) = (struct chart_overlay_liveness){0};
}

int overlay_program_set_grant(struct overlay_program *program, uint64_t grant, uint8_t colour) {
    struct bpf_map *map = program->skeleton->maps.overlay_grants;
    uint32_t value = colour;

    if (colour)
        return put(map, &grant, &value);
    return bpf_map_delete_elem(bpf_map__fd(map), &grant) && errno != ENOENT ? -errno : 0;
}

int overlay_program_set_choice(struct overlay_program *program, uint32_t owner, enum chart_overlay_class class,
                               const struct chart_overlay_choice *choice) {
    struct chart_overlay_choice_key key = {.owner = owner, .class = class};
    struct chart_overlay_choice fresh, before;
    struct bpf_map *map = program->skeleton->maps.overlay_choices;

    if (!choice)
        return bpf_map_delete_elem(bpf_map__fd(map), &key) ? -errno : 0;
    fresh = *choice;
    if (bpf_map_lookup_elem(bpf_map__fd(map), &key, &before) == 0)
        fresh.turn = before.turn;
    return put(map, &key, &fresh);
}

/* Have a program send a frame. */
static int send_probe(const struct bpf_program *program, const void *frame, uint32_t bytes) {
    struct bpf_test_run_opts options = {.sz = sizeof(options), .data_in = frame, .data_size_in = bytes, .repeat = 1};
    int error = bpf_prog_test_run_opts(bpf_program__fd(program), &options);

    if (error)
        return error < 0 ? error : -EIO;
    return (int)options.retval == SENT ? 0 : -ENETUNREACH;
}

static int probe_neighbour(const struct overlay_program *program, uint32_t neighbour) {
    struct {
        struct ether_header ethernet;
        struct chart_overlay_probe probe;
        uint8_t padding[PROBE_PADDING_BYTES];
    } __attribute__((packed)) frame = {.ethernet.ether_type = htons(CHART_OVERLAY_PROBE_ETHERTYPE),
                                       .probe = {.version = CHART_OVERLAY_PROBE_VERSION,
                                                 .kind = CHART_OVERLAY_PROBE,
                                                 .number = htons((uint16_t)neighbour)}};

    return send_probe(program->skeleton->progs.overlay_probe, &frame, sizeof(frame));
}

int overlay_program_probe(const struct overlay_program *program, uint32_t number) {
    const struct path_probe *path;

    if (number < CHART_OVERLAY_NEIGHBOURS_MAX)
        return probe_neighbour(program, number);
    path = &program->path_probes[number - CHART_OVERLAY_NEIGHBOURS_MAX];
    return path->bytes ? send_probe(program->skeleton->progs.overlay_probe_path, path->frame, path->bytes)
                       : -ENETUNREACH;
}

struct chart_overlay_counters overlay_program_counters(const struct overlay_program *program) {
    struct chart_overlay_counters counters = {0};
    uint32_t zero = 0;

    (void)bpf_map_lookup_elem(bpf_map__fd(program->skeleton->maps.overlay_counters), &zero, &counters);
    return counters;
}
