/* A UDP flow: numbered datagrams at the agreed rate, then an end that is repeated until the receiver tells what it got.
 *
 *     0       4       8                16
 *     +-------+-------+-----------------+----------
 *     | CHBL  | kind  | number          | octets, or JSON in a report
 *     +-------+-------+-----------------+----------
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "flow.h"

#define MAGIC 0x4348424cu
#define HEADER_BYTES 16u
#define ENDS 20
#define END_WAIT_NS 200000000ull
#define LOOK_NS 100000000ull
/* Duplicates are known among this many datagrams. */
#define WINDOW 65536u

enum kind { KIND_DATA = 0, KIND_END = 1, KIND_REPORT = 2 };

struct header {
    uint32_t magic, kind;
    uint64_t number;
};

static uint8_t buffer[65536];

static void put_header(uint8_t *target, enum kind kind, uint64_t number) {
    const struct header header = {htobe32(MAGIC), htobe32(kind), htobe64(number)};
    memcpy(target, &header, sizeof(header));
}

static bool read_header(const uint8_t *from, ssize_t length, struct header *ret) {
    if (length < (ssize_t)HEADER_BYTES)
        return false;
    memcpy(ret, from, sizeof(*ret));
    *ret = (struct header){be32toh(ret->magic), be32toh(ret->kind), be64toh(ret->number)};
    return ret->magic == MAGIC;
}

static void rate_changed(void *context, const struct chart_rate *rate) {
    blast_account_rate(context, rate, chart_now_ns());
}

static bool done(const struct blast_account *account) {
    const struct blast_options *options = account->options;
    if (blast_stop || (options->bytes && account->bytes >= options->bytes))
        return true;
    return !options->bytes &&
           (double)(chart_now_ns() - account->start_ns) >= options->duration_s * (double)CHART_NS_PER_S;
}

static int send_all(struct blast_account *account, int socket, struct chart_paced *paced) {
    while (!done(account)) {
        put_header(buffer, KIND_DATA, account->datagrams.sent + 1);
        int64_t sent = chart_paced_send(paced, buffer, account->options->datagram_bytes, 0);
        if (sent == -EMSGSIZE)
            return blast_failed((int)sent, "datagrams of %u octets do not fit; choose a smaller --datagram",
                                account->options->datagram_bytes);
        if (sent == -ECONNREFUSED)
            return blast_failed((int)sent, "nobody receives there; start `chart-blast receive --udp --listen` first");
        if (sent < 0 && sent != -EINTR && sent != -EAGAIN && sent != -ENOBUFS)
            return blast_failed((int)sent, "the flow broke after %llu octets", (unsigned long long)account->bytes);
        if (sent == -EAGAIN)
            blast_wait(account, NULL, socket, POLLOUT, LOOK_NS);
        if (sent > 0) {
            account->datagrams.sent++;
            blast_account_bytes(account, buffer, (size_t)sent);
        }
        blast_account_tick(account, chart_now_ns());
    }
    account->end_ns = chart_now_ns();
    account->datagrams.received = account->datagrams.sent;
    return 0;
}

static int await_report(struct blast_account *account, int socket) {
    for (int i = 0; i < ENDS; i++) {
        struct header header;
        put_header(buffer, KIND_END, account->datagrams.sent);
        send(socket, buffer, HEADER_BYTES, 0);
        if (blast_wait(account, NULL, socket, POLLIN, END_WAIT_NS) <= 0)
            continue;
        ssize_t got = recv(socket, buffer, sizeof(buffer), 0);
        if (!read_header(buffer, got, &header) || header.kind != KIND_REPORT)
            continue;
        account->peer = cJSON_ParseWithLength((const char *)buffer + HEADER_BYTES, (size_t)got - HEADER_BYTES);
        if (account->peer)
            return 0;
    }
    return blast_failed(0, "the receiver told nothing; is `chart-blast receive --udp` there?");
}

int blast_datagram_send(struct blast_account *account, int socket) {
    const struct chart_paced_options options = {
        .fallback_bps = account->options->fallback_bps, .changed = rate_changed, .context = account};
    struct chart_paced *paced;
    int error = chart_paced_open(socket, &options, &paced);
    if (error)
        return blast_failed(error, "the flow cannot be paced");
    blast_fill(buffer, sizeof(buffer));
    error = send_all(account, socket, paced);
    chart_paced_close(paced);
    if (!error)
        error = await_report(account, socket);
    blast_account_close(account);
    return error;
}

static void take_data(struct blast_account *account, uint64_t number, size_t length) {
    static uint64_t seen[WINDOW / 64];
    struct blast_datagrams *datagrams = &account->datagrams;
    if (number > datagrams->highest) {
        uint64_t from = number - datagrams->highest > WINDOW ? number - WINDOW : datagrams->highest;
        for (uint64_t i = from + 1; i <= number; i++)
            seen[i % WINDOW / 64] &= ~(1ull << i % 64);
        datagrams->highest = number;
    } else {
        bool known = datagrams->highest - number < WINDOW && (seen[number % WINDOW / 64] >> number % 64 & 1);
        datagrams->duplicates += known;
        datagrams->reordered += !known;
        if (known)
            return;
    }
    seen[number % WINDOW / 64] |= 1ull << number % 64;
    datagrams->received++;
    blast_account_bytes(account, buffer, length);
}

static void tell(struct blast_account *account, int socket) {
    struct cJSON *brief = blast_account_brief(account);
    char *text = cJSON_PrintUnformatted(brief);
    size_t length = text ? strlen(text) : 0;
    put_header(buffer, KIND_REPORT, account->datagrams.received);
    if (text && length < sizeof(buffer) - HEADER_BYTES) {
        memcpy(buffer + HEADER_BYTES, text, length);
        send(socket, buffer, HEADER_BYTES + length, 0);
    }
    free(text);
    cJSON_Delete(brief);
}

/* The first sender is the one; everybody else's datagrams are not this flow's. */
static bool belongs(struct blast_account *account, int socket, const struct sockaddr_storage *from, socklen_t size) {
    if (account->start_ns)
        return true;
    account->start_ns = account->open_ns = chart_now_ns();
    return connect(socket, (const struct sockaddr *)from, size) == 0;
}

int blast_datagram_receive(struct blast_account *account, int socket) {
    uint64_t moved_ns = chart_now_ns();
    bool ended = false;
    while (!blast_stop) {
        struct sockaddr_storage from;
        socklen_t size = sizeof(from);
        struct header header;
        int ready = blast_wait(account, NULL, socket, POLLIN, LOOK_NS);
        uint64_t now_ns = chart_now_ns();
        ssize_t got = ready > 0 ? recvfrom(socket, buffer, sizeof(buffer), 0, (struct sockaddr *)&from, &size) : -1;
        if (ended && now_ns - moved_ns > 2 * END_WAIT_NS)
            return 0;
        if (account->start_ns && !ended && now_ns - moved_ns > (uint64_t)(account->options->timeout_s * 1e9))
            return blast_failed(0, "nothing came for %g s", account->options->timeout_s);
        if (read_header(buffer, got, &header) && belongs(account, socket, &from, size)) {
            moved_ns = now_ns;
            if (header.kind == KIND_DATA && !ended) {
                account->end_ns = now_ns;
                take_data(account, header.number, (size_t)got);
            } else if (header.kind == KIND_END) {
                account->datagrams.sent = header.number;
                if (!ended)
                    blast_account_close(account);
                ended = true;
                tell(account, socket);
            }
        }
        if (account->start_ns && !ended)
            blast_account_tick(account, now_ns);
    }
    if (!ended)
        blast_account_close(account);
    return ended ? 0 : blast_failed(0, "stopped before the sender's end came");
}
