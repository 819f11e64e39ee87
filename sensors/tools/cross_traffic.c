/* cross-traffic: UDP packets at Poisson moments, alone or in bursts, for judging sensors in the lab. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "failure.h"
#include "options.h"
#include "pacing.h"

#define NS_PER_S 1000000000.0
#define IP_UDP_BYTES 28u

struct parameters {
    struct common_parameters common;
    double rate_bps;
    double burst;
    uint64_t packet_bytes;
    double duration_s;
    uint64_t seed;
};

#define FIELD(name) offsetof(struct parameters, name)
static const struct option_spec SPECS[] = {
    {"rate-bps", OPTION_NUMBER, OPTION_COMMAND_LINE, FIELD(rate_bps), 1e3, 1e10, "BPS", "mean rate of IP packets"},
    {"burst", OPTION_NUMBER, OPTION_COMMAND_LINE, FIELD(burst), 1, 1000, "N",
     "mean packets of a burst, geometric; 1 is Poisson traffic (1)"},
    {"packet-bytes", OPTION_UNSIGNED, OPTION_COMMAND_LINE, FIELD(packet_bytes), 64, 1500, "N",
     "size of the IP packets (1500)"},
    {"duration-s", OPTION_NUMBER, OPTION_COMMAND_LINE, FIELD(duration_s), 0.1, 86400, "S", "how long (60)"},
    {"seed", OPTION_UNSIGNED, OPTION_COMMAND_LINE, FIELD(seed), 0, 1e9, "N", "of chance (1)"},
};
static const struct option_table TABLE = {
    .program = "cross-traffic",
    .synopsis = "--destination ADDRESS --rate-bps BPS [options]",
    .description = "Send UDP packets that nobody answers, to the discard port.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
    .common = OPTIONS_DESTINATION,
};

static void wait_until(int64_t at_ns) {
    struct timespec until = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* Before the sensors, which wait in a loop at PACING_PRIORITY while they probe: behind them this traffic would come to
 * a halt for just as long and leave in one burst afterwards, and the link would look idle to every sensor. */
static void come_first(void) {
    struct sched_param wanted = {.sched_priority = PACING_PRIORITY + 1};

    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &wanted) < 0)
        fprintf(stderr, "cross-traffic: no real-time priority (%s); sensors on this machine hold it up\n",
                strerror(errno));
}

static int run(const struct parameters *parameters, struct failure *failure) {
    double mean_ns = 8.0 * (double)parameters->packet_bytes * parameters->burst / parameters->rate_bps * NS_PER_S;
    unsigned short chance[3] = {(unsigned short)parameters->seed, (unsigned short)(parameters->seed >> 16), 77};
    size_t length = parameters->packet_bytes - IP_UDP_BYTES;
    uint8_t bytes[1500] = {0};
    union address destination;
    double at_ns, end_ns;
    int descriptor;

    if (address_resolve(parameters->common.destination, 9, &destination, failure) < 0)
        return -1;
    if (parameters->rate_bps <= 0)
        return failure_set(failure, FAILURE_USAGE, "--rate-bps is missing");
    descriptor = socket(destination.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return failure_from_errno(failure, errno, "UDP socket");
    pacing_prepare();
    come_first();
    at_ns = (double)pacing_now_ns();
    end_ns = at_ns + parameters->duration_s * NS_PER_S;
    while (at_ns < end_ns) {
        unsigned packets = 1;

        while (parameters->burst > 1 && erand48(chance) > 1 / parameters->burst)
            packets++;
        at_ns += -log(1 - erand48(chance)) * mean_ns;
        wait_until((int64_t)at_ns);
        for (; packets > 0; packets--)
            /* What the device does not take is less traffic, which the emulator's account shows. */
            (void)sendto(descriptor, bytes, length, 0, &destination.any, address_length(&destination));
    }
    close(descriptor);
    return 0;
}

int main(int argc, char **argv) {
    struct parameters parameters = {.burst = 1, .packet_bytes = 1500, .duration_s = 60, .seed = 1};
    struct failure failure = {0};
    int result = options_read_arguments(&TABLE, argc, argv, &parameters, &failure);

    if (result == OPTIONS_HELP)
        return 0;
    if (result == OPTIONS_READ)
        result = run(&parameters, &failure);
    if (result < 0) {
        fprintf(stderr, "cross-traffic: %s\n", failure.message);
        return failure.kind;
    }
    return 0;
}
