/* Which ends this node has, as chart-agent writes it from the registry (ends.json in its state directory), and the
 * command line that each of them gets. No input or output. */
#ifndef ITM_ENDS_FILE_H
#define ITM_ENDS_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "applications.h"
#include "options.h"

#define ENDS_MAX 16
#define ENDS_NAME_BYTES 256
#define ENDS_FAULT_BYTES 200
/* Classes, routes and what every end has. */
#define ENDS_ARGUMENTS (2 * (SCHEDULER_CLASSES + OPTION_ROUTES + OPTION_LIST) + 40)

/* What the ends of a node have in common. */
struct ends_node {
    const char *program, *control_directory, *user;
    const char *certificate, *key, *authority_ca; /* files of TLS */
    const char *name, *domain;                    /* of the node, as its certificate says */
    const char *authority, *broker;               /* or NULL */
    const char *const *broker_settings;
    size_t broker_setting_count;
};

/* A traffic controller that the end is to have; not part of the command line, so that a change restarts nothing. */
struct end_application {
    char name[EXCHANGE_NAME_BYTES], file[ENDS_NAME_BYTES], argument[EXCHANGE_TEXT_BYTES];
    unsigned limit_ms;
    bool off;
};

struct end {
    char tunnel[ENDS_NAME_BYTES];
    char *control;                       /* one of the arguments */
    char *arguments[ENDS_ARGUMENTS + 1]; /* NULL at the end */
    size_t count;
    struct end_application applications[APPLICATIONS_MAX];
    size_t application_count;
};

struct ends {
    struct end ends[ENDS_MAX];
    size_t count;
};

/* Reads the file's text; the caller frees with ends_free. -EINVAL with what is wrong in fault, or -ENOMEM. */
int ends_read(const char *text, const struct ends_node *node, struct ends *ret, char fault[ENDS_FAULT_BYTES]);
void ends_free(struct ends *ends);
void end_free(struct end *end);
/* Whether both have the same command line. */
bool end_same(const struct end *one, const struct end *other);
/* Whether both are to have the same applications. */
bool end_same_applications(const struct end *one, const struct end *other);
/* NULL: there is none of that tunnel. */
struct end *ends_find(struct ends *ends, const char *tunnel);

#endif
