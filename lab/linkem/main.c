/* linkem: emulates one bidirectional link between two TUN devices, each in a network namespace of its own.
 *
 * It is the "nominal 100 Mb/sec capacity link" with loss and delay of Brassil et al., The CHART System, section 7.
 * One thread waits with ppoll until spin_us before the next departure and spins the rest; an idle link costs nothing.
 * With coalesce_us a link that carries many packets for long wakes up once in that time and lets all pass that are due:
 * up to that much later than they should, for a fraction of the processor's time.
 * With --realtime the memory is locked, and while packets come the processors do not go to sleep (PM QoS, see
 * Documentation/power/pm_qos_interface.rst of the kernel): waking one takes 50 to 100 us on a virtual machine, which
 * every packet on an otherwise idle link would be late by.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "control.h"
#include "device.h"
#include "json.h"

#define NS_PER_S 1000000000ULL
#define READ_BATCH 32
/* A departure so much too late says that the emulator was away; at most so many packets are read after it at once. */
#define AWAY_NS 300000ULL
#define LATE_BATCH 2048
/* When a departure is closer than this the loop only looks at the clock. */
#define QUIET_NS 3000ULL
/* A realtime thread that never sleeps starves its core until the kernel stops it for 50 ms of every second. So time is
 * looked at in windows: after one with too little sleep the next one does without spinning, and after REST_WINDOWS with
 * hardly any the thread rests for a moment. */
#define WINDOW_NS 1000000ULL
#define SLEEP_SHARE_TO_SPIN 0.15
#define REST_WINDOWS 5
#define REST_SHARE 0.1
#define REST_NS 500000L
/* A link is busy from this many packets per second on, over about LOAD_WINDOWS; a probe train is too short for that. */
#define BUSY_PACKETS_PER_S 6000.0
#define LOAD_WINDOWS 64
/* Processors stay awake for so long after a packet: trains of probes are tens of milliseconds apart. */
#define AWAKE_NS 100000000ULL
#define LATENCY_DEVICE "/dev/cpu_dma_latency"

struct options {
    const char *left, *right, *control_path, *series_path;
    const char *parameters[3]; /* both, forward, reverse */
    uint64_t seed, spin_us, coalesce_us, series_interval_ms;
    int mtu, queue_packets;
    bool realtime;
};

struct emulator {
    struct link link;
    struct control control;
    int left, right;
    FILE *series;
    uint64_t series_interval_ns, series_next_ns;
    uint64_t window_start_ns, window_slept_ns, period_slept_ns;
    unsigned period_windows;
    uint64_t spin_ns; /* of the current window: the link's, or 0 */
    uint64_t coalesce_ns, window_packets;
    double packets_per_s;
    bool busy;   /* many packets for long, and the link coalesces */
    bool exact;  /* processors are kept awake while packets come */
    int latency; /* open while they are */
    uint64_t last_packet_ns;
};

static volatile sig_atomic_t stop_requested;

static void request_stop(int signal_number) {
    (void)signal_number;
    stop_requested = 1;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static int write_packet(void *context, const struct packet *packet) {
    int descriptor = *(int *)context;
    return write(descriptor, packet->data, packet->length) < 0 ? -errno : 0;
}

/* The kernel keeps its promise of latency for as long as the descriptor is open. */
static void stay_awake(struct emulator *emulator) {
    static const int32_t none_us = 0;
    emulator->latency = open(LATENCY_DEVICE, O_WRONLY | O_CLOEXEC);
    if (emulator->latency >= 0 && write(emulator->latency, &none_us, sizeof(none_us)) == sizeof(none_us))
        return;
    fprintf(stderr,
            "linkem: cannot keep the processors awake (" LATENCY_DEVICE ": %s), departures will be less exact\n",
            strerror(errno));
    emulator->exact = false;
}

static void may_sleep(struct emulator *emulator) {
    if (emulator->latency >= 0)
        close(emulator->latency);
    emulator->latency = -1;
}

/* The next packet of a device; NULL when none waits, or for want of memory. */
static struct packet *read_packet(int descriptor) {
    struct packet *packet = packet_new();
    if (!packet)
        return NULL;
    ssize_t length = read(descriptor, packet->data, PACKET_CAPACITY_BYTES);
    if (length <= 0) {
        packet_free(packet);
        return NULL;
    }
    packet->length = (uint32_t)length;
    return packet;
}

/* Takes packets that came while the emulator was away, for its processor was taken away: when each of them came is
 * not known, so they are taken to have come evenly. Taken to have come at once they would fill a queue that was never
 * there, which a flow close to the link's rate then keeps for a long time. Returns how many came. */
static unsigned read_late(int descriptor, struct direction *direction, struct packet *first, uint64_t since_ns) {
    static struct packet *late[LATE_BATCH];
    unsigned count = 0;
    for (struct packet *packet = first; packet; packet = count < LATE_BATCH ? read_packet(descriptor) : NULL)
        late[count++] = packet;
    uint64_t away_ns = now() - since_ns;
    for (unsigned i = 0; i < count; i++)
        direction_offer(direction, late[i], since_ns + away_ns * (i + 1) / (count + 1));
    return count;
}

/* Reads packets until none is left, a batch is full or a departure is due; since_ns is when they would have been read
 * had the emulator not been away. Returns how many came. */
static unsigned read_packets(int descriptor, struct direction *direction, uint64_t since_ns, uint64_t away_ns) {
    unsigned count = 0;
    while (count < READ_BATCH) {
        struct packet *packet = read_packet(descriptor);
        if (!packet)
            return count;
        uint64_t now_ns = now();
        if (now_ns > since_ns + away_ns)
            return count + read_late(descriptor, direction, packet, since_ns);
        since_ns = now_ns;
        count++;
        direction_offer(direction, packet, now_ns);
        if (direction_next_ns(direction) <= now_ns)
            return count;
    }
    return count;
}

static void write_series(struct emulator *emulator, uint64_t now_ns) {
    const struct direction *directions[] = {&emulator->link.forward, &emulator->link.reverse};
    if (!emulator->series || now_ns < emulator->series_next_ns)
        return;
    for (int i = 0; i < 2; i++) {
        const struct counters *counters = &directions[i]->counters;
        uint64_t dropped = 0;
        for (int cause = 0; cause < DROP_CAUSES; cause++)
            dropped += counters->dropped[cause].packets;
        fprintf(emulator->series, "%llu,%s,%llu,%llu,%llu,%llu,%llu\n", (unsigned long long)now_ns / 1000,
                i ? "reverse" : "forward", (unsigned long long)counters->offered.bytes,
                (unsigned long long)counters->carried.bytes, (unsigned long long)dropped,
                (unsigned long long)directions[i]->queue_bytes, (unsigned long long)directions[i]->wire_bytes);
    }
    fflush(emulator->series);
    emulator->series_next_ns = now_ns + emulator->series_interval_ns;
}

static uint64_t earliest(const struct emulator *emulator) {
    uint64_t forward = direction_next_ns(&emulator->link.forward);
    uint64_t reverse = direction_next_ns(&emulator->link.reverse);
    return forward < reverse ? forward : reverse;
}

/* At which devices packets may wait. */
enum { LEFT = 1, RIGHT = 2 };

/* Waits for packets, commands or the time until spin_ns before the next departure, on a busy link for commands or
 * coalesce_ns; returns where packets may wait. */
static unsigned wait_for_work(struct emulator *emulator) {
    struct pollfd entries[3 + CONTROL_CLIENTS] = {
        {.fd = emulator->left, .events = POLLIN},
        {.fd = emulator->right, .events = POLLIN},
    };
    size_t controls = control_poll_entries(&emulator->control, entries + 2);
    uint64_t wake_ns = earliest(emulator);
    if (wake_ns != NEVER)
        wake_ns -= emulator->spin_ns;
    if (emulator->series && emulator->series_next_ns < wake_ns)
        wake_ns = emulator->series_next_ns;
    uint64_t now_ns = now();
    if (emulator->latency >= 0 && emulator->last_packet_ns + AWAKE_NS < wake_ns) {
        wake_ns = emulator->last_packet_ns + AWAKE_NS;
        if (wake_ns <= now_ns) {
            may_sleep(emulator);
            return LEFT | RIGHT;
        }
    }
    /* On a busy link arrivals wake nobody. */
    size_t skipped = emulator->busy ? 2 : 0;
    if (emulator->busy)
        wake_ns = now_ns + emulator->coalesce_ns;
    uint64_t sleep_ns = wake_ns > now_ns ? wake_ns - now_ns : 0;
    struct timespec timeout = {.tv_sec = (time_t)(sleep_ns / NS_PER_S), .tv_nsec = (long)(sleep_ns % NS_PER_S)};
    int ready = ppoll(entries + skipped, 2 + controls - skipped, wake_ns == NEVER ? NULL : &timeout, NULL);
    if (ready > 0)
        control_serve(&emulator->control, entries + 2, controls, &emulator->link, now());
    emulator->window_slept_ns += now() - now_ns;
    if (emulator->busy)
        return LEFT | RIGHT;
    return ready > 0 ? (entries[0].revents ? LEFT : 0U) | (entries[1].revents ? RIGHT : 0U) : 0U;
}

/* Ends a window of time and decides whether the next one may spin. */
static void budget_processor(struct emulator *emulator, uint64_t now_ns) {
    uint64_t length_ns = now_ns - emulator->window_start_ns;
    if (length_ns < WINDOW_NS)
        return;
    bool rested = (double)emulator->window_slept_ns >= SLEEP_SHARE_TO_SPIN * (double)length_ns;
    uint64_t packets =
        emulator->link.forward.counters.carried.packets + emulator->link.reverse.counters.carried.packets;
    double weight = (double)length_ns / (LOAD_WINDOWS * (double)WINDOW_NS);
    double rate = (double)(packets - emulator->window_packets) * (double)NS_PER_S / (double)length_ns;
    emulator->packets_per_s += (rate - emulator->packets_per_s) * (weight < 1 ? weight : 1);
    emulator->window_packets = packets;
    emulator->busy = emulator->coalesce_ns > 0 && emulator->packets_per_s > BUSY_PACKETS_PER_S;
    emulator->spin_ns = rested && !emulator->busy ? emulator->link.spin_ns : 0;
    emulator->period_slept_ns += emulator->window_slept_ns;
    if (++emulator->period_windows >= REST_WINDOWS) {
        if ((double)emulator->period_slept_ns < REST_SHARE * REST_WINDOWS * (double)WINDOW_NS)
            nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
        emulator->period_slept_ns = 0;
        emulator->period_windows = 0;
    }
    emulator->window_slept_ns = 0;
    emulator->window_start_ns = now();
}

/* Reads from the devices at which packets may wait, see read_packets. */
static unsigned read_devices(struct emulator *emulator, unsigned readable, uint64_t since_ns) {
    /* A link that coalesces reads late on purpose. */
    uint64_t away_ns = emulator->coalesce_ns ? UINT64_MAX / 2 : AWAY_NS;
    unsigned came = 0;
    if (readable & LEFT)
        came += read_packets(emulator->left, &emulator->link.forward, since_ns, away_ns);
    if (readable & RIGHT)
        came += read_packets(emulator->right, &emulator->link.reverse, since_ns, away_ns);
    return came;
}

static void run(struct emulator *emulator) {
    struct link *link = &emulator->link;
    uint64_t polled_ns = 0, looked_ns = now();
    unsigned readable = LEFT | RIGHT;
    while (!stop_requested && !link->stop) {
        uint64_t next_ns = earliest(emulator);
        uint64_t now_ns = now();
        uint64_t due_ns = next_ns > looked_ns ? next_ns : looked_ns;
        unsigned came = 0;
        if (next_ns != NEVER && now_ns > due_ns + AWAY_NS) {
            came = read_devices(emulator, LEFT | RIGHT, due_ns);
            now_ns = now();
        }
        budget_processor(emulator, now_ns);
        if (next_ns <= now_ns) {
            direction_run(&link->forward, now_ns, write_packet, &emulator->right);
            direction_run(&link->reverse, now(), write_packet, &emulator->left);
        } else if (next_ns - now_ns < QUIET_NS && emulator->spin_ns >= QUIET_NS) {
            continue;
        }
        came += read_devices(emulator, readable, now_ns);
        readable = LEFT | RIGHT;
        next_ns = earliest(emulator);
        looked_ns = now_ns; /* a device that was found empty then may have filled since */
        now_ns = now();
        if (came > 0) {
            emulator->last_packet_ns = now_ns;
            if (emulator->exact && emulator->latency < 0)
                stay_awake(emulator);
        }
        /* Commands are looked at once per millisecond at least, however busy the link is. */
        if (now_ns - polled_ns > 1000000 || (came == 0 && next_ns > now_ns + emulator->spin_ns)) {
            readable = wait_for_work(emulator);
            polled_ns = now();
            write_series(emulator, polled_ns);
        }
    }
}

static int usage(const char *complaint) {
    fprintf(stderr,
            "linkem: %s\n"
            "usage: linkem --left NAMESPACE/INTERFACE --right NAMESPACE/INTERFACE --control SOCKET\n"
            "  [--parameters JSON] [--forward JSON] [--reverse JSON]   see json.h; forward is left to right\n"
            "  [--seed N] [--spin-us 25] [--coalesce-us 0] [--mtu 1500] [--device-queue-packets 10000] [--realtime]\n"
            "  [--series FILE] [--series-interval-ms 10]               CSV of counters over time\n"
            "A namespace of - is the caller's own.\n",
            complaint);
    return 2;
}

static int parse_options(int argc, char **argv, struct options *options) {
    static const struct option table[] = {
        {"left", 1, 0, 'l'},
        {"right", 1, 0, 'r'},
        {"control", 1, 0, 'c'},
        {"forward", 1, 0, 'f'},
        {"reverse", 1, 0, 'b'},
        {"parameters", 1, 0, 'p'},
        {"seed", 1, 0, 's'},
        {"spin-us", 1, 0, 'u'},
        {"coalesce-us", 1, 0, 'w'},
        {"mtu", 1, 0, 'm'},
        {"series", 1, 0, 'o'},
        {"realtime", 0, 0, 't'},
        {"series-interval-ms", 1, 0, 'i'},
        {"help", 0, 0, 'h'},
        {"device-queue-packets", 1, 0, 'q'},
        {0, 0, 0, 0},
    };
    int choice;
    while ((choice = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (choice) {
        case 'l':
            options->left = optarg;
            break;
        case 'r':
            options->right = optarg;
            break;
        case 'c':
            options->control_path = optarg;
            break;
        case 'p':
            options->parameters[0] = optarg;
            break;
        case 'f':
            options->parameters[1] = optarg;
            break;
        case 'b':
            options->parameters[2] = optarg;
            break;
        case 's':
            options->seed = strtoull(optarg, NULL, 10);
            break;
        case 'u':
            options->spin_us = strtoull(optarg, NULL, 10);
            break;
        case 'w':
            options->coalesce_us = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            options->mtu = atoi(optarg);
            break;
        case 'q':
            options->queue_packets = atoi(optarg);
            break;
        case 'o':
            options->series_path = optarg;
            break;
        case 'i':
            options->series_interval_ms = strtoull(optarg, NULL, 10);
            break;
        case 't':
            options->realtime = true;
            break;
        default:
            return usage("unknown option");
        }
    }
    if (!options->left || !options->right || !options->control_path)
        return usage("--left, --right and --control are needed");
    if (!strchr(options->left, '/') || !strchr(options->right, '/'))
        return usage("an end is NAMESPACE/INTERFACE");
    if (options->spin_us > 1000 || options->coalesce_us > 1000 || options->mtu < 576 ||
        options->series_interval_ms == 0)
        return usage(
            "--spin-us and --coalesce-us are at most 1000, --mtu at least 576, --series-interval-ms at least 1");
    return 0;
}

static int open_end(const char *end, const struct options *options) {
    char namespace_name[128];
    const char *slash = strchr(end, '/');
    snprintf(namespace_name, sizeof(namespace_name), "%.*s", (int)(slash - end), end);
    return device_open(namespace_name, slash + 1, options->mtu, options->queue_packets);
}

static int apply(struct direction *direction, const char *text, const char *option) {
    char message[256];
    if (!text)
        return 0;
    cJSON *object = cJSON_Parse(text);
    struct parameters parameters = direction->parameters;
    int error = json_to_parameters(object, &parameters, message, sizeof(message));
    cJSON_Delete(object);
    if (error) {
        fprintf(stderr, "linkem: %s: %s\n", option, message);
        return error;
    }
    direction_set(direction, &parameters, now());
    return 0;
}

static int start(struct emulator *emulator, const struct options *options) {
    struct link *link = &emulator->link;
    link->spin_ns = options->spin_us * 1000;
    emulator->coalesce_ns = options->coalesce_us * 1000;
    direction_start(&link->forward, options->seed * 2, now());
    direction_start(&link->reverse, options->seed * 2 + 1, now());
    if (apply(&link->forward, options->parameters[0], "--parameters") ||
        apply(&link->reverse, options->parameters[0], "--parameters") ||
        apply(&link->forward, options->parameters[1], "--forward") ||
        apply(&link->reverse, options->parameters[2], "--reverse"))
        return 2;
    emulator->left = open_end(options->left, options);
    emulator->right = emulator->left < 0 ? -1 : open_end(options->right, options);
    if (emulator->left < 0 || emulator->right < 0)
        return 1;
    if (options->series_path) {
        emulator->series = fopen(options->series_path, "we");
        if (!emulator->series) {
            fprintf(stderr, "linkem: cannot write %s: %s\n", options->series_path, strerror(errno));
            return 1;
        }
        fputs("at_us,direction,offered_bytes,carried_bytes,dropped_packets,queue_bytes,wire_bytes\n", emulator->series);
        emulator->series_interval_ns = options->series_interval_ms * 1000000;
    }
    int error = control_open(&emulator->control, options->control_path);
    if (error) {
        fprintf(stderr, "linkem: cannot listen on %s: %s\n", options->control_path, strerror(-error));
        return 1;
    }
    return 0;
}

static void prefer_realtime(struct emulator *emulator) {
    struct sched_param priority = {.sched_priority = 1};
    /* Links that coalesce do not ask for exact departures. */
    emulator->exact = emulator->coalesce_ns == 0;
    if (mlockall(MCL_CURRENT) < 0)
        fprintf(stderr, "linkem: memory is not locked (%s), departures will be less exact\n", strerror(errno));
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority) < 0)
        fprintf(stderr, "linkem: no realtime priority (%s), departures will be less exact\n", strerror(errno));
}

int main(int argc, char **argv) {
    static struct emulator emulator = {.left = -1, .right = -1, .control = {.listener = -1}, .latency = -1};
    struct options options = {.spin_us = 25, .mtu = 1500, .queue_packets = 10000, .series_interval_ms = 10};
    int status = parse_options(argc, argv, &options);
    if (status)
        return status;
    struct sigaction action = {.sa_handler = request_stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1UL);
    status = start(&emulator, &options);
    if (status)
        return status;
    if (options.realtime)
        prefer_realtime(&emulator);
    run(&emulator);
    may_sleep(&emulator);
    control_close(&emulator.control);
    unlink(options.control_path);
    if (emulator.series)
        fclose(emulator.series);
    direction_stop(&emulator.link.forward);
    direction_stop(&emulator.link.reverse);
    return 0;
}
