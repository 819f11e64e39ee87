/* The node's key and certificate: made here, signed by the authority, kept in two files of the state directory (0600).
 * The private key never leaves the machine. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTHORITY_PATH_LEN 256

struct authority_identity {
    char key_file[AUTHORITY_PATH_LEN];
    char certificate_file[AUTHORITY_PATH_LEN];
    /* The key that a renewal is asked for with, until its certificate came. */
    char new_key_file[AUTHORITY_PATH_LEN];
    /* Microseconds since the epoch; 0: no certificate. */
    int64_t not_before_us;
    int64_t not_after_us;
};

/* Sets the paths and reads the certificate when there is one. 0 or -ENAMETOOLONG. */
int authority_identity_open(struct authority_identity *identity, const char *state_dir);
/* True: none of the certificates in `ca_file` issued this one, so it is used no more. What cannot be read says nothing.
 */
bool authority_identity_drop_foreign(struct authority_identity *identity, const char *ca_file);
bool authority_identity_valid(const struct authority_identity *identity, int64_t now_us);
/* Why there is no certificate to go on with, a sentence for people: there never was one, or it is over by this clock.
 */
void authority_identity_lack(const struct authority_identity *identity, int64_t now_us, char *ret, size_t size);
/* Half of the certificate's life is over. */
bool authority_identity_due(const struct authority_identity *identity, int64_t now_us);
/* A signing request (PEM, *ret_csr to be freed) of a fresh P-256 key; until a certificate of it came always of the same
 * one, which a one-time token whose answer was lost is still good for. 0 or negative errno. */
int authority_identity_request(struct authority_identity *identity, const char *name, char **ret_csr);
/* Keep the certificate that the authority gave for the last request. 0, -EBADMSG (not for our key) or negative errno.
 */
int authority_identity_keep(struct authority_identity *identity, const char *certificate_pem);
/* The token of a file, a one-time token or a service account's, without white space; read anew each time. 0, -ENOENT
 * (also without a file), -ENODATA (an empty file), -EFBIG (no token is that long) or another negative errno. */
int authority_identity_token(const char *file, char *ret, size_t size);
/* In words why there is no token: `error` of authority_identity_token. */
void authority_identity_no_token(const char *file, int error, char *ret, size_t size);
