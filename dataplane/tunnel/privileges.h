/* What an end keeps of root after its start: nothing, but where its congestion control is kept for the privileged. The
 * device, the routes into it and the sockets are open then. */
#ifndef ITM_PRIVILEGES_H
#define ITM_PRIVILEGES_H

#include <stdbool.h>

/* Whether this process may choose a congestion control for its sockets without CAP_NET_ADMIN. */
bool privileges_free_congestion(const char *name);
/* Drops every capability but those that privileges_become needs, with user NULL those too, and CAP_NET_ADMIN when it is
 * needed for more than the start. A process without privileges stays as it is. 0, or a negative errno after a sentence
 * on standard error. */
int privileges_drop(const char *user, bool net_admin);
/* Goes on as this user, without any group, and no capability but CAP_NET_ADMIN when it is needed; NULL: as whoever it
 * is. Of all threads; other threads get no capability. 0, or a negative errno after a sentence on standard error. */
int privileges_become(const char *user, bool net_admin);
/* Keeps what starting ends and ending them takes, and the ends' own devices, routes and ports. 0, or a negative errno
 * after a sentence on standard error. */
int privileges_supervise(void);
/* Whether there is a user of that name. */
bool privileges_known(const char *user);

#endif
