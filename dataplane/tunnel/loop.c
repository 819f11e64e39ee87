/* What both ends share, see loop.h. */
#include "loop.h"

#include <sys/epoll.h>

#include "control.h"

bool loop_control(int epoll, struct control *control, uint64_t data) {
    if (TAG_OF(data) == TAG_CONTROL) {
        int client = control_accept(control);
        if (client >= 0)
            (void)loop_watch(epoll, control->clients[client].descriptor, EPOLLIN, TAG_CLIENT + (uint64_t)client);
        return true;
    }
    if (TAG_OF(data) == TAG_CLIENT) {
        (void)control_serve(control, (int)INDEX_OF(data));
        return true;
    }
    return false;
}
