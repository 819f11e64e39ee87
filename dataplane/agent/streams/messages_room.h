/* Part of a node state: the room of the node's tables. */
#pragma once

#include "chart/v1/node_state.pb-c.h"
#include "streams/messages.h"

struct messages_room {
    Chart__V1__NodeRoom kinds[DATAPATH_ROOM_KINDS];
    Chart__V1__NodeRoom *pointers[DATAPATH_ROOM_KINDS];
};

/* The message points to `keep` and to the texts of the state afterwards. */
void messages_put_room(Chart__V1__NodeState *message, const struct messages_node_state *state,
                       struct messages_room *keep);
