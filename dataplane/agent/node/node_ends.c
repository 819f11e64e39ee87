/* What runs on this node beside the agent: the file that chart-tunnel and chart-proxy read and that holds while the
 * broker is away; see node.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/state_file.h"
#include "node/node.h"

#define NAME "ends.json"
/* Far more than a node's ends take. */
#define FILE_BYTES (1 << 20)

/* Whether the file has this text already: its readers look when it changes. */
static bool there(const char *directory, const char *text) {
    char path[PATH_MAX];
    size_t length = strlen(text);
    char *present = NULL;
    FILE *file = NULL;
    bool same = false;

    if (snprintf(path, sizeof(path), "%s/" NAME, directory) < (int)sizeof(path))
        file = fopen(path, "re");
    if (file && length < FILE_BYTES)
        present = malloc(length + 1);
    if (present)
        same = fread(present, 1, length + 1, file) == length && memcmp(present, text, length) == 0;
    free(present);
    if (file)
        fclose(file);
    return same;
}

int node_ends_stated(const char *text, void *context) {
    struct node *node = context;
    char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    free(node->ends);
    node->ends = copy;
    return 0;
}

void node_ends_keep(struct node *node) {
    int error;

    if (!node->ends)
        return;
    error =
        there(node->options->state_dir, node->ends) ? 0 : state_file_write(node->options->state_dir, NAME, node->ends);
    if (error)
        log_warning("tunnel ends and proxied traffic cannot be kept: %s", strerror(-error));
    free(node->ends);
    node->ends = NULL;
}
