/* Tests of kernel_tc.h on a veth pair in a network namespace of its own (root): the classifiers by links, and by
 * filters as on kernels without tcx. */
#define _GNU_SOURCE
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/kernel_features.h"
#include "core/kernel_tc.h"

#define HAS(direction, what) "tc filter show dev to-bravo " direction " 2>/dev/null | grep -q '" what "'"
#define HAS_CLSACT "tc qdisc show dev to-bravo | grep -q clsact"

static int program = -1;

static bool succeeds(const char *command) {
    return system(command) == 0;
}

static int setup(void **state) {
    /* return TCX_NEXT */
    static const struct bpf_insn instructions[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = -1},
        {.code = BPF_JMP | BPF_EXIT},
    };
    (void)state;
    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0)
        return 0;
    if (!succeeds("ip link add to-bravo type veth peer name peer && ip link set to-bravo up && ip link set peer up"))
        return -1;
    program = bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "pass", "GPL", instructions, 2, NULL);
    return program < 0 ? -1 : 0;
}

/* The interface; whether this kernel's tcx is used. */
static uint32_t interface_with(bool tcx) {
    if (program < 0) {
        print_message("skipped: needs root and network namespaces\n");
        skip();
    }
    ((struct kernel_features *)kernel_features())->tcx = tcx;
    return if_nametoindex("to-bravo");
}

static void a_filter_stands_in_for_a_link(void **state) {
    struct kernel_tc out, in;
    uint32_t ifindex = interface_with(false);
    (void)state;
    assert_int_equal(kernel_attach_tc(program, ifindex, KERNEL_TC_CLASSIFY, &out), 0);
    assert_int_equal(kernel_attach_tc(program, ifindex, KERNEL_TC_POLICE, &in), 0);
    assert_true(succeeds(HAS("egress", "pref 60000 bpf.*handle 0xc4a7 chart-classify direct-action")));
    assert_true(succeeds(HAS("ingress", "pref 100 bpf.*handle 0xc4a7 chart-police direct-action")));
    kernel_detach_tc(&out);
    assert_true(succeeds(HAS_CLSACT));
    kernel_detach_tc(&in);
    assert_false(succeeds(HAS_CLSACT));
    kernel_detach_tc(&in);
}

static void what_a_killed_agent_left_is_replaced_and_removed(void **state) {
    struct kernel_tc first, again, in;
    uint32_t ifindex = interface_with(false);
    (void)state;
    assert_int_equal(kernel_attach_tc(program, ifindex, KERNEL_TC_SIGNAL_OUT, &first), 0);
    assert_int_equal(kernel_attach_tc(program, ifindex, KERNEL_TC_SIGNAL_OUT, &again), 0);
    assert_int_equal(kernel_attach_tc(program, ifindex, KERNEL_TC_SIGNAL_IN, &in), 0);
    assert_int_equal(kernel_clean_tc(), 2);
    assert_false(succeeds(HAS_CLSACT));
    assert_int_equal(kernel_clean_tc(), 0);
}

static void the_filters_of_others_stay(void **state) {
    struct kernel_tc out;
    uint32_t ifindex = interface_with(false);
    (void)state;
    assert_true(succeeds("tc qdisc add dev to-bravo clsact && tc filter add dev to-bravo egress pref 7 protocol ip u32 "
                         "match u32 0 0 flowid 1:1"));
    assert_int_equal(kernel_attach_tc(program, ifindex, KERNEL_TC_CLASSIFY, &out), 0);
    assert_int_equal(kernel_clean_tc(), 1);
    assert_true(succeeds(HAS("egress", "pref 7 u32")));
    kernel_detach_tc(&out);
    assert_true(succeeds(HAS("egress", "pref 7 u32")));
    assert_true(succeeds("tc qdisc del dev to-bravo clsact"));
}

static void a_link_leaves_no_filter(void **state) {
    struct kernel_tc out;
    uint32_t ifindex = interface_with(true);
    (void)state;
    assert_int_equal(kernel_attach_tc(program, ifindex, KERNEL_TC_CLASSIFY, &out), 0);
    assert_true(out.fd >= 0);
    assert_false(succeeds(HAS_CLSACT));
    assert_int_equal(kernel_clean_tc(), 0);
    kernel_detach_tc(&out);
}

static void what_cannot_be_attached_is_told(void **state) {
    struct kernel_tc none;
    interface_with(false);
    (void)state;
    assert_int_equal(kernel_attach_tc(program, 4242, KERNEL_TC_CLASSIFY, &none), -ENODEV);
    kernel_detach_tc(&none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filter_stands_in_for_a_link),
        cmocka_unit_test(what_a_killed_agent_left_is_replaced_and_removed),
        cmocka_unit_test(the_filters_of_others_stay),
        cmocka_unit_test(a_link_leaves_no_filter),
        cmocka_unit_test(what_cannot_be_attached_is_told),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
