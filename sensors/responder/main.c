/* sensor-responder: the far end of two-ended sensors (CHART System, section 6). Every pod runs one; it answers only who
 * holds the shared key, and can be used neither as an amplifier nor to send packets to a third party (responder.h). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "failure.h"
#include "keyring.h"
#include "lib/notify/notify.h"
#include "options.h"
#include "pacing.h"
#include "probe_socket.h"
#include "record.h"
#include "responder.h"

#define SOCKETS_MAX OPTION_LIST_MAX
/* Datagrams taken from one socket before the others are looked at. */
#define BATCH 64
/* How soon it looks at the service manager's watchdog. */
#define WATCHED_WAIT_MS 1000

struct parameters {
    struct option_list bind;
    uint64_t port;
    char key_file[OPTION_TEXT_BYTES];
    char generate_key[OPTION_TEXT_BYTES];
    double reply_rate;
    double reply_burst;
};

#define FIELD(name) offsetof(struct parameters, name)
static const struct option_spec SPECS[] = {
    {"bind", OPTION_LIST, OPTION_COMMAND_LINE, FIELD(bind), 0, 0, "ADDRESS", "address to serve, may repeat (0.0.0.0)"},
    {"port", OPTION_UNSIGNED, OPTION_COMMAND_LINE, FIELD(port), 1, 65535, "PORT", "UDP port (18300)"},
    {"key-file", OPTION_TEXT, OPTION_COMMAND_LINE, FIELD(key_file), 0, 0, "FILE",
     "shared keys, mode 0600 ($CHART_SENSOR_KEY_FILE, else " OPTIONS_KEY_FILE ")"},
    {"generate-key", OPTION_TEXT, OPTION_COMMAND_LINE, FIELD(generate_key), 0, 0, "FILE",
     "write a new random key file and exit"},
    {"reply-rate", OPTION_NUMBER, OPTION_COMMAND_LINE, FIELD(reply_rate), 1, 1e6, "N",
     "replies per second to one peer (1000)"},
    {"reply-burst", OPTION_NUMBER, OPTION_COMMAND_LINE, FIELD(reply_burst), 1, 1e6, "N",
     "replies in one burst to one peer (500)"},
};
static const struct option_table TABLE = {
    .program = "sensor-responder",
    .synopsis = "[--key-file FILE] [--bind ADDRESS]... [--port PORT]",
    .description = "Answer UDP echo probes and keep the arrival times of chirp trains, for known peers only.\n"
                   "SIGUSR1 prints the counters as one JSON line; SIGTERM and SIGINT print them and exit.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
};

static void print_counters(const struct responder *responder) {
    const struct responder_counters *counters = responder_counters(responder);
    cJSON *object = cJSON_CreateObject();

    cJSON_AddNumberToObject(object, "received", (double)counters->received);
    cJSON_AddNumberToObject(object, "received_bytes", (double)counters->received_bytes);
    cJSON_AddNumberToObject(object, "replies", (double)counters->replies);
    cJSON_AddNumberToObject(object, "reply_bytes", (double)counters->reply_bytes);
    cJSON_AddNumberToObject(object, "chirp_packets", (double)counters->chirp_packets);
    cJSON_AddNumberToObject(object, "refused_malformed", (double)counters->refused_malformed);
    cJSON_AddNumberToObject(object, "refused_unauthenticated", (double)counters->refused_unauthenticated);
    cJSON_AddNumberToObject(object, "refused_replayed", (double)counters->refused_replayed);
    cJSON_AddNumberToObject(object, "refused_unknown_session", (double)counters->refused_unknown_session);
    cJSON_AddNumberToObject(object, "refused_rate", (double)counters->refused_rate);
    record_write(stdout, object);
}

static void serve_socket(struct responder *responder, int descriptor, uint16_t port) {
    /* One byte more than a datagram may have, so that a longer one is seen as such. */
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES + 1];
    uint8_t reply[WIRE_DATAGRAM_MAX_BYTES];

    for (int i = 0; i < BATCH; i++) {
        struct probe_arrival arrival;
        int length = probe_socket_receive(descriptor, bytes, sizeof(bytes), &arrival);
        struct responder_datagram datagram;
        size_t reply_length;

        if (length == -EAGAIN)
            return;
        if (length < 0)
            continue;
        address_set_port(&arrival.destination, port);
        datagram = (struct responder_datagram){
            .bytes = bytes,
            .length = arrival.length,
            .source = arrival.source,
            .destination = arrival.destination,
            .arrived_at_ns = arrival.at_ns,
            .now_ns = pacing_wall_ns(),
            .monotonic_ns = pacing_now_ns(),
        };
        reply_length = responder_handle(responder, &datagram, reply);
        /* A reply that the kernel does not take is a lost reply; the sensor asks again. */
        if (reply_length)
            (void)probe_socket_reply(descriptor, reply, reply_length, &arrival.destination, &arrival.source);
    }
}

static int open_signals(void) {
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int serve(struct responder *responder, struct pollfd *polls, size_t sockets, uint16_t port) {
    int wait_ms = notify_period_us() ? WATCHED_WAIT_MS : -1;

    for (;;) {
        notify_alive_at((uint64_t)pacing_now_ns() / 1000);
        if (poll(polls, sockets + 1, wait_ms) < 0) {
            if (errno != EINTR)
                return -errno;
            continue;
        }
        for (size_t i = 0; i < sockets; i++)
            if (polls[i].revents)
                serve_socket(responder, polls[i].fd, port);
        if (polls[sockets].revents) {
            struct signalfd_siginfo info;

            while (read(polls[sockets].fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                print_counters(responder);
                if (info.ssi_signo != SIGUSR1)
                    return 0;
            }
        }
    }
}

static int run(struct parameters *parameters, struct failure *failure) {
    struct responder_limits limits = {parameters->reply_rate, parameters->reply_burst};
    struct pollfd polls[SOCKETS_MAX + 1];
    struct responder *responder;
    struct keyring keyring;
    size_t sockets = 0;
    int result = -1;

    if (parameters->generate_key[0])
        return keyring_generate(parameters->generate_key, failure);
    if (!parameters->key_file[0])
        return options_no_key("sensor-responder --generate-key " OPTIONS_KEY_FILE " makes one", failure);
    if (keyring_load(parameters->key_file, &keyring, failure) < 0)
        return -1;
    if (parameters->bind.count == 0)
        snprintf(parameters->bind.items[parameters->bind.count++], OPTION_TEXT_BYTES, "0.0.0.0");
    responder = responder_new(&keyring, &limits);
    if (!responder) {
        failure_set(failure, FAILURE_OTHER, "out of memory");
        goto finish;
    }
    for (; sockets < parameters->bind.count; sockets++) {
        union address address;

        if (address_resolve(parameters->bind.items[sockets], (uint16_t)parameters->port, &address, failure) < 0)
            goto finish;
        polls[sockets] = (struct pollfd){.fd = probe_socket_listen(&address, failure), .events = POLLIN};
        if (polls[sockets].fd < 0)
            goto finish;
    }
    polls[sockets] = (struct pollfd){.fd = open_signals(), .events = POLLIN};
    fprintf(stderr, "sensor-responder: serving %zu address(es), port %u\n", sockets, (unsigned)parameters->port);
    notify_ready();
    result = serve(responder, polls, sockets, (uint16_t)parameters->port);
    if (result < 0)
        failure_from_errno(failure, -result, "poll");
    close(polls[sockets].fd);
finish:
    for (size_t i = 0; i < sockets; i++)
        close(polls[i].fd);
    responder_free(responder);
    keyring_free(&keyring);
    return result;
}

int main(int argc, char **argv) {
    struct parameters parameters = {.port = WIRE_DEFAULT_PORT, .reply_rate = 1000, .reply_burst = 500};
    struct failure failure = {0};
    int result;

    pacing_prepare();
    options_default_key_file(parameters.key_file);
    result = options_read_arguments(&TABLE, argc, argv, &parameters, &failure);
    if (result == OPTIONS_HELP)
        return 0;
    if (result == OPTIONS_READ)
        result = run(&parameters, &failure);
    if (result < 0) {
        fprintf(stderr, "sensor-responder: %s\n", failure.message);
        return failure.kind;
    }
    return 0;
}
