/* Options in the headers of IPv4, IPv6 and TCP: where one lies. */
#pragma once

#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_IPV6_PAD1 0
#define OPTIONS_MAX 24   /* that are walked over to find one */
#define OPTION_OCTETS 8u /* that the one looked for has at least */

/* Octets from the IP header to the option of a kind among those in [begin, end), or 0. A function of its own is
 * verified once, whatever the packet went through before. `ipv6`: options have lengths without type and length. */
__attribute__((noinline, weak)) int find_option(struct __sk_buff *skb, __u32 begin, __u32 end, __u32 kind, __u32 ipv6) {
    __u32 at = begin;
    for (int i = 0; i < OPTIONS_MAX && at + OPTION_OCTETS <= end; i++) {
        __u8 head[2];
        if (bpf_skb_load_bytes_relative(skb, at, head, sizeof(head), BPF_HDR_START_NET))
            return 0;
        if (head[0] == (ipv6 ? OPTION_IPV6_PAD1 : OPTION_NOP)) {
            at++;
            continue;
        }
        if (head[0] == kind)
            return (int)at;
        if (!ipv6 && (head[0] == OPTION_END || head[1] < sizeof(head)))
            return 0;
        at += ipv6 ? sizeof(head) + head[1] : head[1];
    }
    return 0;
}
