/* Failures of sensor programs; see failure.h. */
#include "failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *failure_kind_name(enum failure_kind kind) {
    switch (kind) {
    case FAILURE_NONE:
        return "none";
    case FAILURE_USAGE:
        return "usage";
    case FAILURE_UNREACHABLE:
        return "unreachable";
    case FAILURE_PERMISSION:
        return "permission";
    case FAILURE_SPOILT:
        return "spoilt";
    case FAILURE_OTHER:
        break;
    }
    return "other";
}

int failure_set(struct failure *failure, enum failure_kind kind, const char *format, ...) {
    va_list arguments;

    failure->kind = kind;
    va_start(arguments, format);
    vsnprintf(failure->message, sizeof(failure->message), format, arguments);
    va_end(arguments);
    return -1;
}

int failure_from_errno(struct failure *failure, int error, const char *what) {
    enum failure_kind kind = FAILURE_OTHER;

    switch (error) {
    case EPERM:
    case EACCES:
        kind = FAILURE_PERMISSION;
        break;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ECONNREFUSED:
    case ENETDOWN:
    case EHOSTDOWN:
    case ETIMEDOUT:
        kind = FAILURE_UNREACHABLE;
        break;
    default:
        break;
    }
    return failure_set(failure, kind, "%s: %s", what, strerror(error));
}
