/* libmicrohttpd without a thread; see metrics.h. */
#include "metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS 16
#define IDLE_SECONDS 10

struct metrics {
    struct MHD_Daemon *daemon;
    struct metrics_source source;
};

static int read_listen(const char *text, struct sockaddr_storage *ret) {
    char address[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    unsigned long port;
    char *end;

    if (!colon || length >= sizeof(address))
        return -EINVAL;
    port = strtoul(colon + 1, &end, 10);
    if (end == colon + 1 || *end || port > 65535)
        return -EINVAL;
    memset(ret, 0, sizeof(*ret));
    if (*text == '[' && length > 2 && text[length - 1] == ']') {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

        snprintf(address, sizeof(address), "%.*s", (int)length - 2, text + 1);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return inet_pton(AF_INET6, address, &v6->sin6_addr) == 1 ? 0 : -EINVAL;
    }
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;

    snprintf(address, sizeof(address), "%.*s", (int)length, text);
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, *address ? address : "0.0.0.0", &v4->sin_addr) == 1 ? 0 : -EINVAL;
}

/* The library's own sockets share their port with whoever else does so: two programs on one would answer by turns. */
static int listen_at(const struct sockaddr_storage *address) {
    int one = 1, err = 0;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(fd, (const struct sockaddr *)address,
             address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)) < 0 ||
        listen(fd, CONNECTIONS) < 0)
        err = -errno;
    if (err)
        close(fd);
    return err ? err : fd;
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned int status, const char *type, char *body,
                              size_t length) {
    struct MHD_Response *response = MHD_create_response_from_buffer(length, body, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result;

    if (!response) {
        free(body);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static void write_json_string(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('"', out);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **state) {
    struct metrics *metrics = context;
    unsigned int status = MHD_HTTP_OK;
    const char *type = "application/json";
    const char *problem = NULL;
    char *body = NULL;
    size_t length = 0;
    FILE *out;

    (void)version, (void)upload, (void)upload_size, (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
        problem = "only GET", status = MHD_HTTP_METHOD_NOT_ALLOWED;
    out = open_memstream(&body, &length);
    if (!out)
        return MHD_NO;
    if (!problem && strcmp(url, "/metrics") == 0) {
        type = "text/plain; version=0.0.4; charset=utf-8";
        metrics->source.render(out, metrics->source.context);
    } else if (!problem && strcmp(url, "/healthz") == 0) {
        fputs("{\"status\":\"ok\"}\n", out);
    } else if (!problem && strcmp(url, "/readyz") == 0) {
        problem = metrics->source.not_ready(metrics->source.context);
        status = problem ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK;
        if (!problem)
            fputs("{\"status\":\"ok\"}\n", out);
    } else if (!problem) {
        problem = "unknown path", status = MHD_HTTP_NOT_FOUND;
    }
    if (problem) {
        fputs("{\"status\":\"failed\",\"reason\":", out);
        write_json_string(out, problem);
        fputs("}\n", out);
    }
    if (fclose(out)) {
        free(body);
        return MHD_NO;
    }
    return answer(connection, status, type, body, length);
}

int metrics_open(const char *listen, const struct metrics_source *source, struct metrics **ret) {
    struct sockaddr_storage address = {0};
    struct metrics *metrics;
    int err = read_listen(listen, &address);
    unsigned int flags = MHD_USE_EPOLL | (address.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0);

    int listener = err ? err : listen_at(&address);

    if (listener < 0)
        return listener;
    metrics = calloc(1, sizeof(*metrics));
    if (!metrics) {
        close(listener);
        return -ENOMEM;
    }
    metrics->source = *source;
    metrics->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, metrics, MHD_OPTION_LISTEN_SOCKET, listener,
                                       MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                                       IDLE_SECONDS, MHD_OPTION_END);
    if (!metrics->daemon) {
        close(listener);
        free(metrics);
        return -ENOMEM;
    }
    *ret = metrics;
    return 0;
}

void metrics_close(struct metrics *metrics) {
    if (!metrics)
        return;
    MHD_stop_daemon(metrics->daemon);
    free(metrics);
}

int metrics_fd(const struct metrics *metrics) {
    return MHD_get_daemon_info(metrics->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

void metrics_run(struct metrics *metrics) {
    MHD_run(metrics->daemon);
}

int metrics_port(const struct metrics *metrics) {
    return MHD_get_daemon_info(metrics->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
}
