/* The node's certificate, its key and the authority's certificate, for ends that run as a user who may not read those
 * files: copies in memory, which children inherit and find under /proc/self/fd. A file that changes is copied again. */
#ifndef ITM_CREDENTIALS_H
#define ITM_CREDENTIALS_H

#include <stdbool.h>
#include <time.h>

#define CREDENTIALS_PATH_BYTES 512
#define CREDENTIALS_NAME_BYTES 256
#define CREDENTIALS_FAULT_BYTES (CREDENTIALS_PATH_BYTES + 160)

struct credential {
    char source[CREDENTIALS_PATH_BYTES]; /* the file */
    char copy[32];                       /* where an end finds it */
    int descriptor;
    struct timespec changed;
};

struct credentials {
    struct credential certificate, key, authority;
    /* Of the certificate: spiffe://DOMAIN/node/NAME. */
    char name[CREDENTIALS_NAME_BYTES], domain[CREDENTIALS_NAME_BYTES];
};

/* node.pem and node.key in the agent's state directory. 0, or a negative errno after a sentence on standard error. */
int credentials_open(const char *state_directory, const char *authority_ca, struct credentials *ret);
/* Copies what changed; false: the node has no certificate yet, or one that names no node; why is in fault. */
bool credentials_follow(struct credentials *credentials, char fault[CREDENTIALS_FAULT_BYTES]);
void credentials_close(struct credentials *credentials);

#endif
