/* bulk: one bulk transfer over TCP and its account, the traffic of the experiments of Brassil et al., The CHART System,
 * section 7. iperf counts from the accepted connection; here the receiver's bytes are kept per bin on CLOCK_MONOTONIC
 * and the connecting side says when its SYN left, so that goodput counts from the first SYN.
 *
 *   bulk send|receive --connect ADDRESS:PORT | --listen ADDRESS:PORT [--bind ADDRESS] [--duration-s 10]
 *        [--congestion NAME] [--sample-ms 10] [--available] [--offered-mbit RATE]
 *
 * --offered-mbit makes a sender offer no more than that, Mb/s of payload, instead of all that its socket takes.
 * --available asks inside the flow's own packets for all the rate that the path may give (signal_socket.h), as a
 * program of a node with CHART does. A sender stops duration-s after its SYN (connecting) or after accepting
 * (listening) and resets the connection; a receiver stops at the end of the stream or at SIGTERM. Both print one JSON
 * object; exit status 1 with a sentence on failure, 2 on wrong usage. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "signal_socket.h"

#define NS_PER_S 1000000000ULL
#define NS_PER_MS 1000000ULL
#define CHUNK_BYTES (256 * 1024)
#define CONNECT_TIMEOUT_NS (60 * NS_PER_S)
/* How often a sender of a given rate offers what has come due. */
#define OFFER_NS (5 * NS_PER_MS)

struct options {
    bool send, listen, available;
    struct sockaddr_in peer, local;
    const char *congestion;
    double duration_s, offered_mbit; /* 0: all that the socket takes */
    uint64_t sample_ns;
};

struct sample {
    uint64_t at_ns;
    uint32_t rtt_us, min_rtt_us, cwnd, unacked, retransmitted;
    uint64_t pacing_bps, delivery_bps, acked_bytes;
};

struct transfer {
    int socket;
    uint64_t syn_ns, established_ns, last_byte_ns, bytes;
    uint64_t *bins; /* receiver: bytes per sample_ns since established_ns */
    size_t bin_count, bin_capacity;
    struct sample *samples; /* sender */
    size_t sample_count, sample_capacity;
    char congestion[16];
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

static int failed(const char *what) {
    int error = errno;
    fprintf(stderr, "bulk: %s: %s\n", what, strerror(error));
    return -error;
}

/* Waits for events until a time; returns poll's result, 0 also when asked to stop. */
static int wait_until(int descriptor, short events, uint64_t until_ns) {
    struct pollfd entry = {.fd = descriptor, .events = events};
    uint64_t now_ns = now();
    uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left_ns / NS_PER_S), .tv_nsec = (long)(left_ns % NS_PER_S)};
    int ready = ppoll(&entry, 1, &timeout, NULL);
    return ready < 0 && errno == EINTR ? 0 : ready;
}

static int set_congestion(int descriptor, const char *name) {
    if (!name)
        return 0;
    if (setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) < 0)
        return failed("choosing the congestion control");
    return 0;
}

static int ask_for_rate(int descriptor, const struct options *options) {
    const struct chart_socket_request request = {.available_bps = UINT64_MAX};
    if (!options->available)
        return 0;
    if (setsockopt(descriptor, CHART_SOL_SIGNAL, CHART_SO_REQUEST, &request, sizeof(request)))
        return failed("asking for a rate");
    return 0;
}

static int open_connection(const struct options *options, struct transfer *transfer) {
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return failed("socket");
    transfer->socket = descriptor;
    int error = set_congestion(descriptor, options->congestion);
    error = error ? error : ask_for_rate(descriptor, options);
    if (error)
        return error;
    if (options->local.sin_family && bind(descriptor, (const struct sockaddr *)&options->local, sizeof(options->local)))
        return failed("binding the local address");
    transfer->syn_ns = now();
    if (connect(descriptor, (const struct sockaddr *)&options->peer, sizeof(options->peer)) < 0 && errno != EINPROGRESS)
        return failed("connecting");
    int ready = wait_until(descriptor, POLLOUT, transfer->syn_ns + CONNECT_TIMEOUT_NS);
    socklen_t size = sizeof(error);
    if (ready <= 0 || getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error) {
        errno = ready <= 0 ? ETIMEDOUT : error;
        return failed("connecting");
    }
    transfer->established_ns = now();
    /* Whoever measures from here on waits for this line. */
    fprintf(stderr, "bulk: connected\n");
    return 0;
}

static int accept_connection(const struct options *options, struct transfer *transfer) {
    int on = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return failed("socket");
    transfer->socket = listener;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    int error = set_congestion(listener, options->congestion);
    if (error)
        return error;
    if (bind(listener, (const struct sockaddr *)&options->peer, sizeof(options->peer)) < 0 || listen(listener, 1) < 0)
        return failed("listening");
    /* Whoever starts the other side waits for this line. */
    fprintf(stderr, "bulk: listening\n");
    if (wait_until(listener, POLLIN, now() + CONNECT_TIMEOUT_NS) <= 0) {
        errno = ETIMEDOUT;
        return failed("nobody connected");
    }
    int descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0)
        return failed("accepting");
    close(listener);
    transfer->socket = descriptor;
    transfer->established_ns = now();
    return ask_for_rate(descriptor, options);
}

static int take_sample(struct transfer *transfer, uint64_t now_ns) {
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    if (getsockopt(transfer->socket, IPPROTO_TCP, TCP_INFO, &info, &size) < 0)
        return failed("reading TCP_INFO");
    if (transfer->sample_count == transfer->sample_capacity) {
        transfer->sample_capacity = transfer->sample_capacity ? 2 * transfer->sample_capacity : 1024;
        transfer->samples = realloc(transfer->samples, transfer->sample_capacity * sizeof(*transfer->samples));
        if (!transfer->samples)
            return failed("memory for samples");
    }
    transfer->samples[transfer->sample_count++] = (struct sample){
        .at_ns = now_ns,
        .rtt_us = info.tcpi_rtt,
        .min_rtt_us = info.tcpi_min_rtt,
        .cwnd = info.tcpi_snd_cwnd,
        .unacked = info.tcpi_unacked,
        .retransmitted = info.tcpi_total_retrans,
        /* Without a pacing rate the kernel says ~0. */
        .pacing_bps = info.tcpi_pacing_rate == UINT64_MAX ? 0 : info.tcpi_pacing_rate * 8,
        .delivery_bps = info.tcpi_delivery_rate * 8,
        .acked_bytes = info.tcpi_bytes_acked,
    };
    return 0;
}

/* How much a sender offers next, at most a chunk; 0 while less than OFFER_NS of its rate is due. */
static size_t due_bytes(const struct options *options, const struct transfer *transfer, uint64_t elapsed_ns) {
    if (options->offered_mbit <= 0)
        return CHUNK_BYTES;
    double bytes_per_ns = options->offered_mbit / 8000;
    double due = bytes_per_ns * (double)elapsed_ns - (double)transfer->bytes;
    if (due < bytes_per_ns * OFFER_NS)
        return 0;
    return due < CHUNK_BYTES ? (size_t)due : CHUNK_BYTES;
}

static int send_stream(const struct options *options, struct transfer *transfer) {
    static char chunk[CHUNK_BYTES];
    uint64_t start_ns = options->listen ? transfer->established_ns : transfer->syn_ns;
    uint64_t end_ns = start_ns + (uint64_t)(options->duration_s * 1e9);
    uint64_t sample_ns = transfer->established_ns + options->sample_ns;
    memset(chunk, 0x5a, sizeof(chunk));
    while (!stop_requested) {
        uint64_t now_ns = now();
        if (now_ns >= end_ns)
            return 0;
        if (now_ns >= sample_ns) {
            int error = take_sample(transfer, now_ns);
            if (error)
                return error;
            sample_ns += options->sample_ns * ((now_ns - sample_ns) / options->sample_ns + 1);
        }
        size_t due = due_bytes(options, transfer, now_ns - start_ns);
        if (!due) {
            wait_until(-1, 0, now_ns + OFFER_NS);
            continue;
        }
        ssize_t sent = send(transfer->socket, chunk, due, MSG_NOSIGNAL);
        if (sent >= 0)
            transfer->bytes += (uint64_t)sent;
        else if (errno == EAGAIN)
            wait_until(transfer->socket, POLLOUT, sample_ns < end_ns ? sample_ns : end_ns);
        else if (errno != EINTR)
            return failed("sending");
    }
    return 0;
}

static int count_bytes(const struct options *options, struct transfer *transfer, uint64_t at_ns, uint64_t bytes) {
    size_t bin = (size_t)((at_ns - transfer->established_ns) / options->sample_ns);
    if (bin >= transfer->bin_capacity) {
        size_t capacity = bin < 512 ? 1024 : 2 * bin;
        uint64_t *grown = realloc(transfer->bins, capacity * sizeof(*grown));
        if (!grown)
            return failed("memory for bins");
        memset(grown + transfer->bin_capacity, 0, (capacity - transfer->bin_capacity) * sizeof(*grown));
        transfer->bins = grown;
        transfer->bin_capacity = capacity;
    }
    transfer->bins[bin] += bytes;
    if (bin >= transfer->bin_count)
        transfer->bin_count = bin + 1;
    transfer->bytes += bytes;
    transfer->last_byte_ns = at_ns;
    return 0;
}

static int receive_stream(const struct options *options, struct transfer *transfer) {
    while (!stop_requested) {
        /* MSG_TRUNC: the kernel counts and discards, no copy. */
        ssize_t got = recv(transfer->socket, NULL, 16 * CHUNK_BYTES, MSG_TRUNC);
        if (got > 0) {
            int error = count_bytes(options, transfer, now(), (uint64_t)got);
            if (error)
                return error;
        } else if (got == 0 || errno == ECONNRESET) {
            return 0;
        } else if (errno == EAGAIN) {
            wait_until(transfer->socket, POLLIN, now() + NS_PER_S);
        } else if (errno != EINTR) {
            return failed("receiving");
        }
    }
    return 0;
}

#define PRINT_COLUMN(transfer, name, member)                                                                           \
    do {                                                                                                               \
        printf(",\"%s\":[", name);                                                                                     \
        for (size_t i = 0; i < (transfer)->sample_count; i++)                                                          \
            printf("%s%llu", i ? "," : "", (unsigned long long)(transfer)->samples[i].member);                         \
        printf("]");                                                                                                   \
    } while (0)

static void print_result(const struct options *options, struct transfer *transfer) {
    printf("{\"role\":\"%s\",\"congestion\":\"%s\",\"syn_ns\":%llu,\"established_ns\":%llu,\"bytes\":%llu",
           options->send ? "send" : "receive", transfer->congestion, (unsigned long long)transfer->syn_ns,
           (unsigned long long)transfer->established_ns, (unsigned long long)transfer->bytes);
    if (options->send) {
        PRINT_COLUMN(transfer, "at_ns", at_ns);
        PRINT_COLUMN(transfer, "rtt_us", rtt_us);
        PRINT_COLUMN(transfer, "min_rtt_us", min_rtt_us);
        PRINT_COLUMN(transfer, "cwnd", cwnd);
        PRINT_COLUMN(transfer, "unacked", unacked);
        PRINT_COLUMN(transfer, "retransmitted", retransmitted);
        PRINT_COLUMN(transfer, "pacing_bps", pacing_bps);
        PRINT_COLUMN(transfer, "delivery_bps", delivery_bps);
        PRINT_COLUMN(transfer, "acked_bytes", acked_bytes);
    } else {
        printf(",\"bin_ns\":%llu,\"last_byte_ns\":%llu,\"bins\":[", (unsigned long long)options->sample_ns,
               (unsigned long long)transfer->last_byte_ns);
        for (size_t i = 0; i < transfer->bin_count; i++)
            printf("%s%llu", i ? "," : "", (unsigned long long)transfer->bins[i]);
        printf("]");
    }
    printf("}\n");
}

static int usage(const char *complaint) {
    fprintf(stderr,
            "bulk: %s\n"
            "usage: bulk send|receive --connect ADDRESS:PORT | --listen ADDRESS:PORT [--bind ADDRESS]\n"
            "            [--duration-s 10] [--congestion NAME] [--sample-ms 10] [--available] [--offered-mbit RATE]\n",
            complaint);
    return 2;
}

static int parse_address(const char *text, struct sockaddr_in *ret) {
    char host[64];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    if (length >= sizeof(host))
        return -EINVAL;
    memcpy(host, text, length);
    host[length] = '\0';
    ret->sin_family = AF_INET;
    ret->sin_port = htons((uint16_t)(colon ? atoi(colon + 1) : 0));
    return inet_pton(AF_INET, host, &ret->sin_addr) == 1 ? 0 : -EINVAL;
}

static int parse_options(int argc, char **argv, struct options *options) {
    static const struct option table[] = {
        {"connect", 1, 0, 'c'},    {"listen", 1, 0, 'l'},       {"bind", 1, 0, 'b'},
        {"duration-s", 1, 0, 'd'}, {"congestion", 1, 0, 'g'},   {"sample-ms", 1, 0, 's'},
        {"available", 0, 0, 'a'},  {"offered-mbit", 1, 0, 'o'}, {0, 0, 0, 0},
    };
    int choice, error = 0;
    bool peer = false;
    if (argc < 2 || (strcmp(argv[1], "send") != 0 && strcmp(argv[1], "receive") != 0))
        return usage("say send or receive");
    options->send = strcmp(argv[1], "send") == 0;
    optind = 2;
    while ((choice = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (choice) {
        case 'c':
        case 'l':
            options->listen = choice == 'l';
            peer = true;
            error |= parse_address(optarg, &options->peer);
            break;
        case 'b':
            error |= parse_address(optarg, &options->local);
            break;
        case 'd':
            options->duration_s = atof(optarg);
            break;
        case 'g':
            options->congestion = optarg;
            break;
        case 'a':
            options->available = true;
            break;
        case 'o':
            options->offered_mbit = atof(optarg);
            if (options->offered_mbit <= 0)
                return usage("--offered-mbit must be above 0");
            break;
        case 's':
            options->sample_ns = strtoull(optarg, NULL, 10) * NS_PER_MS;
            break;
        default:
            return usage("unknown option");
        }
    }
    if (error || !peer || options->peer.sin_port == 0)
        return usage("an address is IPv4:PORT");
    if (options->duration_s <= 0 || options->sample_ns == 0)
        return usage("--duration-s and --sample-ms must be above 0");
    return 0;
}

int main(int argc, char **argv) {
    struct options options = {.duration_s = 10, .sample_ns = 10 * NS_PER_MS};
    struct transfer transfer = {.socket = -1};
    int status = parse_options(argc, argv, &options);
    if (status)
        return status;
    struct sigaction action = {.sa_handler = request_stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    int error = options.listen ? accept_connection(&options, &transfer) : open_connection(&options, &transfer);
    if (!error)
        error = options.send ? send_stream(&options, &transfer) : receive_stream(&options, &transfer);
    if (!error) {
        socklen_t size = sizeof(transfer.congestion) - 1;
        getsockopt(transfer.socket, IPPROTO_TCP, TCP_CONGESTION, transfer.congestion, &size);
    }
    struct linger reset = {.l_onoff = 1};
    if (options.send && transfer.socket >= 0)
        setsockopt(transfer.socket, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    if (transfer.socket >= 0)
        close(transfer.socket);
    /* Last: who reads may come late, and a pipe holds the account of some seconds; a socket that waits for it open
     * would go on sending what is in its buffer. */
    if (!error)
        print_result(&options, &transfer);
    free(transfer.bins);
    free(transfer.samples);
    return error ? 1 : 0;
}
