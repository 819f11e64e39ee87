/* See credentials.h. */
#define _GNU_SOURCE
#include "credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Certificates and keys are far smaller. */
#define FILE_MAX 65536

static int open_copy(struct credential *credential, const char *source) {
    if (snprintf(credential->source, sizeof(credential->source), "%s", source) >= CREDENTIALS_PATH_BYTES)
        return -ENAMETOOLONG;
    credential->descriptor = memfd_create("chart-tunnel-credential", 0);
    if (credential->descriptor < 0)
        return -errno;
    snprintf(credential->copy, sizeof(credential->copy), "/proc/self/fd/%d", credential->descriptor);
    return 0;
}

int credentials_open(const char *state_directory, const char *authority_ca, struct credentials *ret) {
    char certificate[CREDENTIALS_PATH_BYTES + 16], key[CREDENTIALS_PATH_BYTES + 16];
    memset(ret, 0, sizeof(*ret));
    ret->certificate.descriptor = ret->key.descriptor = ret->authority.descriptor = -1;
    snprintf(certificate, sizeof(certificate), "%.*s/node.pem", CREDENTIALS_PATH_BYTES, state_directory);
    snprintf(key, sizeof(key), "%.*s/node.key", CREDENTIALS_PATH_BYTES, state_directory);
    int error = open_copy(&ret->certificate, certificate);
    error = error ? error : open_copy(&ret->key, key);
    error = error ? error : open_copy(&ret->authority, authority_ca);
    if (error)
        fprintf(stderr, "chart-tunnel: no room for the node's certificate: %s\n", strerror(-error));
    return error;
}

void credentials_close(struct credentials *credentials) {
    const struct credential *const all[] = {&credentials->certificate, &credentials->key, &credentials->authority};
    for (size_t i = 0; i < 3; i++)
        if (all[i]->descriptor >= 0)
            close(all[i]->descriptor);
}

/* The whole file into memory: 0, or a negative errno. */
static int copy(const struct credential *credential) {
    char bytes[FILE_MAX];
    int file = open(credential->source, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -errno;
    ssize_t got = read(file, bytes, sizeof(bytes));
    int error = got < 0 ? -errno : got == sizeof(bytes) ? -EFBIG : 0;
    close(file);
    if (!error &&
        (ftruncate(credential->descriptor, 0) < 0 || pwrite(credential->descriptor, bytes, (size_t)got, 0) < 0))
        error = -errno;
    explicit_bzero(bytes, sizeof(bytes));
    return error;
}

/* Whether it was copied anew; a negative errno when the file cannot be read. */
static int follow(struct credential *credential) {
    struct stat found;
    if (stat(credential->source, &found) < 0)
        return -errno;
    if (memcmp(&found.st_mtim, &credential->changed, sizeof(found.st_mtim)) == 0)
        return 0;
    int error = copy(credential);
    if (error)
        return error;
    credential->changed = found.st_mtim;
    return 1;
}

static bool take_name(const char *uri, struct credentials *credentials) {
    static const char SCHEME[] = "spiffe://";
    if (strncmp(uri, SCHEME, sizeof(SCHEME) - 1) != 0)
        return false;
    const char *domain = uri + sizeof(SCHEME) - 1, *slash = strchr(domain, '/');
    if (!slash || strncmp(slash, "/node/", 6) != 0 || slash - domain >= CREDENTIALS_NAME_BYTES ||
        strlen(slash + 6) >= CREDENTIALS_NAME_BYTES)
        return false;
    snprintf(credentials->domain, CREDENTIALS_NAME_BYTES, "%.*s", (int)(slash - domain), domain);
    snprintf(credentials->name, CREDENTIALS_NAME_BYTES, "%s", slash + 6);
    return true;
}

static bool read_name(struct credentials *credentials) {
    FILE *file = fopen(credentials->certificate.source, "re");
    X509 *certificate = file ? PEM_read_X509(file, NULL, NULL, NULL) : NULL;
    GENERAL_NAMES *names = certificate ? X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL) : NULL;
    bool found = false;
    for (int i = 0; !found && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        found = name->type == GEN_URI &&
                take_name((const char *)ASN1_STRING_get0_data(name->d.uniformResourceIdentifier), credentials);
    }
    GENERAL_NAMES_free(names);
    X509_free(certificate);
    if (file)
        fclose(file);
    return found;
}

bool credentials_follow(struct credentials *credentials, char fault[CREDENTIALS_FAULT_BYTES]) {
    struct credential *const all[] = {&credentials->key, &credentials->authority, &credentials->certificate};
    int changed = 0;
    for (size_t i = 0; i < 3; i++) {
        changed = follow(all[i]);
        if (changed < 0) {
            snprintf(fault, CREDENTIALS_FAULT_BYTES, "%s cannot be read: %s: chart-agent enrols the node",
                     all[i]->source, strerror(-changed));
            return false;
        }
    }
    if (changed > 0 && !read_name(credentials))
        credentials->name[0] = '\0';
    if (credentials->name[0])
        return true;
    snprintf(fault, CREDENTIALS_FAULT_BYTES, "%s names no node (spiffe://DOMAIN/node/NAME)",
             credentials->certificate.source);
    return false;
}
