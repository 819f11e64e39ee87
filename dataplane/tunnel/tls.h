/* Mutual TLS 1.3 between the ends, by OpenSSL: each has a certificate and key of its own and the authority that it
 * trusts. The origin also checks whom it reached: the destination's address, or the name that it was told, must stand
 * in the certificate; the destination does so when it was told the origin's name. Errors are sentences that name the
 * fault and the file or certificate. */
#ifndef ITM_TLS_H
#define ITM_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>

#define TLS_FAULT_BYTES 240

struct tls_options {
    const char *certificate, *key, *authority; /* PEM files; all or none */
    const char *name;                          /* that the other end's certificate must have, or NULL */
};

struct tls;

/* side: true for the destination (it answers). 0, or -EINVAL with a sentence in fault: a file cannot be read, a key
 * does not belong to its certificate, the own certificate is out of date. */
int tls_open(const struct tls_options *options, bool answers, struct tls **ret, char fault[TLS_FAULT_BYTES]);
void tls_close(struct tls *tls);
/* Loads files that changed since they were loaded, for connections from now on: 0, or -EINVAL (fault; the old ones stay
 * in use). */
int tls_refresh(struct tls *tls, char fault[TLS_FAULT_BYTES]);
/* A connection's state; address: of the destination, checked in its certificate unless there is a name; NULL at the
 * destination. NULL when there is no memory. The caller frees it with SSL_free. */
SSL *tls_connection(struct tls *tls, int descriptor, const char *address);
/* Why a handshake or a call on this connection failed. */
void tls_fault(SSL *ssl, char fault[TLS_FAULT_BYTES]);

#endif
