/* See control.h. This file: the command's end of the socket, and --cleanup. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/control.h"
#include "grants/datapath.h"
#include "grants/kept_mode.h"
#include "links/htb.h"
#include "node/changes.h"
#include "overlay_maps.h"
#include "paths/overlay_device.h"

#define ANSWER_TIMEOUT_S 5

static int dial(const char *state_dir) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
    if (snprintf(address.sun_path, sizeof(address.sun_path), "%s/agent.sock", state_dir) >=
        (int)sizeof(address.sun_path))
        return -ENAMETOOLONG;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

/* The whole answer; the caller frees it. */
static char *ask(int fd, const char *command, const char *flow) {
    struct cJSON *request = cJSON_CreateObject();
    char *text, *whole = NULL;
    size_t used = 0;
    cJSON_AddStringToObject(request, "command", command);
    if (flow)
        cJSON_AddStringToObject(request, "flow", flow);
    text = cJSON_PrintUnformatted(request);
    cJSON_Delete(request);
    ssize_t length = text ? send(fd, text, strlen(text), MSG_NOSIGNAL) : -1;
    free(text);
    while (length > 0) {
        char *larger = realloc(whole, used + 65536 + 1);
        if (!larger)
            break;
        whole = larger;
        length = recv(fd, whole + used, 65536, 0);
        if (length > 0)
            used += (size_t)length;
        whole[used] = '\0';
    }
    return whole;
}

static double number(const struct cJSON *object, const char *name) {
    const struct cJSON *field = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(field) ? field->valuedouble : 0;
}

static const char *string(const struct cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

static void print_people(const struct cJSON *answer) {
    const struct cJSON *item;
    if (cJSON_HasObjectItem(answer, "node"))
        printf("node %s, enforcement %s\n", string(answer, "node"), string(answer, "enforcement"));
    if ((item = cJSON_GetObjectItemCaseSensitive(answer, "kernel")))
        printf("kernel %s: classifiers by %s, trinity by %s%s\n", string(item, "release"), string(item, "classifiers"),
               string(item, "trinity"),
               cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "outlives_agent"))
                   ? "; after a kill: the next start or --cleanup removes them"
                   : "");
    if ((item = cJSON_GetObjectItemCaseSensitive(answer, "signalling")))
        printf("in-band signalling %s\n",
               cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "running")) ? "on" : string(item, "error"));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(answer, "grants")) {
        bool would = cJSON_HasObjectItem(item, "would_run_at_bps");
        printf("grant %s: %s%.3f Mb/s, %.0f flows, %.0f octets delivered\n", string(item, "request_id"),
               would ? "would run at " : "", number(item, would ? "would_run_at_bps" : "kernel_rate_bps") / 1e6,
               number(item, "matching_flows"), number(item, "delivered_bytes"));
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(answer, "links")) if (cJSON_HasObjectItem(item, "fault"))
        printf("%s\n", string(item, "fault"));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(answer, "flows")) printf(
        "flow %s -> %s: grant %s, %s, %.3f Mb/s, RTT %.1f ms%s%s\n", string(item, "local"), string(item, "remote"),
        string(item, "request_id"), string(item, "congestion_control"), number(item, "rate_bps") / 1e6,
        number(item, "rtt_us") / 1e3, cJSON_HasObjectItem(item, "cause") ? ": " : "", string(item, "cause"));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(answer, "in_band")) printf(
        "in band %s -> %s: %s, %s, %.3f Mb/s, key epoch %.0f with element %.0f, signalled %.0f ms ago\n",
        string(item, "source"), string(item, "destination"), string(item, "role"), string(item, "state"),
        number(item, "agreed_bps") / 1e6, number(item, "key_epoch"), number(item, "element"), number(item, "age_ms"));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(answer, "advised"))
        printf("advised %s -> %s: %.3f Mb/s by %s%s%s, %.0f ms ago\n", string(item, "source"),
               string(item, "destination"), number(item, "advised_bps") / 1e6, string(item, "standard"),
               *string(item, "interface") ? " at " : "", string(item, "interface"), number(item, "age_ms"));
    if (cJSON_HasObjectItem(answer, "note"))
        printf("%s\n", string(answer, "note"));
}

/* No agent runs: the next one begins as it is told now. */
static int switch_next(const struct options *options, bool off) {
    struct kept_mode kept;
    int error;
    /* What cannot be understood is written anew. */
    (void)kept_mode_read(options->agent.state_dir, &kept);
    kept.off = off;
    error = kept_mode_write(options->agent.state_dir, &kept);
    if (error)
        fprintf(stderr, "chart-agent: cannot keep that in %s: %s\n", options->agent.state_dir, strerror(-error));
    else
        fprintf(stderr, "chart-agent: no agent runs here; the next one will be %s\n", off ? "off" : "on");
    if (!off)
        return error ? 1 : 0;
    return control_cleanup(options) || error ? 1 : 0;
}

int control_client(const struct options *options, const char *command) {
    int fd = dial(options->agent.state_dir);
    bool off = strcmp(command, "off") == 0;
    if ((fd == -ENOENT || fd == -ECONNREFUSED) && (off || strcmp(command, "on") == 0))
        return switch_next(options, off);
    if (fd < 0) {
        fprintf(stderr, "chart-agent: no response from an agent in %s: %s\n", options->agent.state_dir, strerror(-fd));
        return 1;
    }
    char *text = ask(fd, command, options->flow);
    struct cJSON *answer = text ? cJSON_Parse(text) : NULL;
    close(fd);
    bool ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "ok"));
    if (ok && options->json)
        printf("%s\n", text);
    else if (ok)
        print_people(answer);
    else
        fprintf(stderr, "chart-agent: %s\n", answer ? string(answer, "error") : "no response from the agent");
    cJSON_Delete(answer);
    free(text);
    return ok ? 0 : 1;
}

int control_cleanup(const struct options *options) {
    const struct datapath_options datapath_options = {.cgroup_path = options->agent.cgroup_path,
                                                      .default_control = options->agent.default_control,
                                                      .state_dir = options->agent.state_dir};
    int fd = dial(options->agent.state_dir);
    if (fd >= 0) {
        close(fd);
        fprintf(stderr, "chart-agent: an agent is running in %s: stop it first\n", options->agent.state_dir);
        return 1;
    }
    int removed = datapath_cleanup(&datapath_options);
    int error = removed < 0 ? removed : 0;
    struct netlink netlink;
    struct changes changes;
    struct if_nameindex *interfaces = if_nameindex();
    int opened = netlink_open(&netlink);
    error = error ? error : opened;
    if (!opened)
        removed += (int)changes_open(options->agent.state_dir, &netlink, &changes);
    for (struct if_nameindex *interface = interfaces; !opened && interface && interface->if_index; interface++) {
        int result = htb_cleanup(&netlink, interface->if_index);
        removed += result > 0;
        error = result < 0 && !error ? result : error;
    }
    if (!opened && if_nametoindex(CHART_OVERLAY_DEVICE)) {
        int result = overlay_device_remove(&netlink);
        removed += result == 0;
        error = result < 0 && result != -EEXIST && !error ? result : error;
    }
    if (!opened)
        netlink_close(&netlink);
    if_freenameindex(interfaces);
    if (error) {
        fprintf(stderr, "chart-agent: cleanup failed: %s\n", strerror(-error));
        return 1;
    }
    printf("%d objects removed\n", removed);
    return 0;
}
