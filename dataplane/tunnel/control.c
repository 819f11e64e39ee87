/* The control socket, see control.h. */
#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

bool control_names(const cJSON *command, const char *member, const char *value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(command, member);
    return cJSON_IsString(item) && strcmp(item->valuestring, value) == 0;
}

static int address_of(const char *path, struct sockaddr_un *ret) {
    memset(ret, 0, sizeof(*ret));
    ret->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(ret->sun_path))
        return -ENAMETOOLONG;
    snprintf(ret->sun_path, sizeof(ret->sun_path), "%s", path);
    return 0;
}

static int connect_to(const char *path) {
    struct sockaddr_un address;
    int error = address_of(path, &address);
    if (error < 0)
        return error;
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return -errno;
    if (connect(descriptor, (struct sockaddr *)&address, sizeof(address)) < 0) {
        error = -errno;
        close(descriptor);
        return error;
    }
    return descriptor;
}

static int failed(const char *path, int error) {
    fprintf(stderr, "chart-tunnel: control socket %s: %s\n", path, strerror(-error));
    return error;
}

void control_init(struct control *control) {
    *control = (struct control){.listener = -1};
    for (int i = 0; i < CONTROL_CLIENTS; i++)
        control->clients[i].descriptor = -1;
}

int control_open(struct control *control, const char *path, control_answer *answer, void *context) {
    struct sockaddr_un address;
    control_init(control);
    control->path = path;
    control->answer = answer;
    control->context = context;
    int error = address_of(path, &address);
    if (error < 0)
        return failed(path, error);
    int other = connect_to(path);
    if (other >= 0) {
        close(other);
        return failed(path, -EADDRINUSE);
    }
    unlink(path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return failed(path, -errno);
    mode_t mask = umask(0077);
    int result = bind(listener, (struct sockaddr *)&address, sizeof(address));
    error = -errno;
    umask(mask);
    if (result == 0 && listen(listener, CONTROL_CLIENTS) == 0) {
        control->listener = listener;
        return 0;
    }
    close(listener);
    return failed(path, error);
}

void control_close(struct control *control) {
    for (int i = 0; i < CONTROL_CLIENTS; i++)
        if (control->clients[i].descriptor >= 0)
            close(control->clients[i].descriptor);
    if (control->listener >= 0) {
        close(control->listener);
        unlink(control->path);
    }
}

int control_accept(struct control *control) {
    int descriptor = accept4(control->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0)
        return -1;
    for (int i = 0; i < CONTROL_CLIENTS; i++) {
        if (control->clients[i].descriptor < 0) {
            control->clients[i].descriptor = descriptor;
            control->clients[i].used = 0;
            return i;
        }
    }
    close(descriptor);
    return -1;
}

static char *answer_line(struct control *control, const char *line) {
    const char *error = NULL;
    cJSON *command = cJSON_Parse(line), *answer = cJSON_CreateObject();
    if (!cJSON_IsObject(command))
        error = "not a JSON object";
    else
        control->answer(control->context, command, answer, &error);
    if (error) {
        cJSON_Delete(answer);
        answer = cJSON_CreateObject();
        cJSON_AddStringToObject(answer, "error", error);
    }
    cJSON_AddBoolToObject(answer, "ok", !error);
    char *text = cJSON_PrintUnformatted(answer);
    cJSON_Delete(answer);
    cJSON_Delete(command);
    return text;
}

static bool send_line(int descriptor, const char *text) {
    size_t bytes = strlen(text);
    char *line = malloc(bytes + 1);
    if (!line)
        return false;
    memcpy(line, text, bytes);
    line[bytes] = '\n';
    /* An answer is smaller than the socket's buffer; whoever does not read loses the connection. */
    bool sent = send(descriptor, line, bytes + 1, MSG_NOSIGNAL) == (ssize_t)(bytes + 1);
    free(line);
    return sent;
}

static bool hang_up(struct control_client *client) {
    close(client->descriptor);
    client->descriptor = -1;
    return false;
}

bool control_serve(struct control *control, int index) {
    struct control_client *client = &control->clients[index];
    char *end;
    ssize_t got = recv(client->descriptor, client->line + client->used, CONTROL_LINE_BYTES - 1 - client->used, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0)
        return hang_up(client);
    client->used += (size_t)got;
    client->line[client->used] = '\0';
    while ((end = memchr(client->line, '\n', client->used))) {
        *end = '\0';
        char *answer = answer_line(control, client->line);
        bool sent = answer && send_line(client->descriptor, answer);
        free(answer);
        if (!sent)
            return hang_up(client);
        client->used -= (size_t)(end + 1 - client->line);
        memmove(client->line, end + 1, client->used + 1);
    }
    return client->used < CONTROL_LINE_BYTES - 1 ? true : hang_up(client);
}

char *control_ask(const char *path, const char *line) {
    const struct timeval limit = {.tv_sec = 2};
    char *buffer = malloc(CONTROL_ANSWER_BYTES);
    size_t used = 0;
    int descriptor = buffer ? connect_to(path) : -ENOMEM;
    if (descriptor < 0) {
        failed(path, descriptor);
        free(buffer);
        return NULL;
    }
    (void)setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    bool asked = send_line(descriptor, line);
    while (asked && used < CONTROL_ANSWER_BYTES - 1 && !(used && buffer[used - 1] == '\n')) {
        ssize_t got = recv(descriptor, buffer + used, CONTROL_ANSWER_BYTES - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(descriptor);
    if (!used || buffer[used - 1] != '\n') {
        fprintf(stderr, "chart-tunnel: %s gave no answer\n", path);
        free(buffer);
        return NULL;
    }
    buffer[used] = '\0';
    return buffer;
}
