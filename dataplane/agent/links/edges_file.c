/* The edges that the registry named, kept in the state folder: a node that starts without a broker polices as before.
 * One line each: interface, aggregate in bits per second, depth in milliseconds, "drop" or "remark". */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/state_file.h"
#include "links/edges.h"

#define NAME "edges"
#define LINE_MAX_BYTES 80

/* 1: read, 0: the file ends here, or -EBADMSG. */
static int read_line(FILE *file, struct edge_wanted *ret) {
    char exceed[8] = "";
    int fields =
        fscanf(file, "%15s %" SCNu64 " %" SCNu16 " %7s", ret->interface, &ret->aggregate_bps, &ret->depth_ms, exceed);
    if (fields == EOF)
        return 0;
    ret->drop = strcmp(exceed, "drop") == 0;
    return fields == 4 && (ret->drop || strcmp(exceed, "remark") == 0) ? 1 : -EBADMSG;
}

int edges_read(const char *directory, struct edges_wanted *ret) {
    struct edges_wanted edges = {0};
    char path[PATH_MAX];
    FILE *file;
    struct edge_wanted edge = {0};
    int status;
    *ret = edges;
    if (snprintf(path, sizeof(path), "%s/" NAME, directory) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? 0 : -errno;
    while ((status = read_line(file, &edge)) > 0 && edges.n < EDGES_MAX) {
        edges.edges[edges.n++] = edge;
        edge = (struct edge_wanted){0};
    }
    fclose(file);
    if (status)
        return -EBADMSG;
    *ret = edges;
    return 0;
}

int edges_write(const char *directory, const struct edges_wanted *edges) {
    char text[EDGES_MAX * LINE_MAX_BYTES] = "";
    size_t length = 0;
    for (size_t i = 0; i < edges->n; i++) {
        const struct edge_wanted *edge = &edges->edges[i];
        int written = snprintf(text + length, sizeof(text) - length, "%s %" PRIu64 " %u %s\n", edge->interface,
                               edge->aggregate_bps, edge->depth_ms, edge->drop ? "drop" : "remark");
        if (written < 0 || (size_t)written >= sizeof(text) - length)
            return -ENOSPC;
        length += (size_t)written;
    }
    return state_file_write(directory, NAME, text);
}

void edges_merge(const struct agent_options *options, const struct edges_wanted *stated, struct edges_wanted *ret) {
    struct edges_wanted merged = *stated;
    for (size_t i = 0; i < options->n_edges; i++) {
        const struct agent_edge_option *option = &options->edges[i];
        bool named = false;
        for (size_t k = 0; k < stated->n; k++)
            named |= strcmp(stated->edges[k].interface, option->interface) == 0;
        if (named || merged.n == EDGES_MAX)
            continue;
        struct edge_wanted *edge = &merged.edges[merged.n++];
        *edge = (struct edge_wanted){
            .aggregate_bps = option->aggregate_bps, .depth_ms = options->edge_depth_ms, .drop = options->edge_drop};
        memcpy(edge->interface, option->interface, sizeof(edge->interface));
    }
    *ret = merged;
}
