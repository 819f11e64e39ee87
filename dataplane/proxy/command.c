/* See command.h. */
#define _GNU_SOURCE
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int start(char *const arguments[], int input, int output, pid_t *ret) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return -error;
    error = posix_spawnattr_init(&attributes);
    if (error) {
        posix_spawn_file_actions_destroy(&actions);
        return -error;
    }
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    error = posix_spawnp(ret, arguments[0], &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -error;
}

/* Until the other end is closed; false: the time was up. */
static int listen_to(int from, char *said, size_t bytes) {
    long until_ms = now_ms() + COMMAND_LIMIT_MS;
    size_t used = 0;
    char rest[256] = "";
    for (;;) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        long left_ms = until_ms - now_ms();
        int count = left_ms > 0 ? poll(&ready, 1, (int)left_ms) : 0;
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return 0;
        size_t room = bytes - 1 - used;
        ssize_t got = read(from, room ? said + used : rest, room ? room : sizeof(rest));
        if (got <= 0)
            break;
        used += room ? (size_t)got : 0;
    }
    while (used && said[used - 1] == '\n')
        used--;
    said[used] = '\0';
    for (char *line = said; (line = strchr(line, '\n')) != NULL;)
        *line = ' ';
    return 1;
}

int command_run(char *const arguments[], const char *input, char *said, size_t said_bytes) {
    int in[2], out[2], status;
    pid_t child;
    said[0] = '\0';
    if (pipe2(in, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(out, O_CLOEXEC) < 0) {
        int error = -errno;
        close(in[0]), close(in[1]);
        return error;
    }
    int error = start(arguments, in[0], out[1], &child);
    close(in[0]), close(out[1]);
    /* A pipe holds all of it, whether the child reads or not. */
    if (!error && write(in[1], input, strlen(input)) < 0 && errno != EPIPE)
        error = -errno;
    close(in[1]);
    if (!error && !listen_to(out[0], said, said_bytes)) {
        kill(child, SIGKILL);
        error = -ETIME;
    }
    close(out[0]);
    if (error && error != -ETIME)
        return error;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    if (error)
        return error;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
