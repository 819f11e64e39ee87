/* Failures of sensor programs: every error has a kind that decides the exit status and stands in the JSON record
 * (CHART System, section 6: pods must tell a missing permission from an unreachable peer). */
#ifndef CHART_SENSORS_FAILURE_H
#define CHART_SENSORS_FAILURE_H

/* The values are the exit statuses. */
enum failure_kind {
    FAILURE_NONE = 0,
    FAILURE_OTHER = 1,
    FAILURE_USAGE = 2,
    FAILURE_UNREACHABLE = 3,
    FAILURE_PERMISSION = 4,
    FAILURE_SPOILT = 5, /* too few trains were left whole by the processors of this or that host: try again */
};

struct failure {
    enum failure_kind kind;
    char message[256];
};

/* Name of a kind as written in error records: "other", "usage", "unreachable", "permission", "spoilt". */
const char *failure_kind_name(enum failure_kind kind);

/* Fill a failure; returns -1 so that callers may `return failure_set(...)`. */
int failure_set(struct failure *failure, enum failure_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fill a failure from an errno value (positive): EPERM and EACCES are a permission, network errors are unreachable. */
int failure_from_errno(struct failure *failure, int error, const char *what);

#endif
