/* What the registry says that this node's proxy takes, from the file that chart-agent writes (ends.json). */
#ifndef PROXY_FOLLOWED_H
#define PROXY_FOLLOWED_H

#include <net/if.h>
#include <time.h>

#include "options.h"

#define FOLLOWED_FAULT_BYTES 160
#define FOLLOWED_PATH_BYTES 512

/* Where the names lie that options point to. */
struct followed {
    char path[FOLLOWED_PATH_BYTES];
    struct timespec changed;
    char names[OPTION_INTERFACES][IF_NAMESIZE];
};

/* Takes interfaces, prefixes and mode out of the file's text into options; the rest of options stays. 0, or -EINVAL
 * with what is wrong in fault: then nothing is changed. */
int followed_take(struct followed *followed, const char *text, struct options *options, char *fault);
/* The file in the state directory of options; it is read by followed_look. 0 or -ENAMETOOLONG. */
int followed_open(struct followed *followed, const struct options *options);
/* Reads the file when it changed: 1: options are new, 0: they are as before, also when the file cannot be used, which
 * is said once on standard error. */
int followed_look(struct followed *followed, struct options *options);

#endif
