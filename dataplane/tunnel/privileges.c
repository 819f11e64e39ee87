/* See privileges.h. */
#define _GNU_SOURCE
#include "privileges.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/caps/caps.h"

static int complain(const char *what, int error) {
    fprintf(stderr, "chart-tunnel: cannot drop privileges: %s: %s\n", what, strerror(-error));
    return error;
}

bool privileges_free_congestion(const char *name) {
    char line[512] = "", *rest = line, *word;
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "re");
    if (file && !fgets(line, sizeof(line), file))
        line[0] = '\0';
    if (file)
        fclose(file);
    while ((word = strsep(&rest, " \n")))
        if (strcmp(word, name) == 0)
            return true;
    return false;
}

int privileges_drop(const char *user, bool net_admin) {
    cap_value_t kept[3];
    int count = 0;
    if (geteuid() != 0)
        return 0;
    if (net_admin)
        kept[count++] = CAP_NET_ADMIN;
    if (user) {
        kept[count++] = CAP_SETUID;
        kept[count++] = CAP_SETGID;
    }
    int error = caps_drop(kept, count);
    return error ? complain("capabilities", error) : 0;
}

int privileges_become(const char *user, bool net_admin) {
    static const cap_value_t NET_ADMIN[] = {CAP_NET_ADMIN};
    if (!user || geteuid() != 0)
        return 0;
    errno = 0;
    const struct passwd *account = getpwnam(user);
    if (!account)
        return complain("there is no such user", errno ? -errno : -ENOENT);
    /* The kernel takes the capabilities away with the last of the user ids that was 0; from this thread not yet. */
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) ||
        setresgid(account->pw_gid, account->pw_gid, account->pw_gid) ||
        setresuid(account->pw_uid, account->pw_uid, account->pw_uid))
        return complain(user, -errno);
    int error = caps_drop(NET_ADMIN, net_admin);
    if (error)
        return complain("capabilities", error);
    /* Changing user clears it: the end of a node ends with the program that started it. */
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    return 0;
}

int privileges_supervise(void) {
    static const cap_value_t KEPT[] = {CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_SETUID, CAP_SETGID, CAP_KILL};
    int error = caps_drop(KEPT, sizeof(KEPT) / sizeof(KEPT[0]));
    return error ? complain("capabilities", error) : 0;
}

bool privileges_known(const char *user) {
    return getpwnam(user) != NULL;
}
