/* See log.h. */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void agent_log(const char *level, const char *format, ...) {
    char text[1024], stamp[32];
    va_list arguments;
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s.%03ldZ %s chart-agent: %s\n", stamp, now.tv_nsec / 1000000, level, text);
}
