/* See trinity_share.h. One message: a greeting, and the descriptors beside it. */
#define _GNU_SOURCE
#include "grants/trinity_share.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/agent.h"
#include "core/kernel.h"
#include "core/log.h"
#include "grants/datapath.h"

#define SUFFIX ".sock"
#define N_DESCRIPTORS 4
/* An agent that was stopped, or that hangs, must not hold another one's start up. */
#define ANSWER_LIMIT_US 500000

/* Changes with what is handed over. */
static const char greeting[] = "chart trinity 1";

struct share {
    struct agent *agent;
    int listener;
    struct sockaddr_un address;
};

static int open_socket(int type) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | type, 0);
    return fd < 0 ? -errno : fd;
}

/* The descriptors beside one message; as many as came, all of them open. */
static size_t take_descriptors(struct msghdr *message, int *ret) {
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (count > N_DESCRIPTORS)
        count = N_DESCRIPTORS;
    memcpy(ret, CMSG_DATA(header), count * sizeof(int));
    return count;
}

static int receive(int fd, struct trinity *ret) {
    char text[sizeof(greeting)] = {0};
    int descriptors[N_DESCRIPTORS];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))];
    struct iovec part = {.iov_base = text, .iov_len = sizeof(text)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (length < 0)
        return -errno;
    size_t count = take_descriptors(&message, descriptors);
    if (length == (ssize_t)sizeof(greeting) && memcmp(text, greeting, sizeof(greeting)) == 0 &&
        count == N_DESCRIPTORS && kernel_map_has_name(descriptors[1], "rates") &&
        kernel_map_has_name(descriptors[2], "usage") && kernel_map_has_name(descriptors[3], "flows")) {
        ret->link_fd = descriptors[0];
        ret->rates_fd = descriptors[1];
        ret->usage_fd = descriptors[2];
        ret->flows_fd = descriptors[3];
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        close(descriptors[i]);
    return -EPROTO;
}

static int take_from(const char *name, struct trinity *ret) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_usec = ANSWER_LIMIT_US};
    if (snprintf(address.sun_path, sizeof(address.sun_path), TRINITY_DIRECTORY "/%s", name) >=
        (int)sizeof(address.sun_path))
        return -ENAMETOOLONG;
    int fd = open_socket(0), error = 0;
    if (fd < 0)
        return fd;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
        error = -errno;
    error = error ? error : receive(fd, ret);
    close(fd);
    return error;
}

static int is_socket(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return length > strlen(SUFFIX) && strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX) == 0;
}

int trinity_share_take(struct trinity *ret) {
    struct dirent **entries = NULL;
    int error = -ENOENT, count = scandir(TRINITY_DIRECTORY, &entries, is_socket, NULL);
    if (count < 0)
        return -errno;
    for (int i = 0; i < count; i++) {
        int answer = error ? take_from(entries[i]->d_name, ret) : -ECANCELED;
        if (answer == 0)
            error = 0;
        else if (answer == -EPROTO)
            log_warning("%s hands over what this agent does not know: another version?", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return error;
}

void trinity_share_clear(void) {
    DIR *directory = opendir(TRINITY_DIRECTORY);
    if (!directory)
        return;
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        if (is_socket(entry))
            unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
}

static void hand_over(int fd, const struct trinity *trinity) {
    char text[sizeof(greeting)];
    int descriptors[N_DESCRIPTORS] = {trinity->link_fd, trinity->rates_fd, trinity->usage_fd, trinity->flows_fd};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {0};
    struct iovec part = {.iov_base = text, .iov_len = sizeof(text)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    memcpy(text, greeting, sizeof(greeting));
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(descriptors));
    memcpy(CMSG_DATA(header), descriptors, sizeof(descriptors));
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        log_warning("trinity was not handed over: %s", strerror(errno));
}

static void serve(void *context, uint32_t events) {
    struct share *share = context;
    (void)events;
    int fd = accept4(share->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    hand_over(fd, datapath_trinity(datapath_of(share->agent)));
    close(fd);
}

static int listen_here(struct share *share) {
    struct stat namespace;
    if (stat("/proc/self/ns/net", &namespace))
        return -errno;
    share->address.sun_family = AF_UNIX;
    snprintf(share->address.sun_path, sizeof(share->address.sun_path), TRINITY_DIRECTORY "/%lu" SUFFIX,
             (unsigned long)namespace.st_ino);
    share->listener = open_socket(SOCK_NONBLOCK);
    if (share->listener < 0)
        return share->listener;
    unlink(share->address.sun_path);
    if (bind(share->listener, (struct sockaddr *)&share->address, sizeof(share->address)) ||
        chmod(share->address.sun_path, 0600) || listen(share->listener, 16))
        return -errno;
    return agent_add_fd(share->agent, share->listener, EPOLLIN, serve, share);
}

static void close_module(void *state) {
    struct share *share = state;
    if (share->listener >= 0) {
        agent_remove_fd(share->agent, share->listener);
        unlink(share->address.sun_path);
        close(share->listener);
    }
    free(share);
}

static int open_module(struct agent *agent, void **ret_state) {
    struct share *share = calloc(1, sizeof(*share));
    if (!share)
        return -ENOMEM;
    share->agent = agent;
    share->listener = -1;
    int error = listen_here(share);
    /* An agent works without it; only others of this kernel may not. */
    if (error)
        log_warning("cannot listen on %s (%s): an agent without CAP_SYS_ADMIN cannot join trinity from this one",
                    share->address.sun_path, strerror(-error));
    *ret_state = share;
    return 0;
}

const struct agent_module trinity_share_module = {
    .name = "sharing of trinity", .open = open_module, .close = close_module};
