/* See node.h. */
#define _GNU_SOURCE
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control.h"
#include "credentials.h"
#include "ends_file.h"
#include "exporter.h"
#include "lib/notify/notify.h"
#include "loop.h"
#include "node_applications.h"
#include "privileges.h"
#include "state.h"

#define FILE_NAME "ends.json"
#define SOCKET_NAME "tunnels.sock"
#define FILE_BYTES (1 << 20)
/* How often files and children are looked at. */
#define LOOK_MS 200
/* An end that ends by itself is started again after a pause that doubles; one that ran so long begins anew. */
#define PAUSE_FIRST_US 1000000U
#define PAUSE_MOST_US 60000000U
#define RAN_WELL_US 60000000U
/* An end has its control socket after about as long. */
#define SETTLE_US 100000U
/* An end that is told to end has so long for it. */
#define END_LIMIT_US 5000000U

/* An end and its process. */
struct child {
    struct end end; /* as it was started */
    pid_t pid;      /* 0: it does not run */
    bool ending;
    uint64_t started_us, start_at_us, kill_at_us, pause_us;
    struct node_applications applications;
};

struct node {
    const struct options *options;
    char program[PATH_MAX], file[PATH_MAX];
    struct credentials credentials;
    struct ends wanted;
    struct child children[ENDS_MAX];
    struct timespec changed; /* the file that was read last */
    bool known;              /* the file was read as the certificate has the node */
    char certified[2 * CREDENTIALS_NAME_BYTES];
    char said[CREDENTIALS_FAULT_BYTES + ENDS_FAULT_BYTES];
    int epoll;
    struct control control;
    struct exporter *exporter;
    uint64_t started_us, failures; /* ends that ended by themselves */
};

/* The same sentence again and again is told once. */
__attribute__((format(printf, 2, 3))) static void note(struct node *node, const char *format, ...) {
    char sentence[sizeof(node->said)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    if (strcmp(sentence, node->said) != 0 && sentence[0])
        fprintf(stderr, "chart-tunnel: %s\n", sentence);
    memcpy(node->said, sentence, sizeof(sentence));
}

/* The whole text of the file, or NULL with errno; the caller frees it. */
static char *read_file(const char *path) {
    FILE *file = fopen(path, "re");
    char *text = file ? calloc(1, FILE_BYTES + 1) : NULL;
    if (text && fread(text, 1, FILE_BYTES, file) == FILE_BYTES) {
        free(text);
        text = NULL;
        errno = EFBIG;
    }
    if (file)
        fclose(file);
    return text;
}

static void take(struct node *node, const char *text) {
    const struct options *options = node->options;
    const struct ends_node common = {
        .program = node->program,
        .control_directory = options->state_dir,
        .user = options->user,
        .certificate = node->credentials.certificate.copy,
        .key = node->credentials.key.copy,
        .authority_ca = node->credentials.authority.copy,
        .name = node->credentials.name,
        .domain = node->credentials.domain,
        .authority = options->authority,
        .broker = options->broker,
        .broker_settings = options->broker_settings,
        .broker_setting_count = options->broker_setting_count,
    };
    char fault[ENDS_FAULT_BYTES];
    struct ends ends;
    if (ends_read(text, &common, &ends, fault) < 0) {
        note(node, "%s: %s; the ends stay as they are", node->file, fault);
        return;
    }
    ends_free(&node->wanted);
    node->wanted = ends;
    note(node, "this node has %zu tunnel ends", ends.count);
}

/* Reads the file when it changed, or the certificate got another name. */
static void follow_file(struct node *node) {
    struct stat found = {0};
    char certified[sizeof(node->certified)];
    snprintf(certified, sizeof(certified), "%s@%s", node->credentials.name, node->credentials.domain);
    /* No file: nobody has told this node of an end yet. */
    if (stat(node->file, &found) < 0 && errno != ENOENT) {
        note(node, "%s: %s", node->file, strerror(errno));
        return;
    }
    if (node->known && memcmp(&found.st_mtim, &node->changed, sizeof(found.st_mtim)) == 0 &&
        strcmp(certified, node->certified) == 0)
        return;
    node->known = true;
    node->changed = found.st_mtim;
    memcpy(node->certified, certified, sizeof(certified));
    if (!found.st_mtim.tv_sec)
        return;
    char *text = read_file(node->file);
    if (text)
        take(node, text);
    else
        note(node, "%s: %s", node->file, strerror(errno));
    free(text);
}

static void start(struct child *child, uint64_t now_us) {
    child->started_us = now_us;
    child->ending = false;
    node_applications_changed(&child->applications);
    child->pid = fork();
    if (child->pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        execv(child->end.arguments[0], child->end.arguments);
        fprintf(stderr, "chart-tunnel: %s: %s\n", child->end.arguments[0], strerror(errno));
        _exit(127);
    }
    if (child->pid < 0) {
        fprintf(stderr, "chart-tunnel: no process for the end of %s: %s\n", child->end.tunnel, strerror(errno));
        child->pid = 0;
        child->start_at_us = now_us + PAUSE_FIRST_US;
    }
}

static void note_end(struct node *node, struct child *child, int status, uint64_t now_us) {
    child->pid = 0;
    /* It runs as a user who cannot remove it. */
    unlink(child->end.control);
    child->start_at_us = now_us;
    if (child->ending)
        return;
    node->failures++;
    if (now_us - child->started_us > RAN_WELL_US || !child->pause_us)
        child->pause_us = PAUSE_FIRST_US;
    else
        child->pause_us = 2 * child->pause_us < PAUSE_MOST_US ? 2 * child->pause_us : PAUSE_MOST_US;
    child->start_at_us = now_us + child->pause_us;
    fprintf(stderr, "chart-tunnel: the end of %s ended (%s %d); it is started again in %u s\n", child->end.tunnel,
            WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
            (unsigned)(child->pause_us / 1000000));
}

static void reap(struct node *node, uint64_t now_us) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (size_t i = 0; i < ENDS_MAX; i++)
            if (node->children[i].pid == pid)
                note_end(node, &node->children[i], status, now_us);
}

static void end(struct child *child, uint64_t now_us) {
    if (!child->ending) {
        child->ending = true;
        child->kill_at_us = now_us + END_LIMIT_US;
        kill(child->pid, SIGTERM);
    } else if (now_us >= child->kill_at_us) {
        kill(child->pid, SIGKILL);
    }
}

/* A copy of the command line: the same end can be wanted again after this child was changed. */
static int put(struct child *child, const struct end *wanted) {
    *child = (struct child){.end.control = NULL};
    snprintf(child->end.tunnel, sizeof(child->end.tunnel), "%s", wanted->tunnel);
    for (size_t i = 0; i < wanted->count; i++) {
        char *argument = strdup(wanted->arguments[i]);
        if (!argument) {
            end_free(&child->end);
            return -ENOMEM;
        }
        child->end.arguments[child->end.count++] = argument;
        if (wanted->arguments[i] == wanted->control)
            child->end.control = argument;
    }
    return 0;
}

/* Its applications change while it runs. */
static void follow_applications(struct node *node, struct child *child, const struct end *wanted, uint64_t now_us) {
    if (!end_same_applications(wanted, &child->end)) {
        memcpy(child->end.applications, wanted->applications, sizeof(wanted->applications));
        child->end.application_count = wanted->application_count;
        node_applications_changed(&child->applications);
    }
    node_applications_follow(&child->applications, &child->end, node->options->application_dir, now_us);
}

static void follow_child(struct node *node, struct child *child, uint64_t now_us) {
    struct end *wanted = ends_find(&node->wanted, child->end.tunnel);
    bool same = wanted && end_same(wanted, &child->end);
    if (child->pid && (!same || child->ending)) {
        end(child, now_us);
    } else if (!child->pid && !same) {
        end_free(&child->end);
        child->pause_us = 0;
    } else if (!child->pid && now_us >= child->start_at_us) {
        start(child, now_us);
    } else if (child->pid && now_us - child->started_us > SETTLE_US) {
        follow_applications(node, child, wanted, now_us);
    }
}

static void follow_ends(struct node *node, uint64_t now_us) {
    for (size_t i = 0; i < ENDS_MAX; i++)
        if (node->children[i].end.count)
            follow_child(node, &node->children[i], now_us);
    for (size_t k = 0; k < node->wanted.count; k++) {
        struct child *free_child = NULL;
        bool there = false;
        for (size_t i = 0; i < ENDS_MAX; i++) {
            if (!node->children[i].end.count)
                free_child = &node->children[i];
            else
                there |= strcmp(node->children[i].end.tunnel, node->wanted.ends[k].tunnel) == 0;
        }
        if (there || !free_child)
            continue;
        if (put(free_child, &node->wanted.ends[k]) == 0)
            start(free_child, now_us);
    }
}

static size_t running(const struct node *node) {
    size_t count = 0;
    for (size_t i = 0; i < ENDS_MAX; i++)
        count += node->children[i].pid > 0;
    return count;
}

/* For --status and Prometheus. */
static void add_state(void *context, cJSON *answer) {
    const struct node *node = context;
    cJSON_AddStringToObject(answer, "role", "node");
    cJSON_AddStringToObject(answer, "node", node->credentials.name);
    state_add(answer, "uptime_us", loop_now_us() - node->started_us);
    cJSON *gauges = cJSON_AddObjectToObject(answer, "gauges");
    state_add(gauges, "ends_stated", node->wanted.count);
    state_add(gauges, "ends_running", running(node));
    state_add(cJSON_AddObjectToObject(answer, "counters"), "ends_failed", node->failures);
    cJSON *ends = cJSON_AddArrayToObject(answer, "ends");
    for (size_t i = 0; i < ENDS_MAX; i++) {
        const struct child *child = &node->children[i];
        if (!child->end.count)
            continue;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "tunnel", child->end.tunnel);
        cJSON_AddStringToObject(one, "control", child->end.control);
        cJSON_AddBoolToObject(one, "runs", child->pid > 0);
        cJSON_AddItemToArray(ends, one);
    }
    cJSON_AddStringToObject(answer, "last_said", node->said);
}

static void answer(void *context, const cJSON *command, cJSON *answered, const char **ret_error) {
    if (control_names(command, "command", "get"))
        add_state(context, answered);
    else if (control_names(command, "command", "quit"))
        loop_end();
    else
        *ret_error = "command must be get or quit";
}

static const char *not_ready(void *context) {
    const struct node *node = context;
    if (!node->known)
        return node->said[0] ? node->said : "the node's certificate is not read yet";
    return running(node) < node->wanted.count ? "an end that is stated does not run" : NULL;
}

static int open_outside(struct node *node, char *control_path) {
    const struct exporter_source source = {add_state, not_ready, node};
    int error = control_open(&node->control, control_path, answer, node);
    if (!error)
        error = loop_watch(node->epoll, node->control.listener, EPOLLIN, TAG_CONTROL);
    if (!error && node->options->metrics)
        error = exporter_open(node->options, &source, node->epoll, &node->exporter);
    return error;
}

static void serve(struct node *node) {
    struct epoll_event events[LOOP_EVENTS];
    int count = epoll_wait(node->epoll, events, LOOP_EVENTS, LOOK_MS);
    for (int i = 0; i < count; i++) {
        if (TAG_OF(events[i].data.u64) == TAG_EXPORTER)
            exporter_run(node->exporter);
        else
            (void)loop_control(node->epoll, &node->control, events[i].data.u64);
    }
}

static void close_node(struct node *node) {
    exporter_close(node->exporter);
    control_close(&node->control);
    ends_free(&node->wanted);
    while (running(node)) {
        uint64_t now_us = loop_now_us();
        reap(node, now_us);
        for (size_t i = 0; i < ENDS_MAX; i++)
            if (node->children[i].pid)
                end(&node->children[i], now_us);
        (void)poll(NULL, 0, LOOK_MS / 10);
    }
    for (size_t i = 0; i < ENDS_MAX; i++)
        end_free(&node->children[i].end);
    credentials_close(&node->credentials);
    if (node->epoll >= 0)
        close(node->epoll);
    free(node);
}

static int start_node(struct node *node, char *control_path) {
    const char *folder = node->options->state_dir;
    ssize_t bytes = readlink("/proc/self/exe", node->program, sizeof(node->program) - 1);
    if (bytes <= 0 || snprintf(node->file, PATH_MAX, "%s/" FILE_NAME, folder) >= PATH_MAX ||
        snprintf(control_path, PATH_MAX, "%s/" SOCKET_NAME, folder) >= PATH_MAX)
        return -ENAMETOOLONG;
    node->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (node->epoll < 0)
        return -errno;
    int error = credentials_open(folder, node->options->authority_ca, &node->credentials);
    if (!error)
        error = open_outside(node, control_path);
    return error ? error : privileges_supervise();
}

int node_run(const struct options *options) {
    static char control_path[PATH_MAX];
    struct node *node = calloc(1, sizeof(*node));
    char fault[CREDENTIALS_FAULT_BYTES];
    if (!node)
        return 1;
    node->options = options;
    node->epoll = -1;
    node->started_us = loop_now_us();
    node->credentials.certificate.descriptor = node->credentials.key.descriptor = -1;
    node->credentials.authority.descriptor = -1;
    control_init(&node->control);
    int error = start_node(node, control_path);
    if (error)
        fprintf(stderr, "chart-tunnel: the node's ends cannot be started: %s\n", strerror(-error));
    else
        notify_ready();
    while (!error && !loop_ended()) {
        uint64_t now_us = loop_now_us();
        notify_alive_at(now_us);
        reap(node, now_us);
        /* What runs goes on while a certificate is away. */
        if (credentials_follow(&node->credentials, fault))
            follow_file(node);
        else
            note(node, "%s", fault);
        follow_ends(node, now_us);
        serve(node);
    }
    notify_stopping();
    close_node(node);
    return error ? 1 : 0;
}
