/* See caps.h. */
#include "caps.h"

#include <errno.h>
#include <sys/prctl.h>

#define KEPT_MAX 8

/* The capability that does the work of a wanted one here: the kernel takes CAP_SYS_ADMIN for CAP_BPF and CAP_PERFMON,
 * and container engines that do not know those two give it in their place. */
static cap_value_t held(cap_t now, cap_value_t wanted) {
    cap_flag_value_t has = CAP_CLEAR;
    if (cap_get_flag(now, wanted, CAP_PERMITTED, &has) || has == CAP_SET)
        return wanted;
    if (wanted != CAP_BPF && wanted != CAP_PERFMON)
        return wanted;
    if (cap_get_flag(now, CAP_SYS_ADMIN, CAP_PERMITTED, &has) || has != CAP_SET)
        return wanted;
    return CAP_SYS_ADMIN;
}

int caps_drop(const cap_value_t *wanted, int n_kept) {
    cap_value_t kept[KEPT_MAX];
    int error = 0;
    if (n_kept > KEPT_MAX)
        return -EINVAL;
    cap_t now = cap_get_proc();
    if (!now)
        return -errno;
    for (int i = 0; i < n_kept; i++)
        kept[i] = held(now, wanted[i]);
    cap_free(now);
    /* The bounding set first: dropping from it needs CAP_SETPCAP. In a container without that the set stays what the
     * container was given, and no_new_privs keeps what is dropped below from coming back. */
    for (cap_value_t cap = 0; cap_valid(cap); cap++) {
        int keep = 0;
        for (int i = 0; i < n_kept; i++)
            keep |= cap == kept[i];
        if (!keep && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EINVAL && errno != EPERM)
            return -errno;
    }
    cap_t set = cap_init();
    if (!set)
        return -ENOMEM;
    /* An empty list is an error to cap_set_flag; the set is empty as it is. */
    if ((n_kept && (cap_set_flag(set, CAP_PERMITTED, n_kept, kept, CAP_SET) ||
                    cap_set_flag(set, CAP_EFFECTIVE, n_kept, kept, CAP_SET))) ||
        cap_set_proc(set))
        error = -errno;
    cap_free(set);
    if (!error && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
        error = -errno;
    if (!error && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        error = -errno;
    return error;
}
