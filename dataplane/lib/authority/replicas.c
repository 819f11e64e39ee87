/* See replicas.h. */
#include "lib/authority/replicas.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int authority_replicas(const char *urls, char ret[AUTHORITY_REPLICAS_MAX][AUTHORITY_URL_LEN]) {
    int n = 0;
    for (const char *url = urls;; url++) {
        size_t length = strcspn(url, ",");
        if (n == AUTHORITY_REPLICAS_MAX || strncmp(url, "https://", 8) != 0 || length <= 8 ||
            length >= AUTHORITY_URL_LEN)
            return -EINVAL;
        snprintf(ret[n++], AUTHORITY_URL_LEN, "%.*s", (int)length, url);
        url += length;
        if (!*url)
            return n;
    }
}
