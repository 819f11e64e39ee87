/* All ends of a node, each a process of its own: started, changed and ended as ends.json says, which chart-agent writes
 * from the registry and keeps while it reaches no broker. */
#ifndef ITM_NODE_H
#define ITM_NODE_H

#include "options.h"

/* Runs until it is told to end; the exit status. */
int node_run(const struct options *options);

#endif
