/* chart-blast: one flow at an explicit rate and its account, as iperf3 does it for ordinary flows (man chart-blast). */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "flow.h"

#define VERSION "1.0"

static void stop(int number) {
    (void)number;
    blast_stop = 1;
}

static int run(struct blast_account *account) {
    const struct blast_options *options = account->options;
    int socket = -1;
    int error = options->udp ? blast_open_datagram(account, &socket) : blast_open_stream(account, &socket);
    if (error)
        return error;
    if (options->udp)
        error = options->send ? blast_datagram_send(account, socket) : blast_datagram_receive(account, socket);
    else
        error = options->send ? blast_stream_send(account, socket) : blast_stream_receive(account, socket);
    if (!error)
        blast_account_print(account, socket);
    close(socket);
    if (!error && !blast_account_whole(account))
        error = blast_failed(0, "the octets did not arrive as they were sent");
    if (!error && options->must_agree && !account->agreed.bps)
        error = blast_failed(0, "no rate was agreed on (%s)",
                             account->request_error ? chart_error_text(account->request_error)
                                                    : chart_state_name(account->rate.state));
    return error;
}

int main(int argc, char **argv) {
    static struct blast_account account;
    struct blast_options options;
    struct sigaction action = {.sa_handler = stop};
    char complaint[256] = "";
    switch (blast_options_parse(argc, argv, &options, complaint, sizeof(complaint))) {
    case BLAST_HELP:
        blast_options_help(stdout);
        return 0;
    case BLAST_VERSION:
        puts("chart-blast " VERSION);
        return 0;
    case BLAST_WRONG:
        fprintf(stderr, "chart-blast: %s\nchart-blast --help tells more\n", complaint);
        return 2;
    case BLAST_RUN:
        break;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    prctl(PR_SET_TIMERSLACK, 1UL); /* pacing waits for less than the usual 50 us of slack */
    int error = blast_account_begin(&account, &options);
    if (error)
        blast_failed(error, "no memory");
    else
        error = run(&account);
    blast_account_end(&account);
    return error ? 1 : 0;
}
