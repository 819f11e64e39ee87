/* What both ends share beyond lib/events: the tags of descriptors in epoll, and the control socket. */
#ifndef ITM_LOOP_H
#define ITM_LOOP_H

#include "lib/events/events.h"

/* An event's data: one of these plus an index. */
#define TAG_TUN TAG(1)
#define TAG_CONTROL TAG(2)
#define TAG_CLIENT TAG(3)
#define TAG_LISTENER TAG(4)
#define TAG_CONNECTION TAG(5)
#define TAG_EXPORTER TAG(6)
#define TAG_STREAMS TAG(7)

struct control;

/* Serves TAG_CONTROL and TAG_CLIENT; false: not one of these. */
bool loop_control(int epoll, struct control *control, uint64_t data);

#endif
