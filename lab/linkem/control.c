/* The control socket, see control.h. */
#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "json.h"

static char *finish(cJSON *answer) {
    char *text = cJSON_PrintUnformatted(answer);
    cJSON_Delete(answer);
    return text;
}

static char *refuse(const char *sentence) {
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddBoolToObject(answer, "ok", false);
    cJSON_AddStringToObject(answer, "error", sentence);
    return finish(answer);
}

static cJSON *accept_command(void) {
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddBoolToObject(answer, "ok", true);
    return answer;
}

static bool names(const cJSON *command, const char *member, const char *value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(command, member);
    return cJSON_IsString(item) && strcmp(item->valuestring, value) == 0;
}

/* Directions a command speaks of: bit 0 forward, bit 1 reverse, 0 when it is not clear. */
static unsigned directions(const cJSON *command) {
    if (!cJSON_HasObjectItem(command, "direction") || names(command, "direction", "both"))
        return 3;
    return names(command, "direction", "forward") ? 1 : names(command, "direction", "reverse") ? 2 : 0;
}

static char *answer_set(struct link *link, const cJSON *command, uint64_t now_ns) {
    char message[256];
    struct direction *all[] = {&link->forward, &link->reverse};
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(command, "parameters");
    struct parameters changed[2];
    for (unsigned i = 0; i < 2; i++) {
        changed[i] = all[i]->parameters;
        if ((directions(command) & 1U << i) && json_to_parameters(given, &changed[i], message, sizeof(message)) < 0)
            return refuse(message);
    }
    for (unsigned i = 0; i < 2; i++)
        if (directions(command) & 1U << i)
            direction_set(all[i], &changed[i], now_ns);
    return finish(accept_command());
}

static char *answer_outage(struct link *link, const cJSON *command, uint64_t now_ns) {
    const cJSON *duration = cJSON_GetObjectItemCaseSensitive(command, "duration_us");
    if (duration && !(cJSON_IsNumber(duration) && duration->valuedouble >= 0 && duration->valuedouble < 1e12))
        return refuse("duration_us must be a number of microseconds, 0 for an outage without end");
    uint64_t duration_ns = duration ? (uint64_t)duration->valuedouble * 1000 : 0;
    if (directions(command) & 1)
        direction_outage(&link->forward, duration_ns, now_ns);
    if (directions(command) & 2)
        direction_outage(&link->reverse, duration_ns, now_ns);
    return finish(accept_command());
}

static char *answer_link(struct link *link, const cJSON *command) {
    const cJSON *spin = cJSON_GetObjectItemCaseSensitive(command, "spin_us");
    if (!cJSON_IsNumber(spin) || spin->valuedouble < 0 || spin->valuedouble > 1000)
        return refuse("spin_us must be a number from 0 to 1000");
    link->spin_ns = (uint64_t)(spin->valuedouble * 1000);
    return finish(accept_command());
}

static char *answer_get(struct link *link, const cJSON *command, uint64_t now_ns) {
    cJSON *answer = accept_command();
    bool counters = names(command, "command", "counters");
    cJSON_AddItemToObject(answer, "forward",
                          counters ? json_from_counters(&link->forward, now_ns)
                                   : json_from_parameters(&link->forward.parameters));
    cJSON_AddItemToObject(answer, "reverse",
                          counters ? json_from_counters(&link->reverse, now_ns)
                                   : json_from_parameters(&link->reverse.parameters));
    cJSON_AddNumberToObject(answer, "spin_us", (double)link->spin_ns / 1e3);
    cJSON_AddNumberToObject(answer, "now_ns", (double)now_ns);
    return finish(answer);
}

static char *answer_command(struct link *link, const cJSON *command, uint64_t now_ns) {
    if (!directions(command))
        return refuse("direction must be forward, reverse or both");
    if (names(command, "command", "set"))
        return answer_set(link, command, now_ns);
    if (names(command, "command", "outage"))
        return answer_outage(link, command, now_ns);
    if (names(command, "command", "link"))
        return answer_link(link, command);
    if (names(command, "command", "get") || names(command, "command", "counters"))
        return answer_get(link, command, now_ns);
    if (names(command, "command", "reset")) {
        direction_reset_counters(&link->forward, now_ns);
        direction_reset_counters(&link->reverse, now_ns);
        return finish(accept_command());
    }
    if (names(command, "command", "quit")) {
        link->stop = true;
        return finish(accept_command());
    }
    return refuse("command must be set, outage, link, get, counters, reset or quit");
}

char *control_answer(struct link *link, const char *line, uint64_t now_ns) {
    cJSON *command = cJSON_Parse(line);
    if (!command)
        return refuse("not a JSON object");
    char *answer = answer_command(link, command, now_ns);
    cJSON_Delete(command);
    return answer;
}

int control_open(struct control *control, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    for (int i = 0; i < CONTROL_CLIENTS; i++)
        control->clients[i].descriptor = -1;
    control->listener = -1;
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    unlink(path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return -errno;
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, CONTROL_CLIENTS) < 0) {
        int error = -errno;
        close(listener);
        return error;
    }
    control->listener = listener;
    return 0;
}

void control_close(struct control *control) {
    for (int i = 0; i < CONTROL_CLIENTS; i++)
        if (control->clients[i].descriptor >= 0)
            close(control->clients[i].descriptor);
    if (control->listener >= 0)
        close(control->listener);
}

size_t control_poll_entries(const struct control *control, struct pollfd *entries) {
    size_t count = 0;
    entries[count++] = (struct pollfd){.fd = control->listener, .events = POLLIN};
    for (int i = 0; i < CONTROL_CLIENTS; i++)
        entries[count++] = (struct pollfd){.fd = control->clients[i].descriptor, .events = POLLIN};
    return count;
}

static void hang_up(struct control_client *client) {
    close(client->descriptor);
    client->descriptor = -1;
    client->used = 0;
}

static void serve_client(struct control_client *client, struct link *link, uint64_t now_ns) {
    ssize_t got = recv(client->descriptor, client->line + client->used, CONTROL_LINE_BYTES - 1 - client->used, 0);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            hang_up(client);
        return;
    }
    client->used += (size_t)got;
    client->line[client->used] = '\0';
    char *end;
    while ((end = strchr(client->line, '\n'))) {
        *end = '\0';
        char *answer = control_answer(link, client->line, now_ns);
        /* An answer is smaller than the socket's buffer; whoever does not read loses the connection. */
        bool sent = answer && dprintf(client->descriptor, "%s\n", answer) > 0;
        free(answer);
        if (!sent) {
            hang_up(client);
            return;
        }
        client->used -= (size_t)(end + 1 - client->line);
        memmove(client->line, end + 1, client->used + 1);
    }
    if (client->used == CONTROL_LINE_BYTES - 1)
        hang_up(client);
}

void control_serve(struct control *control, const struct pollfd *entries, size_t count, struct link *link,
                   uint64_t now_ns) {
    for (size_t i = 1; i < count; i++)
        if (entries[i].revents && control->clients[i - 1].descriptor >= 0)
            serve_client(&control->clients[i - 1], link, now_ns);
    if (!entries[0].revents)
        return;
    int descriptor = accept4(control->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0)
        return;
    for (int i = 0; i < CONTROL_CLIENTS; i++) {
        if (control->clients[i].descriptor < 0) {
            control->clients[i].descriptor = descriptor;
            return;
        }
    }
    close(descriptor);
}
