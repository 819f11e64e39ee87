/* overlay: routes packets between overlay nodes in the kernel (Bavier et al., Increasing TCP Throughput with an
 * Enhanced Internet Control Plane, sections I and II).
 *
 * overlay_enter: on the ingress of this node's interfaces; overlay_originate: on their egress, for what the node itself
 * sends. A packet to a prefix that an overlay node owns is taken from the kernel's way and handed to the VXLAN device
 * with the addresses of an overlay link. Without this program it goes on as the kernel routes it.
 *
 * overlay_receive: on the ingress of the VXLAN device. Passes on, hands over what is for this node, and reflects
 * neighbours' probes. overlay_send: on its egress; takes packets of this node that no other route than that into the
 * device was left for. overlay_probe and overlay_probe_path: send a probe to a neighbour, or along a path, when the
 * agent says so.
 *
 * Where several paths lead to an owner, a flow takes the best for its class with its first packet and keeps it; it
 * moves when the path fails or the agent says that flows leave it (section III: flow-state-aware routing).
 */
#include "header_options.bpf.h"
#include "lib/advice/quick_start.h"
#include "marks.h"
#include "overlay_flows.bpf.h"
#include "overlay_packet.bpf.h"
#include "overlay_state.bpf.h"
#include "overlay_too_big.bpf.h"
#include "qos_types.h"

char LICENSE[] SEC("license") = "GPL";

#define PACKET_HOST 0
#define IPV4_PREFIX_BITS 96
#define OUTER_HOPS 64
/* RFC 7348, section 5. */
#define VXLAN_HAS_VNI 0x08000000
/* IPv4, UDP, VXLAN and Ethernet in front of a packet. */
#define OUTER_BYTES 50
/* Neither is an address of anybody's device, so no device takes a frame for its own or for one of its own sending. */
#define OVERLAY_TO {0x02, 'C', 'H', 'A', 'R', 0x02}
#define OVERLAY_FROM {0x02, 'C', 'H', 'A', 'R', 0x01}
#define RTT_SHIFT 3
#define VARIATION_SHIFT 2
#define NOT_TAKEN -2
#define ADMITTED -3

/* The neighbour that a packet for this owner goes to; 0: none is known. Back to where it came from only when nobody
 * else is left, and the first stays when nobody at all answers. `route`: the VNI's bits of colour and strictness; a
 * strict packet goes to the first or nowhere. Checked by the kernel by itself, so that what calls it stays small for
 * it. */
__noinline int overlay_pick(__u32 owner, __u32 route, __u32 arrived_from) {
    __u32 colour = route & (CHART_OVERLAY_COLOURS - 1);
    struct chart_overlay_path_key key = {.owner = owner, .colour = colour};
    const struct chart_overlay_path *path = bpf_map_lookup_elem(&overlay_paths, &key);
    __u32 first = 0;
    bool back = false;
    if (route & CHART_OVERLAY_STRICT)
        return path && alive(path->hops[0]) ? (int)path->hops[0] : 0;
    if (!path && colour) {
        key.colour = 0;
        path = bpf_map_lookup_elem(&overlay_paths, &key);
    }
    if (!path)
        return 0;
    for (int i = 0; i < CHART_OVERLAY_HOPS_MAX; i++) {
        __u32 neighbour = path->hops[i];
        if (!neighbour)
            break;
        if (neighbour == arrived_from) {
            back = true;
            continue;
        }
        if (alive(neighbour)) {
            if (first || back)
                COUNT(detours);
            return (int)neighbour;
        }
        if (!first)
            first = neighbour;
    }
    if (back && alive(arrived_from)) {
        COUNT(detours);
        return (int)arrived_from;
    }
    COUNT(all_stale);
    return (int)(first ? first : back ? arrived_from : 0);
}

static __always_inline bool address_outer(struct __sk_buff *skb, __u32 neighbour, __u32 vni, __u8 traffic_class) {
    const struct chart_overlay_neighbour *to = bpf_map_lookup_elem(&overlay_neighbours, &neighbour);
    struct bpf_tunnel_key key = {.tunnel_id = vni, .tunnel_tos = traffic_class};
    if (!to || !to->used)
        return false;
    key.tunnel_ttl = to->direct ? 1 : OUTER_HOPS;
    if (to->family == AF_INET6) {
        __builtin_memcpy(key.remote_ipv6, to->remote, sizeof(key.remote_ipv6));
        __builtin_memcpy(key.local_ipv6, to->local, sizeof(key.local_ipv6));
        return !bpf_skb_set_tunnel_key(skb, &key, sizeof(key), BPF_F_TUNINFO_IPV6);
    }
    key.remote_ipv4 = bpf_ntohl(to->remote[3]);
    key.local_ipv4 = bpf_ntohl(to->local[3]);
    return !bpf_skb_set_tunnel_key(skb, &key, sizeof(key), BPF_F_ZERO_CSUM_TX);
}

static __always_inline void write_ethernet(struct __sk_buff *skb, __be16 protocol) {
    struct ethhdr header = {.h_dest = OVERLAY_TO, .h_source = OVERLAY_FROM, .h_proto = protocol};
    bpf_skb_store_bytes(skb, 0, &header, sizeof(header), 0);
}

/* Give a packet with an Ethernet header to a neighbour. Whether that is possible. */
static __always_inline bool dispatch(struct __sk_buff *skb, __u32 neighbour, __u32 vni, __u8 traffic_class) {
    if (!address_outer(skb, neighbour, vni, traffic_class)) {
        COUNT(faults);
        return false;
    }
    count_forwarded(neighbour, skb->len - ETH_HLEN);
    return true;
}

/* What stands between the outer IPv4 header and the inner packet. */
struct vxlan_headers {
    struct udphdr udp;
    __be32 flags;
    __be32 vni;
    struct ethhdr ethernet;
} __attribute__((packed));

/* Whether a packet of so many octets of IP may leave by an interface without the device: over IPv4, to the neighbour on
 * it. */
static __always_inline bool goes_directly(const struct chart_overlay_neighbour *to, __u32 bytes) {
    return to->used && to->direct && to->ifindex && to->family == AF_INET && bytes <= to->mtu;
}

/* Send an outer packet out of an interface, to this neighbour on it; so many octets are in front of its IP header. */
static __always_inline int transmit(struct __sk_buff *skb, __u32 link_header_bytes,
                                    const struct chart_overlay_neighbour *to) {
    struct bpf_redir_neigh next = {.nh_family = AF_INET, .ipv4_nh = to->remote[3]};
    __u32 ifindex = to->ifindex;
    const __u32 *header_bytes = bpf_map_lookup_elem(&overlay_interfaces, &ifindex);
    if (!header_bytes)
        return TCX_DROP;
    if (!*header_bytes)
        return bpf_redirect(ifindex, 0);
    if (!link_header_bytes) {
        if (bpf_skb_change_head(skb, ETH_HLEN, 0))
            return TCX_DROP;
        write_ethernet(skb, skb->protocol);
    }
    return bpf_redirect_neigh(ifindex, &next, sizeof(next), 0);
}

/* Whether the only thing that a packet's options say to routers is a Quick-Start request or a report of one. */
static __always_inline bool asks_quick_start(struct __sk_buff *skb, const struct overlay_packet *packet) {
    __u32 begin = packet->ipv6 ? IPV6_BYTES + 2 : IPV4_BYTES, end = packet->transport;
    __u8 length = 0;
    if (packet->ipv6) {
        if (bpf_skb_load_bytes(skb, packet->link_header_bytes + IPV6_BYTES + 1, &length, sizeof(length)))
            return false;
        end = IPV6_BYTES + 8 + 8 * (__u32)length;
    }
    return find_option(skb, begin, end, packet->ipv6 ? CHART_QS_IPV6 : CHART_QS_IPV4, packet->ipv6) &&
           !find_option(skb, begin, end, packet->ipv6 ? CHART_IPV6_OPTION_TYPE : CHART_IPV4_OPTION_TYPE, packet->ipv6);
}

/* Where a packet that enters goes. */
struct entrance {
    __u32 neighbour;
    __u32 vni;
};

/* Find the neighbour for a packet that is to enter here and make the packet fit. The verdict when it is not to go on:
 * NOT_TAKEN, or where its sender's answer goes. `forwarded`: it came from outside. */
static __always_inline int admit(struct __sk_buff *skb, const struct chart_overlay_config *config,
                                 const struct overlay_packet *packet, bool forwarded, struct entrance *ret) {
    __u32 ifindex = skb->ifindex, owner = find_owner(packet->destination), number, class, colour;
    struct chart_overlay_remote outer;
    /* The last hop of what is passed on is the kernel's to refuse. */
    if (!owner || owner == CHART_OVERLAY_SELF || (forwarded && packet->hops_left <= 1))
        return NOT_TAKEN;
    __builtin_memcpy(outer.address, packet->destination, sizeof(outer.address));
    /* Outer packets would go round for ever if somebody owned a neighbour's address on a link. */
    if (bpf_map_lookup_elem(&overlay_remotes, &outer) || overlay_has_port(skb, packet, config->sensor_port))
        return NOT_TAKEN;
    class = class_of(packet->traffic_class);
    /* Signals are for the elements on the kernel's path; who asks by Quick-Start asks the path that its data takes. */
    if (packet->options && !asks_quick_start(skb, packet)) {
        bind_signalled(skb, packet, owner, class);
        return NOT_TAKEN;
    }
    if (overlay_has_port(skb, packet, CHART_SHIM_PORT))
        return NOT_TAKEN;
    colour = colour_of(skb, config, packet, owner, class, &number);
    ret->neighbour = overlay_pick(owner, colour, 0);
    ret->vni = class << CHART_OVERLAY_CLASS_SHIFT | colour;
    if (!ret->neighbour) {
        COUNT(no_path);
        return NOT_TAKEN;
    }
    if (overlay_clamp_segment(skb, packet, config->mtu))
        COUNT(clamped);
    if (packet->dont_fragment && overlay_sent_bytes(skb, packet) > config->mtu) {
        if (!overlay_too_big(skb, packet, config->mtu)) {
            COUNT(faults);
            return TCX_DROP;
        }
        COUNT(too_big);
        return bpf_redirect(ifindex, forwarded ? 0 : BPF_F_INGRESS);
    }
    COUNT(entered);
    if (number)
        count_forwarded(number, packet->bytes);
    return ADMITTED;
}

/* An outer packet whose inner one only passes through: new addresses outside, one hop fewer inside, and out again.
 * NOT_TAKEN: it takes the long way, through the device. */
static __always_inline int relay(struct __sk_buff *skb, const struct chart_overlay_config *config,
                                 const struct overlay_packet *outer) {
    __u32 at = outer->link_header_bytes + IPV4_BYTES, owner, next;
    const struct chart_overlay_neighbour *to;
    struct chart_overlay_remote remote;
    struct overlay_packet inner = {};
    struct vxlan_headers headers;
    __be32 addresses[2];
    const __u32 *from;
    if (outer->ipv6 || outer->protocol != IPPROTO_UDP || outer->transport != IPV4_BYTES ||
        bpf_skb_load_bytes(skb, at, &headers, sizeof(headers)) || bpf_ntohs(headers.udp.dest) != config->port ||
        headers.udp.check || headers.flags != bpf_htonl(VXLAN_HAS_VNI))
        return NOT_TAKEN;
    __builtin_memcpy(remote.address, outer->source, sizeof(remote.address));
    from = bpf_map_lookup_elem(&overlay_remotes, &remote);
    if (!from || !overlay_read_packet(skb, at + sizeof(headers), headers.ethernet.h_proto, &inner) ||
        inner.hops_left <= 1)
        return NOT_TAKEN;
    owner = find_owner(inner.destination);
    next = owner && owner != CHART_OVERLAY_SELF
               ? overlay_pick(owner, bpf_ntohl(headers.vni) >> 8 & CHART_OVERLAY_ROUTE_BITS, *from)
               : 0;
    to = bpf_map_lookup_elem(&overlay_neighbours, &next);
    if (!next || !to || !goes_directly(to, overlay_sent_bytes(skb, &inner) + OUTER_BYTES))
        return NOT_TAKEN;
    overlay_spend_hop(skb, &inner);
    addresses[0] = to->local[3];
    addresses[1] = to->remote[3];
    at = outer->link_header_bytes;
    bpf_l3_csum_replace(skb, at + offsetof(struct iphdr, check), outer->source[3], addresses[0], sizeof(__be32));
    bpf_l3_csum_replace(skb, at + offsetof(struct iphdr, check), outer->destination[3], addresses[1], sizeof(__be32));
    bpf_skb_store_bytes(skb, at + offsetof(struct iphdr, saddr), addresses, sizeof(addresses), 0);
    count_forwarded(next, inner.bytes);
    COUNT(transit);
    COUNT(relayed);
    return transmit(skb, outer->link_header_bytes, to);
}

/* Take a packet into the overlay that another interface has. */
static __always_inline int take(struct __sk_buff *skb, bool forwarded) {
    const struct chart_overlay_config *config = configuration();
    __u32 ifindex = skb->ifindex;
    struct overlay_packet packet = {};
    struct entrance to = {};
    const __u32 *link_header_bytes = bpf_map_lookup_elem(&overlay_interfaces, &ifindex);
    int verdict;
    if (!config || !link_header_bytes || !overlay_read_packet(skb, *link_header_bytes, skb->protocol, &packet))
        return TCX_NEXT;
    verdict = admit(skb, config, &packet, forwarded, &to);
    if (verdict == NOT_TAKEN && forwarded)
        verdict = relay(skb, config, &packet);
    if (verdict != ADMITTED)
        return verdict == NOT_TAKEN ? TCX_NEXT : verdict;
    if (forwarded) {
        overlay_spend_hop(skb, &packet);
        if (packet.options)
            skb->mark = CHART_MARK_FORWARDED;
    }
    if (!packet.link_header_bytes && bpf_skb_change_head(skb, ETH_HLEN, 0)) {
        COUNT(faults);
        return TCX_DROP;
    }
    write_ethernet(skb, skb->protocol);
    return dispatch(skb, to.neighbour, to.vni, packet.traffic_class) ? bpf_redirect(config->ifindex, 0) : TCX_DROP;
}

SEC("tc")
int overlay_enter(struct __sk_buff *skb) {
    return take(skb, true);
}

SEC("tc")
int overlay_originate(struct __sk_buff *skb) {
    return take(skb, false);
}

/* The neighbour that a packet out of the VXLAN device came from; 0: a stranger. */
static __always_inline __u32 find_neighbour(struct __sk_buff *skb, __u32 *ret_vni) {
    struct bpf_tunnel_key key = {};
    struct chart_overlay_remote remote = {};
    const __u32 *neighbour;
    if (!bpf_skb_get_tunnel_key(skb, &key, sizeof(key), 0)) {
        overlay_map_ipv4(remote.address, bpf_htonl(key.remote_ipv4));
    } else {
        if (bpf_skb_get_tunnel_key(skb, &key, sizeof(key), BPF_F_TUNINFO_IPV6))
            return 0;
        __builtin_memcpy(remote.address, key.remote_ipv6, sizeof(remote.address));
    }
    *ret_vni = key.tunnel_id;
    neighbour = bpf_map_lookup_elem(&overlay_remotes, &remote);
    return neighbour ? *neighbour : 0;
}

static __always_inline void smooth(struct chart_overlay_liveness *liveness, __u64 rtt_ns) {
    __u64 before_ns = liveness->rtt_ns;
    __u64 off_ns = before_ns > rtt_ns ? before_ns - rtt_ns : rtt_ns - before_ns;
    if (!before_ns) {
        liveness->rtt_ns = rtt_ns;
        liveness->rtt_variation_ns = rtt_ns / 2;
        return;
    }
    liveness->rtt_variation_ns += (off_ns >> VARIATION_SHIFT) - (liveness->rtt_variation_ns >> VARIATION_SHIFT);
    liveness->rtt_ns += (rtt_ns >> RTT_SHIFT) - (before_ns >> RTT_SHIFT);
}

/* An answer to one of this node's probes. Whether it is one. */
static __always_inline bool take_answer(const struct chart_overlay_config *config,
                                        const struct chart_overlay_probe *probe, __u32 number) {
    struct chart_overlay_liveness *liveness = bpf_map_lookup_elem(&overlay_liveness, &number);
    __u64 sequence = bpf_be64_to_cpu(probe->sequence), now_ns = bpf_ktime_get_ns();
    __u64 sent_ns = bpf_be64_to_cpu(probe->sent_ns);
    if (!liveness || bpf_ntohs(probe->number) != number || bpf_be64_to_cpu(probe->session) != config->session ||
        !sequence || sequence > liveness->sent || sent_ns > now_ns)
        return false;
    __sync_fetch_and_add(&liveness->answers, 1);
    if (sequence <= liveness->answered)
        return true;
    liveness->answered = sequence;
    liveness->answered_sent_ns = sent_ns;
    smooth(liveness, now_ns - sent_ns);
    return true;
}

static __always_inline int take_probe(struct __sk_buff *skb, const struct chart_overlay_config *config, __u32 neighbour,
                                      __u32 vni) {
    struct chart_overlay_probe probe;
    __u8 kind = CHART_OVERLAY_ANSWER;
    if (bpf_skb_load_bytes(skb, ETH_HLEN, &probe, sizeof(probe)) || probe.version != CHART_OVERLAY_PROBE_VERSION)
        goto bad;
    if (probe.kind == CHART_OVERLAY_ANSWER) {
        if (!take_answer(config, &probe, neighbour))
            goto bad;
        return TCX_DROP;
    }
    if (probe.kind != CHART_OVERLAY_PROBE)
        goto bad;
    bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct chart_overlay_probe, kind), &kind, sizeof(kind), 0);
    write_ethernet(skb, bpf_htons(CHART_OVERLAY_PROBE_ETHERTYPE));
    if (!address_outer(skb, neighbour, vni, 0))
        goto bad;
    return bpf_redirect(config->ifindex, 0);
bad:
    COUNT(bad_probes);
    return TCX_DROP;
}

/* What a packet to one of this node's addresses says if it is a path's probe; 0: it is none. Where it stands. */
static __always_inline __u32 find_path_probe(struct __sk_buff *skb, const struct chart_overlay_config *config,
                                             const struct overlay_packet *packet, struct chart_overlay_probe *ret) {
    __u32 at = packet->link_header_bytes + packet->transport;
    struct udphdr udp;
    if (packet->protocol != IPPROTO_UDP || !packet->transport || bpf_skb_load_bytes(skb, at, &udp, sizeof(udp)) ||
        udp.dest != bpf_htons(config->port) || udp.source != udp.dest)
        return 0;
    at += sizeof(udp);
    if (bpf_skb_load_bytes(skb, at, ret, sizeof(*ret)) || ret->version != CHART_OVERLAY_PROBE_VERSION ||
        (ret->kind != CHART_OVERLAY_PATH_PROBE && ret->kind != CHART_OVERLAY_PATH_ANSWER))
        return 0;
    return at;
}

static __always_inline __u32 path_route(const struct chart_overlay_probe *probe) {
    return (bpf_ntohl(probe->colour) & (CHART_OVERLAY_COLOURS - 1)) | CHART_OVERLAY_STRICT;
}

/* Source and destination change places, which leaves every checksum as it is. */
static __always_inline void turn_round(struct __sk_buff *skb, const struct overlay_packet *packet) {
    __u32 at = packet->link_header_bytes;
    if (packet->ipv6) {
        bpf_skb_store_bytes(skb, at + offsetof(struct ipv6hdr, saddr), packet->destination, 16, 0);
        bpf_skb_store_bytes(skb, at + offsetof(struct ipv6hdr, daddr), packet->source, 16, 0);
    } else {
        bpf_skb_store_bytes(skb, at + offsetof(struct iphdr, saddr), &packet->destination[3], 4, 0);
        bpf_skb_store_bytes(skb, at + offsetof(struct iphdr, daddr), &packet->source[3], 4, 0);
    }
}

/* Strictly by the same colour, or as packets of colour 0 where this node has no path of it: a colour stands for a path
 * in one direction, and there may be none for the other. */
static __always_inline __u32 route_back(__u32 owner, __u32 route) {
    struct chart_overlay_path_key key = {.owner = owner, .colour = route & (CHART_OVERLAY_COLOURS - 1)};
    return bpf_map_lookup_elem(&overlay_paths, &key) ? route : 0;
}

static __always_inline int take_path_probe(struct __sk_buff *skb, const struct chart_overlay_config *config,
                                           const struct overlay_packet *packet, const struct chart_overlay_probe *probe,
                                           __u32 at) {
    __u32 number = bpf_ntohs(probe->number), route = path_route(probe);
    __u32 owner = find_owner(packet->source), neighbour;
    __u8 kind = CHART_OVERLAY_PATH_ANSWER;
    if (probe->kind == CHART_OVERLAY_PATH_ANSWER) {
        if (number < CHART_OVERLAY_NEIGHBOURS_MAX || !take_answer(config, probe, number))
            COUNT(bad_probes);
        return TCX_DROP;
    }
    if (!owner || owner == CHART_OVERLAY_SELF)
        return TCX_DROP;
    route = route_back(owner, route);
    neighbour = overlay_pick(owner, route, 0);
    if (!neighbour)
        return TCX_DROP;
    turn_round(skb, packet);
    bpf_skb_store_bytes(skb, at + offsetof(struct chart_overlay_probe, kind), &kind, sizeof(kind), 0);
    return dispatch(skb, neighbour, route, packet->traffic_class) ? bpf_redirect(config->ifindex, 0) : TCX_DROP;
}

SEC("tc")
int overlay_receive(struct __sk_buff *skb) {
    const struct chart_overlay_config *config = configuration();
    struct overlay_packet packet = {};
    struct chart_overlay_probe probe;
    __u32 vni = 0, neighbour, next, owner, probe_at;
    if (!config)
        return TCX_DROP;
    neighbour = find_neighbour(skb, &vni);
    if (!neighbour) {
        COUNT(strangers);
        return TCX_DROP;
    }
    if (skb->protocol == bpf_htons(CHART_OVERLAY_PROBE_ETHERTYPE))
        return take_probe(skb, config, neighbour, vni);
    if (!overlay_read_packet(skb, ETH_HLEN, skb->protocol, &packet)) {
        COUNT(faults);
        return TCX_DROP;
    }
    owner = find_owner(packet.destination);
    if (owner == CHART_OVERLAY_SELF && (probe_at = find_path_probe(skb, config, &packet, &probe)))
        return take_path_probe(skb, config, &packet, &probe, probe_at);
    next = owner && owner != CHART_OVERLAY_SELF ? overlay_pick(owner, vni & CHART_OVERLAY_ROUTE_BITS, neighbour) : 0;
    if (!next && vni & CHART_OVERLAY_STRICT)
        return TCX_DROP;
    if (!next || packet.hops_left <= 1) {
        if (owner == CHART_OVERLAY_SELF)
            COUNT(left);
        else if (!next)
            COUNT(no_path);
        /* For this node, or for its kernel to route or to refuse. */
        return bpf_skb_change_type(skb, PACKET_HOST) ? TCX_DROP : TCX_NEXT;
    }
    overlay_spend_hop(skb, &packet);
    if (packet.options)
        skb->mark = CHART_MARK_FORWARDED;
    COUNT(transit);
    return dispatch(skb, next, vni, packet.traffic_class) ? bpf_redirect(config->ifindex, 0) : TCX_DROP;
}

/* There is one prober. Counted before it goes: its answer may be faster than this. */
static __always_inline void number_probe(const struct chart_overlay_config *config,
                                         struct chart_overlay_liveness *liveness, struct chart_overlay_probe *probe) {
    probe->session = bpf_cpu_to_be64(config->session);
    probe->sequence = bpf_cpu_to_be64(++liveness->sent);
    probe->sent_ns = bpf_cpu_to_be64(bpf_ktime_get_ns());
}

/* Run by the agent for each probe (BPF_PROG_TEST_RUN, which needs no right to send raw packets). The verdict is the
 * agent's to see: TCX_DROP, nothing was sent. */
SEC("tc")
int overlay_probe(struct __sk_buff *skb) {
    const struct chart_overlay_config *config = configuration();
    struct chart_overlay_liveness *liveness;
    struct chart_overlay_probe probe;
    __u32 neighbour;
    if (!config || bpf_skb_load_bytes(skb, ETH_HLEN, &probe, sizeof(probe)))
        return TCX_DROP;
    neighbour = bpf_ntohs(probe.number);
    liveness = bpf_map_lookup_elem(&overlay_liveness, &neighbour);
    if (!liveness || !address_outer(skb, neighbour, 0, 0))
        return TCX_DROP;
    number_probe(config, liveness, &probe);
    bpf_skb_store_bytes(skb, ETH_HLEN, &probe, sizeof(probe), 0);
    write_ethernet(skb, bpf_htons(CHART_OVERLAY_PROBE_ETHERTYPE));
    return bpf_clone_redirect(skb, config->ifindex, 0) ? TCX_DROP : TCX_NEXT;
}

/* The same for a path, from end to end: a whole datagram from an address of this node to one of the owner's. One that
 * cannot leave is unanswered. */
SEC("tc")
int overlay_probe_path(struct __sk_buff *skb) {
    const struct chart_overlay_config *config = configuration();
    struct chart_overlay_liveness *liveness;
    struct overlay_packet packet = {};
    struct chart_overlay_probe probe;
    __u32 number, owner, neighbour, route, at;
    if (!config || !overlay_read_packet(skb, ETH_HLEN, skb->protocol, &packet) ||
        !(at = find_path_probe(skb, config, &packet, &probe)))
        return TCX_DROP;
    number = bpf_ntohs(probe.number);
    route = path_route(&probe);
    owner = find_owner(packet.destination);
    liveness = bpf_map_lookup_elem(&overlay_liveness, &number);
    neighbour = owner && owner != CHART_OVERLAY_SELF ? overlay_pick(owner, route, 0) : 0;
    if (!liveness)
        return TCX_DROP;
    number_probe(config, liveness, &probe);
    if (!neighbour || !address_outer(skb, neighbour, route, 0))
        return TCX_DROP;
    bpf_skb_store_bytes(skb, at, &probe, sizeof(probe), 0);
    write_ethernet(skb, skb->protocol);
    return bpf_clone_redirect(skb, config->ifindex, 0) ? TCX_DROP : TCX_NEXT;
}

static __always_inline bool is_addressed(struct __sk_buff *skb) {
    struct bpf_tunnel_key key;
    return !bpf_skb_get_tunnel_key(skb, &key, sizeof(key), 0) ||
           !bpf_skb_get_tunnel_key(skb, &key, sizeof(key), BPF_F_TUNINFO_IPV6);
}

/* What has its outer addresses goes on: it was forwarded, or is a probe. Else the kernel had no other route for a
 * packet of this node than the one into the overlay. */
SEC("tc")
int overlay_send(struct __sk_buff *skb) {
    const struct chart_overlay_config *config = configuration();
    struct overlay_packet packet = {};
    struct entrance to = {};
    int verdict;
    if (is_addressed(skb))
        return TCX_NEXT;
    if (!config || !overlay_read_packet(skb, ETH_HLEN, skb->protocol, &packet))
        return TCX_DROP;
    verdict = admit(skb, config, &packet, false, &to);
    if (verdict != ADMITTED)
        return verdict == NOT_TAKEN ? TCX_DROP : verdict;
    write_ethernet(skb, skb->protocol);
    return dispatch(skb, to.neighbour, to.vni, packet.traffic_class) ? TCX_NEXT : TCX_DROP;
}
