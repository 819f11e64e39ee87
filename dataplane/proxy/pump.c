/* See pump.h. */
#define _GNU_SOURCE
#include "pump.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHARE_BYTES (1024 * 1024)

void pump_init(struct pump *pump, int from, int to) {
    *pump = (struct pump){.from = from, .to = to, .pipe = {-1, -1}};
}

static int take_pipe(struct pump *pump, struct pipes *pipes) {
    if (pipes->count) {
        pipes->count--;
        pump->pipe[0] = pipes->kept[pipes->count][0];
        pump->pipe[1] = pipes->kept[pipes->count][1];
        return 0;
    }
    if (pipe2(pump->pipe, O_NONBLOCK | O_CLOEXEC) < 0)
        return -1;
    /* A smaller one does, only more slowly: the kernel gives less to who has many. */
    (void)fcntl(pump->pipe[1], F_SETPIPE_SZ, PIPE_BYTES);
    return 0;
}

static void give_pipe(struct pump *pump, struct pipes *pipes) {
    if (pump->pipe[0] < 0)
        return;
    if (!pump->waiting && pipes->count < PIPES_KEPT) {
        pipes->kept[pipes->count][0] = pump->pipe[0];
        pipes->kept[pipes->count][1] = pump->pipe[1];
        pipes->count++;
    } else {
        close(pump->pipe[0]);
        close(pump->pipe[1]);
    }
    pump->pipe[0] = pump->pipe[1] = -1;
}

void pump_close(struct pump *pump, struct pipes *pipes) {
    give_pipe(pump, pipes);
    pump->waiting = 0;
}

void pipes_close(struct pipes *pipes) {
    while (pipes->count) {
        pipes->count--;
        close(pipes->kept[pipes->count][0]);
        close(pipes->kept[pipes->count][1]);
    }
}

static bool would_wait(void) {
    return errno == EAGAIN || errno == EINTR;
}

/* False: it broke. */
static bool fill(struct pump *pump, size_t *moved) {
    if (pump->ended || pump->waiting >= PIPE_BYTES)
        return true;
    ssize_t got =
        splice(pump->from, NULL, pump->pipe[1], NULL, PIPE_BYTES - pump->waiting, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (got < 0)
        return would_wait();
    if (got == 0)
        pump->ended = true;
    pump->waiting += (size_t)got;
    *moved += (size_t)got;
    return true;
}

static bool drain(struct pump *pump, size_t *moved) {
    if (!pump->waiting)
        return true;
    ssize_t sent = splice(pump->pipe[0], NULL, pump->to, NULL, pump->waiting, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (sent < 0)
        return would_wait();
    pump->waiting -= (size_t)sent;
    pump->bytes += (uint64_t)sent;
    *moved += (size_t)sent;
    return true;
}

bool pump_rest(struct pump *pump, struct pipes *pipes) {
    size_t moved;
    if (pump->finished || (pump->pipe[0] < 0 && take_pipe(pump, pipes) < 0))
        return true;
    do {
        moved = 0;
        /* What cannot be read any more is not there; what cannot be sent any more is lost. */
        bool read = fill(pump, &moved);
        if (!drain(pump, &moved))
            return true;
        pump->ended |= !read;
    } while (moved);
    if (pump->waiting)
        return false;
    give_pipe(pump, pipes);
    return true;
}

enum pump_result pump_run(struct pump *pump, struct pipes *pipes) {
    size_t total = 0, moved;
    if (pump->finished)
        return PUMP_DONE;
    if (pump->pipe[0] < 0 && take_pipe(pump, pipes) < 0)
        return PUMP_RESET;
    do {
        moved = 0;
        if (!fill(pump, &moved))
            return PUMP_RESET;
        if (!drain(pump, &moved)) {
            pump->to_broke = true;
            return PUMP_RESET;
        }
        total += moved;
    } while (moved && total < SHARE_BYTES);
    if (!pump->waiting)
        give_pipe(pump, pipes);
    if (pump->ended && !pump->waiting) {
        /* Where the other side has closed already there is nobody to tell. */
        if (shutdown(pump->to, SHUT_WR) < 0 && errno != ENOTCONN)
            return PUMP_RESET;
        pump->finished = true;
        return PUMP_DONE;
    }
    return moved ? PUMP_MORE : PUMP_IDLE;
}
