/* The command line of chart-blast: one table, from which the help is printed too. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DATAGRAM_MIN 32u
#define DATAGRAM_MAX 65000u

struct described {
    struct option option;
    const char *argument;
    const char *help;
};

static const struct described table[] = {
    {{"connect", required_argument, NULL, 'c'}, "HOST:PORT", "open the flow to this address; [IPv6]:PORT"},
    {{"listen", required_argument, NULL, 'l'}, "[HOST:]PORT", "wait for the flow here; one flow, then the end"},
    {{"bind", required_argument, NULL, 'B'}, "ADDRESS", "own address of a flow that is opened"},
    {{"udp", no_argument, NULL, 'u'}, NULL, "datagrams, paced at the agreed rate (else TCP)"},
    {{"available", required_argument, NULL, 'a'}, "RATE", "ask for this available rate, or `all` the path may give"},
    {{"guaranteed", required_argument, NULL, 'g'}, "RATE", "ask for this guaranteed rate"},
    {{"service", required_argument, NULL, 's'}, "NAME", "available, guaranteed, maximum or variable"},
    {{"preemption-priority", required_argument, NULL, 'P'}, "N", "0 to 255, the highest"},
    {{"delay-priority", required_argument, NULL, 'D'}, "N", "0 to 255, the highest"},
    {{"burst-tolerance", required_argument, NULL, 'T'}, "N", "0 to 15: bursts of (N + 1)/4 round trips"},
    {{"require", no_argument, NULL, 'r'}, NULL, "fail when no rate was agreed on until the end"},
    {{"bytes", required_argument, NULL, 'n'}, "SIZE", "send so much (else for --duration)"},
    {{"duration", required_argument, NULL, 't'}, "SECONDS", "send for so long (10)"},
    {{"datagram", required_argument, NULL, 'd'}, "BYTES", "payload of a datagram, 32 to 65000 (1400)"},
    {{"fallback", required_argument, NULL, 'f'}, "RATE", "UDP without an agreed rate sends at this one (1M)"},
    {{"interval", required_argument, NULL, 'i'}, "SECONDS", "a line for each; 0: none (1)"},
    {{"timeout", required_argument, NULL, 'w'}, "SECONDS", "give up after so long without progress (30)"},
    {{"json", no_argument, NULL, 'j'}, NULL, "one JSON object at the end instead of lines"},
    {{"help", no_argument, NULL, 'h'}, NULL, "this text"},
    {{"version", no_argument, NULL, 'V'}, NULL, "the version"},
};
#define ROWS (sizeof(table) / sizeof(table[0]))

void blast_options_help(FILE *file) {
    fputs("chart-blast: one flow at a rate that the network agreed to, and its account\n\n"
          "usage: chart-blast send    --connect HOST:PORT | --listen [HOST:]PORT [options]\n"
          "       chart-blast receive --connect HOST:PORT | --listen [HOST:]PORT [options]\n\n",
          file);
    for (size_t i = 0; i < ROWS; i++) {
        char left[48];
        snprintf(left, sizeof(left), "-%c, --%s%s%s", table[i].option.val, table[i].option.name,
                 table[i].argument ? " " : "", table[i].argument ? table[i].argument : "");
        fprintf(file, "  %-32s %s\n", left, table[i].help);
    }
    fputs("\nRates are bits per second with IP headers, sizes octets; k, M, G multiply by 1000.\n"
          "Exit status: 0 done; 1 failed, with a sentence on standard error; 2 wrong usage.\n"
          "Example:  chart-blast receive --listen 5210\n"
          "          chart-blast send --connect server:5210 --available all --duration 5 --json\n",
          file);
}

bool blast_parse_amount(const char *text, bool all, uint64_t *ret) {
    static const char suffixes[] = "kMGT";
    char *end;
    if (all && strcmp(text, "all") == 0) {
        *ret = CHART_ALL;
        return true;
    }
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || !isfinite(value) || value < 0)
        return false;
    if (*end) {
        const char *suffix = strchr(suffixes, *end);
        if (!suffix || end[1])
            return false;
        for (const char *step = suffixes; step <= suffix; step++)
            value *= 1000;
    }
    if (value > 1e18)
        return false;
    *ret = (uint64_t)(value + 0.5);
    return true;
}

static bool parse_seconds(const char *text, double least, double *ret) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < least || value > 1e6)
        return false;
    *ret = value;
    return true;
}

static bool parse_number(const char *text, unsigned long least, unsigned long most, uint32_t *ret) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most || *text == '-')
        return false;
    *ret = (uint32_t)value;
    return true;
}

static bool parse_small(const char *text, unsigned long most, uint8_t *ret) {
    uint32_t value;
    if (!parse_number(text, 0, most, &value))
        return false;
    *ret = (uint8_t)value;
    return true;
}

static bool parse_service(const char *text, enum chart_service_class *ret) {
    static const char *const names[] = {"available", "guaranteed", "maximum", "variable"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum chart_service_class)i;
            return true;
        }
    }
    return false;
}

/* HOST:PORT, [HOST]:PORT, and PORT alone where no host is needed. */
static bool parse_address(const char *text, bool host_needed, struct blast_options *options) {
    const char *colon = strrchr(text, ':');
    const char *host = text;
    size_t length = colon ? (size_t)(colon - text) : 0;
    uint32_t port;
    if (!parse_number(colon ? colon + 1 : text, 1, 65535, &port))
        return false;
    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    } else if (memchr(host, ':', length)) {
        return false; /* IPv6 without brackets: where the port begins is not known */
    }
    if ((host_needed && !length) || length >= sizeof(options->host))
        return false;
    memcpy(options->host, host, length);
    options->host[length] = '\0';
    snprintf(options->port, sizeof(options->port), "%u", port);
    return true;
}

/* What is right for an option, for its complaint. */
static const char *take(int choice, const char *argument, struct blast_options *options) {
    switch (choice) {
    case 'c':
        return parse_address(argument, true, options) ? NULL : "is HOST:PORT or [IPv6]:PORT, port 1 to 65535";
    case 'l':
        options->listen = true;
        return parse_address(argument, false, options) ? NULL : "is PORT, HOST:PORT or [IPv6]:PORT, port 1 to 65535";
    case 'B':
        snprintf(options->bind, sizeof(options->bind), "%s", argument);
        return NULL;
    case 'a':
        options->asks = true;
        return blast_parse_amount(argument, true, &options->ask.available_bps) ? NULL : "is a rate like 50M, or all";
    case 'g':
        options->asks = true;
        return blast_parse_amount(argument, false, &options->ask.guaranteed_bps) ? NULL : "is a rate like 5M";
    case 's':
        return parse_service(argument, &options->ask.service) ? NULL : "is available, guaranteed, maximum or variable";
    case 'P':
        return parse_small(argument, 255, &options->ask.preemption_priority) ? NULL : "is 0 to 255";
    case 'D':
        return parse_small(argument, 255, &options->ask.delay_priority) ? NULL : "is 0 to 255";
    case 'T':
        return parse_small(argument, 15, &options->ask.burst_tolerance) ? NULL : "is 0 to 15";
    case 'n':
        return blast_parse_amount(argument, false, &options->bytes) && options->bytes ? NULL : "is a size like 100M";
    case 't':
        return parse_seconds(argument, 0.01, &options->duration_s) ? NULL : "is a time above 0 in seconds";
    case 'd':
        return parse_number(argument, DATAGRAM_MIN, DATAGRAM_MAX, &options->datagram_bytes) ? NULL : "is 32 to 65000";
    case 'f':
        return blast_parse_amount(argument, false, &options->fallback_bps) && options->fallback_bps
                   ? NULL
                   : "is a rate above 0 like 1M";
    case 'i':
        return parse_seconds(argument, 0, &options->interval_s) ? NULL : "is a time in seconds, 0 for no lines";
    case 'w':
        return parse_seconds(argument, 0.1, &options->timeout_s) ? NULL : "is a time of at least 0.1 seconds";
    default:
        return "is not known";
    }
}

static const char *contradiction(const struct blast_options *options, bool has_address) {
    if (!has_address)
        return "say --connect HOST:PORT or --listen PORT";
    if (!options->send && options->asks)
        return "a rate is asked for by the side that sends";
    if (options->must_agree && !options->asks)
        return "--require needs --available or --guaranteed";
    if (options->udp && options->send == options->listen)
        return "over UDP the sender connects and the receiver listens";
    return options->asks ? chart_ask_complaint(&options->ask) : NULL;
}

enum blast_parsed blast_options_parse(int argc, char **argv, struct blast_options *ret, char *complaint, size_t size) {
    struct option options[ROWS + 1] = {0};
    char letters[3 * ROWS + 2] = ":";
    bool has_address = false;
    int choice, row;
    *ret = (struct blast_options){.duration_s = BLAST_DURATION_S,
                                  .interval_s = 1,
                                  .timeout_s = BLAST_TIMEOUT_S,
                                  .datagram_bytes = BLAST_DATAGRAM_BYTES,
                                  .fallback_bps = BLAST_FALLBACK_BPS};
    for (size_t i = 0; i < ROWS; i++) {
        size_t end = strlen(letters);
        options[i] = table[i].option;
        letters[end] = (char)table[i].option.val;
        letters[end + 1] = table[i].option.has_arg ? ':' : '\0';
    }
    bool role = argc > 1 && (strcmp(argv[1], "send") == 0 || strcmp(argv[1], "receive") == 0);
    ret->send = role && argv[1][0] == 's';
    optind = role ? 2 : 1;
    opterr = 0;
    while ((choice = getopt_long(argc, argv, letters, options, &row)) != -1) {
        if (choice == 'h')
            return BLAST_HELP;
        if (choice == 'V')
            return BLAST_VERSION;
        if (choice == '?' || choice == ':') {
            snprintf(complaint, size, "%s %s", argv[optind - 1],
                     choice == ':' ? "needs a value" : "is no option; --help lists them");
            return BLAST_WRONG;
        }
        has_address |= choice == 'c' || choice == 'l';
        ret->udp |= choice == 'u';
        ret->json |= choice == 'j';
        ret->must_agree |= choice == 'r';
        const char *right = strchr("ujr", choice) ? NULL : take(choice, optarg, ret);
        if (right) {
            const char *name = "";
            for (size_t i = 0; i < ROWS; i++)
                name = table[i].option.val == choice ? table[i].option.name : name;
            snprintf(complaint, size, "--%s %s, not %s", name, right, optarg);
            return BLAST_WRONG;
        }
    }
    const char *wrong = role ? contradiction(ret, has_address) : "begin with send or receive";
    if (!wrong && optind < argc)
        wrong = "there is a word too many";
    if (!wrong)
        return BLAST_RUN;
    snprintf(complaint, size, "%s", wrong);
    return BLAST_WRONG;
}
