/* The tunnel's side of an application's process, see process.h. */
#define _GNU_SOURCE
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "loop.h"

/* A process that ended is there to be asked how after about as long. */
#define ENDING_MS 5
#define PROGRAM "/proc/self/exe"

int process_arena(uint8_t **ret) {
    int descriptor = memfd_create("chart-tunnel-packets", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0)
        return -errno;
    void *arena = MAP_FAILED;
    if (ftruncate(descriptor, EXCHANGE_ARENA_BYTES) == 0)
        arena = mmap(NULL, EXCHANGE_ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    /* Whoever gets the descriptor can map it to read only, and cannot cut it. */
    if (arena == MAP_FAILED ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
        int error = -errno;
        if (arena != MAP_FAILED)
            munmap(arena, EXCHANGE_ARENA_BYTES);
        close(descriptor);
        return error;
    }
    *ret = arena;
    return descriptor;
}

static int spawn(pid_t *ret, const char *file, const char *argument, int socket, int arena) {
    char program[] = "chart-tunnel", role[] = HOST_ROLE, *environment[] = {NULL};
    char *arguments[] = {program, role, (char *)file, (char *)argument, NULL};
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return -error;
    /* Above the two numbers first: one of the two could have the other's. Keys and sockets of the end stay out. */
    int far = fcntl(socket, F_DUPFD_CLOEXEC, 16), far_arena = fcntl(arena, F_DUPFD_CLOEXEC, 16);
    error = far < 0 || far_arena < 0 ? errno : 0;
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, far, EXCHANGE_SOCKET);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, far_arena, EXCHANGE_ARENA);
    if (!error)
        error = posix_spawn_file_actions_addclosefrom_np(&actions, EXCHANGE_ARENA + 1);
    if (!error)
        error = posix_spawn(ret, PROGRAM, &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (far >= 0)
        close(far);
    if (far_arena >= 0)
        close(far_arena);
    return -error;
}

int process_start(struct process *process, const char *file, const char *argument, int arena) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    *process = (struct process){.socket = pair[0]};
    int error = spawn(&process->pid, file, argument, pair[1], arena);
    close(pair[1]);
    if (error) {
        close(pair[0]);
        *process = (struct process){.socket = -1};
    }
    return error;
}

int process_started(struct process *process, struct exchange_answer *ret) {
    ssize_t got = recv(process->socket, ret, sizeof(*ret), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (got <= 0)
        return -ECONNRESET;
    if (got != (ssize_t)sizeof(*ret) || (ret->kind != EXCHANGE_READY && ret->kind != EXCHANGE_REFUSED))
        return -EBADMSG;
    ret->sentence[sizeof(ret->sentence) - 1] = '\0';
    if (ret->kind == EXCHANGE_READY)
        ret->name[sizeof(ret->name) - 1] = '\0';
    return 0;
}

static size_t request_bytes(const struct exchange_request *request) {
    return request->kind == EXCHANGE_CONFIGURE
               ? sizeof(*request)
               : offsetof(struct exchange_request, packets) + request->count * sizeof(request->packets[0]);
}

/* Until the socket can be read, or the limit: 0 or -ETIME. */
static int wait_for_answer(int socket, uint64_t until_us) {
    struct pollfd waited = {.fd = socket, .events = POLLIN};
    for (;;) {
        uint64_t now_us = loop_now_us();
        if (now_us >= until_us)
            return -ETIME;
        struct timespec left = {.tv_nsec = (long)(until_us - now_us) * 1000};
        int ready = ppoll(&waited, 1, &left, NULL);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return -errno;
    }
}

static bool answers(const struct exchange_request *request, const struct exchange_answer *answer) {
    if (answer->number != request->number)
        return false;
    if (request->kind == EXCHANGE_CONFIGURE)
        return answer->kind == EXCHANGE_DONE || answer->kind == EXCHANGE_REFUSED;
    if (answer->kind != EXCHANGE_DONE || answer->count != request->count)
        return false;
    for (uint32_t i = 0; i < answer->count; i++)
        if ((unsigned)answer->actions[i].verdict >= ITM_VERDICTS)
            return false;
    return true;
}

int process_ask(struct process *process, struct exchange_request *request, uint64_t limit_us,
                struct exchange_answer *ret) {
    size_t bytes = request_bytes(request);
    uint64_t until_us = loop_now_us() + limit_us;
    request->number = ++process->number;
    if (send(process->socket, request, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)bytes)
        return errno == EAGAIN ? -ETIME : -ECONNRESET;
    int error = wait_for_answer(process->socket, until_us);
    if (error)
        return error;
    ssize_t got = recv(process->socket, ret, sizeof(*ret), MSG_DONTWAIT);
    if (got <= 0)
        return -ECONNRESET;
    if (got != (ssize_t)sizeof(*ret) || !answers(request, ret))
        return -EBADMSG;
    if (ret->kind == EXCHANGE_REFUSED)
        ret->sentence[sizeof(ret->sentence) - 1] = '\0';
    return 0;
}

void process_how(struct process *process, char ret[PROCESS_FAULT_BYTES]) {
    static const struct timespec MOMENT = {.tv_nsec = 1000000};
    int status = 0;
    pid_t ended = 0;
    ret[0] = '\0';
    for (int i = 0; process->pid && !ended && i < ENDING_MS; i++) {
        ended = waitpid(process->pid, &status, WNOHANG);
        if (!ended)
            (void)nanosleep(&MOMENT, NULL);
    }
    if (ended != process->pid || !ended)
        return;
    process->pid = 0;
    if (WIFSIGNALED(status))
        snprintf(ret, PROCESS_FAULT_BYTES, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(ret, PROCESS_FAULT_BYTES, "exit status %d", WEXITSTATUS(status));
}

void process_end(struct process *process) {
    if (process->socket >= 0)
        close(process->socket);
    if (process->pid)
        kill(process->pid, SIGKILL);
    *process = (struct process){.socket = -1};
    process_reap();
}

void process_reap(void) {
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}
