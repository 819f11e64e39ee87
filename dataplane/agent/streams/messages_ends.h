/* Tunnel ends and proxied traffic of this node: from the registry's record to the file that chart-tunnel and
 * chart-proxy read. */
#pragma once

#include "chart/v1/topology.pb-c.h"

/* The file's text, JSON; the caller frees it. from NULL: the node is not registered, nothing runs. NULL: no memory. */
char *messages_ends_text(const char *node, const Chart__V1__Node *from);
