/* Where a node's kernel sends packets, as a part of its state. */
#pragma once

#include "chart/v1/node_state.pb-c.h"

struct messages_node_state;

/* The routes of a node state, which points to them; prefixes of the same hops are one. NULL: no memory. Free when it is
 * sent. */
void *messages_add_routes(Chart__V1__NodeState *message, const struct messages_node_state *state);
