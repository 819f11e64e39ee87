/* Bringing the applications of a running end to what the registry states, over the end's control socket. */
#ifndef ITM_NODE_APPLICATIONS_H
#define ITM_NODE_APPLICATIONS_H

#include "ends_file.h"

/* Where the node keeps applications, unless --application-dir says otherwise. */
#define NODE_APPLICATIONS_DIRECTORY "/usr/lib/chart/applications"

/* How far an end is with its applications; all 0: nothing is known. */
struct node_applications {
    bool settled;
    uint64_t look_at_us, pause_us;
};

/* The end was started, or is to have others. */
void node_applications_changed(struct node_applications *applications);
/* Asks the end and sends what is missing, when it is time. A refusal is told on standard error, once per attempt;
 * attempts back off up to a minute. */
void node_applications_follow(struct node_applications *applications, const struct end *end, const char *directory,
                              uint64_t now_us);

#endif
