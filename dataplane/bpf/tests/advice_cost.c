/* What advice costs a packet that has nothing to do with it, in the kernel's test run: a TCP packet without options
 * through a router's link that answers Quick-Start and SCONE, against the same link without; and one of a node's own
 * process while its connections ask, against the same node without. JSON on stdout: the median of ratios of two
 * stretches, one behind the other, and medians in nanoseconds. Needs root. Usage: advice-cost [--json] */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>

#include "quick_start_run.h"

#define ROUNDS 41
#define REPEAT 100000
#define RATE 11

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The kernel tells whole nanoseconds, which are too coarse here. */
static double run_once(bool forwarded, bool advises, bool asks) {
    struct packet packet = ipv4(0, 0, 0);
    struct __sk_buff context = {.ifindex = LOOPBACK, .ingress_ifindex = forwarded ? LOOPBACK : 0};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet.frame, .data_size_in = packet.size, .ctx_in = &context,
                .ctx_size_in = sizeof(context), .repeat = REPEAT);
    packet.frame[packet.size - 20 + 12] = 0x50;
    packet.frame[packet.size - 20 + 13] = 0x10;
    seal(&packet);
    set_up_host(asks ? RATE : 0);
    skeleton->bss->advising_links = advises;
    double begin_ns = now_ns();
    if (bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.classify), &options))
        exit(1);
    return (now_ns() - begin_ns) / REPEAT;
}

static int smaller_first(const void *first, const void *second) {
    double a = *(const double *)first, b = *(const double *)second;
    return a < b ? -1 : a > b;
}

static double median(double *values) {
    qsort(values, ROUNDS, sizeof(*values), smaller_first);
    return values[ROUNDS / 2];
}

static void print(const char *name, bool forwarded, bool advises, bool asks) {
    double without[ROUNDS], with[ROUNDS], ratios[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        /* In turns, and the other way round in the next. */
        if (i % 2)
            with[i] = run_once(forwarded, advises, asks);
        without[i] = run_once(forwarded, false, false);
        if (i % 2 == 0)
            with[i] = run_once(forwarded, advises, asks);
        ratios[i] = with[i] / without[i];
    }
    printf("\"%s\": {\"ratio\": %.4f, \"without_ns\": %.1f, \"with_ns\": %.1f}", name, median(ratios), median(without),
           median(with));
}

int main(void) {
    void *state = NULL;
    if (load(&state)) {
        fputs("advice-cost: the kernel does not take the classifier\n", stderr);
        return 1;
    }
    run_once(true, true, true);
    printf("{");
    print("router", true, true, false);
    printf(", ");
    print("host", false, false, true);
    printf("}\n");
    return unload(&state);
}
