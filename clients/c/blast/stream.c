/* A TCP flow: octets one way until the sender has no more, then one line of JSON back in which the receiver tells what
 * it got. */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "flow.h"

#define CHUNK_BYTES (256u * 1024)
#define LOOK_NS 100000000ull
#define REPORT_BYTES_MAX 65536u

static uint8_t block[BLAST_BLOCK_BYTES];

void blast_fill(uint8_t *target, size_t length) {
    uint64_t state = 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < length; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        target[i] = (uint8_t)(state >> 32);
    }
}

static uint64_t timeout_ns(const struct blast_account *account) {
    return (uint64_t)(account->options->timeout_s * (double)CHART_NS_PER_S);
}

/* How much may go now: what is left of the bytes, or all until the time is over. */
static size_t allowance(const struct blast_account *account, uint64_t now_ns) {
    const struct blast_options *options = account->options;
    uint64_t position = account->bytes % BLAST_BLOCK_BYTES;
    uint64_t most = BLAST_BLOCK_BYTES - position;
    if (options->bytes && options->bytes - account->bytes < most)
        most = options->bytes - account->bytes;
    if (!options->bytes && (double)(now_ns - account->start_ns) >= options->duration_s * (double)CHART_NS_PER_S)
        most = 0;
    if (blast_stop)
        most = 0;
    return most < CHUNK_BYTES ? most : CHUNK_BYTES;
}

static int send_all(struct blast_account *account, int socket, struct chart_watch *watch) {
    uint64_t moved_ns = chart_now_ns();
    size_t length;
    while ((length = allowance(account, chart_now_ns())) > 0) {
        const uint8_t *from = block + account->bytes % BLAST_BLOCK_BYTES;
        int ready = blast_wait(account, watch, socket, POLLOUT, LOOK_NS);
        uint64_t now_ns = chart_now_ns();
        if (ready < 0)
            return blast_failed(ready, "waiting for the flow");
        ssize_t sent = ready ? send(socket, from, length, MSG_NOSIGNAL) : 0;
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return blast_failed(-errno, "the flow broke after %llu octets", (unsigned long long)account->bytes);
        if (sent > 0) {
            blast_account_bytes(account, from, (size_t)sent);
            moved_ns = now_ns;
        } else if (now_ns - moved_ns > timeout_ns(account)) {
            return blast_failed(0, "nothing could be sent for %g s", account->options->timeout_s);
        }
        blast_account_tick(account, now_ns);
    }
    return 0;
}

/* What the receiver tells at the end. While octets wait to be acknowledged, their number going down is progress. */
static int await_report(struct blast_account *account, int socket, struct chart_watch *watch) {
    static char text[REPORT_BYTES_MAX];
    size_t length = 0;
    int waiting_before = 0;
    uint64_t moved_ns = chart_now_ns();
    for (;;) {
        int waiting = 0, ready = blast_wait(account, watch, socket, POLLIN, LOOK_NS);
        uint64_t now_ns = chart_now_ns();
        ssize_t got = ready > 0 ? recv(socket, text + length, sizeof(text) - 1 - length, 0) : -1;
        if (got == 0)
            break;
        if (ready < 0 || (ready > 0 && got < 0 && errno != EAGAIN && errno != EINTR))
            return blast_failed(ready < 0 ? ready : -errno, "the receiver went away before it told what it got");
        ioctl(socket, SIOCOUTQ, &waiting);
        if (got > 0 || waiting != waiting_before)
            moved_ns = now_ns;
        else if (now_ns - moved_ns > timeout_ns(account))
            return blast_failed(0, "the receiver told nothing for %g s", account->options->timeout_s);
        waiting_before = waiting;
        length += got > 0 ? (size_t)got : 0;
        if (length == sizeof(text) - 1)
            return blast_failed(0, "what the receiver tells is too long; is it chart-blast?");
    }
    account->end_ns = chart_now_ns();
    account->peer = cJSON_ParseWithLength(text, length);
    return account->peer ? 0 : blast_failed(0, "the receiver told nothing of what it got; is it chart-blast?");
}

int blast_stream_send(struct blast_account *account, int socket) {
    struct chart_watch *watch = NULL;
    if (account->options->asks && !account->request_error)
        chart_watch_open(socket, &watch);
    blast_fill(block, sizeof(block));
    int error = send_all(account, socket, watch);
    if (!error && shutdown(socket, SHUT_WR))
        error = blast_failed(-errno, "ending the flow");
    if (!error)
        error = await_report(account, socket, watch);
    chart_watch_close(watch);
    blast_account_close(account);
    return error;
}

static int tell(struct blast_account *account, int socket) {
    struct cJSON *brief = blast_account_brief(account);
    char *text = cJSON_PrintUnformatted(brief);
    size_t length = text ? strlen(text) : 0, sent = 0;
    int error = text ? 0 : -ENOMEM;
    while (!error && sent < length) {
        ssize_t part = send(socket, text + sent, length - sent, MSG_NOSIGNAL);
        if (part > 0)
            sent += (size_t)part;
        else if (errno != EAGAIN && errno != EINTR)
            error = -errno;
        else if (blast_wait(account, NULL, socket, POLLOUT, timeout_ns(account)) <= 0)
            error = -ETIMEDOUT;
    }
    free(text);
    cJSON_Delete(brief);
    return error ? blast_failed(error, "the sender could not be told what came") : 0;
}

int blast_stream_receive(struct blast_account *account, int socket) {
    uint64_t moved_ns = chart_now_ns();
    int error = 0;
    while (!error) {
        int ready = blast_wait(account, NULL, socket, POLLIN, LOOK_NS);
        uint64_t now_ns = chart_now_ns();
        ssize_t got = ready > 0 ? recv(socket, block, sizeof(block), 0) : -1;
        if (got == 0 || blast_stop)
            break;
        if (ready < 0 || (ready > 0 && got < 0 && errno != EAGAIN && errno != EINTR))
            error = blast_failed(ready < 0 ? ready : -errno, "the flow broke after %llu octets",
                                 (unsigned long long)account->bytes);
        else if (got < 0 && now_ns - moved_ns > timeout_ns(account))
            error = blast_failed(0, "nothing came for %g s", account->options->timeout_s);
        if (got > 0) {
            blast_account_bytes(account, block, (size_t)got);
            moved_ns = now_ns;
        }
        blast_account_tick(account, now_ns);
    }
    blast_account_close(account);
    return error ? error : tell(account, socket);
}
