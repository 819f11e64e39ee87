/* See notify.h. */
#include "notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A manager that does not listen is no reason to wait: what it misses it asks for with its time limits. */
static void send_state(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0)
        return;
    (void)sendto(descriptor, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    close(descriptor);
}

void notify_ready(void) {
    send_state("READY=1");
}

void notify_stopping(void) {
    send_state("STOPPING=1");
}

/* A number of the environment; 0: none. */
static uint64_t number(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || text[0] < '0' || text[0] > '9')
        return 0;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    return errno || *end ? 0 : value;
}

uint64_t notify_period_us(void) {
    uint64_t whom = number("WATCHDOG_PID");
    if (whom && whom != (uint64_t)getpid())
        return 0;
    return number("WATCHDOG_USEC") / 2;
}

void notify_alive(void) {
    send_state("WATCHDOG=1");
}

void notify_alive_at(uint64_t now_us) {
    static uint64_t next_us;
    uint64_t period_us = notify_period_us();
    if (!period_us || now_us < next_us)
        return;
    notify_alive();
    next_us = now_us + period_us;
}
