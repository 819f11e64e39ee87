/* See caps.h. */
#include "caps.h"

#include <errno.h>
#include <sys/prctl.h>

int caps_drop(const cap_value_t *kept, int n_kept) {
    int error = 0;
    /* The bounding set first: dropping from it needs CAP_SETPCAP. */
    for (cap_value_t cap = 0; cap_valid(cap); cap++) {
        int keep = 0;
        for (int i = 0; i < n_kept; i++)
            keep |= cap == kept[i];
        if (!keep && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EINVAL)
            return -errno;
    }
    cap_t set = cap_init();
    if (!set)
        return -ENOMEM;
    if (cap_set_flag(set, CAP_PERMITTED, n_kept, kept, CAP_SET) ||
        cap_set_flag(set, CAP_EFFECTIVE, n_kept, kept, CAP_SET) || cap_set_proc(set))
        error = -errno;
    cap_free(set);
    if (!error && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
        error = -errno;
    if (!error && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        error = -errno;
    return error;
}
