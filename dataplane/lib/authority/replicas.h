/* The addresses of the authority's replicas, as --authority names them. */
#pragma once

#define AUTHORITY_REPLICAS_MAX 8
#define AUTHORITY_URL_LEN 256

/* "https://HOST:PORT[,https://HOST:PORT]" taken apart. How many there are, or -EINVAL. */
int authority_replicas(const char *urls, char ret[AUTHORITY_REPLICAS_MAX][AUTHORITY_URL_LEN]);
