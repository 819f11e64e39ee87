/* See messages_room.h. */
#include "streams/messages_room.h"

void messages_put_room(Chart__V1__NodeState *message, const struct messages_node_state *state,
                       struct messages_room *keep) {
    size_t n = state->n_room < DATAPATH_ROOM_KINDS ? state->n_room : DATAPATH_ROOM_KINDS;

    for (size_t i = 0; i < n; i++) {
        chart__v1__node_room__init(&keep->kinds[i]);
        keep->kinds[i].kind = (char *)state->room[i].kind;
        keep->kinds[i].held = state->room[i].held;
        keep->kinds[i].total = state->room[i].total;
        keep->pointers[i] = &keep->kinds[i];
    }
    message->n_room = n;
    message->room = keep->pointers;
}
