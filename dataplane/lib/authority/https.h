/* HTTPS to the authority with mutual TLS: libcurl inside the program's own loop, no thread. Answers are wiped after
 * use. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/authority/replicas.h"

struct authority_https;

/* A loop that watches descriptors. Without one (`watch` NULL) answers are found at the ticks alone. */
struct authority_loop {
    /* Call `ready` when the descriptor has events (those of epoll); 0 or a negative errno. */
    int (*watch)(void *context, int descriptor, uint32_t events, void (*ready)(void *ready_context, uint32_t events),
                 void *ready_context);
    void (*forget)(void *context, int descriptor);
    void *context;
};

/* status: of HTTP; 0: no answer, then `text` says why. text ends with a zero octet and is wiped after the call. */
typedef void (*authority_answer)(void *context, long status, const char *text);

/* urls: of the authority's replicas; when one does not answer, or cannot work now, the next is asked from then on.
 * ca_file: what the authority's certificate is checked with. 0, -EINVAL (not addresses of replicas) or another negative
 * errno. */
int authority_https_open(const struct authority_loop *loop, const char *urls, const char *ca_file,
                         struct authority_https **ret);
void authority_https_close(struct authority_https *https);

/* Present this certificate from now on; NULL: none. The files are read again for every new connection. */
void authority_https_identity(struct authority_https *https, const char *certificate_file, const char *key_file);

/* GET, or POST of `body` (JSON, copied) when it is not NULL. `answer` is called exactly once, also when the client is
 * closed before (status 0). limit_s: for the whole exchange. 0 or negative errno, then `answer` is not called. */
int authority_https_ask(struct authority_https *https, const char *path, const char *body, long limit_s,
                        authority_answer answer, void *context);

/* Every 50 ms: time limits; without a loop also whatever came. */
void authority_https_tick(struct authority_https *https);
