/* See authority_identity.h. */
#include "authority/authority_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* X.520, ub-common-name. */
#define COMMON_NAME_MAX 64

static int64_t moment_us(const ASN1_TIME *moment) {
    struct tm utc;
    return ASN1_TIME_to_tm(moment, &utc) == 1 ? (int64_t)timegm(&utc) * 1000000 : 0;
}

static void note_times(struct authority_identity *identity, const X509 *certificate) {
    identity->not_before_us = moment_us(X509_get0_notBefore(certificate));
    identity->not_after_us = moment_us(X509_get0_notAfter(certificate));
}

static int path(char *ret, const char *state_dir, const char *name) {
    return (size_t)snprintf(ret, AUTHORITY_PATH_LEN, "%s/%s", state_dir, name) < AUTHORITY_PATH_LEN ? 0 : -ENAMETOOLONG;
}

static X509 *read_certificate(const char *name) {
    FILE *file = fopen(name, "re");
    X509 *certificate = file ? PEM_read_X509(file, NULL, NULL, NULL) : NULL;
    if (file)
        fclose(file);
    return certificate;
}

int authority_identity_open(struct authority_identity *identity, const char *state_dir) {
    *identity = (struct authority_identity){0};
    int error = path(identity->key_file, state_dir, "node.key");
    error = error ? error : path(identity->certificate_file, state_dir, "node.pem");
    error = error ? error : path(identity->new_key_file, state_dir, "node.key.new");
    if (error)
        return error;
    X509 *certificate = read_certificate(identity->certificate_file);
    if (certificate && access(identity->key_file, R_OK) == 0)
        note_times(identity, certificate);
    X509_free(certificate);
    return 0;
}

bool authority_identity_drop_foreign(struct authority_identity *identity, const char *ca_file) {
    X509 *certificate = identity->not_after_us ? read_certificate(identity->certificate_file) : NULL;
    FILE *file = certificate ? fopen(ca_file, "re") : NULL;
    bool issued = false, read = false;
    X509 *ca;
    while (file && (ca = PEM_read_X509(file, NULL, NULL, NULL))) {
        read = true;
        issued = issued || X509_verify(certificate, X509_get0_pubkey(ca)) == 1;
        X509_free(ca);
    }
    if (file)
        fclose(file);
    X509_free(certificate);
    if (!read || issued)
        return false;
    identity->not_before_us = identity->not_after_us = 0;
    return true;
}

bool authority_identity_valid(const struct authority_identity *identity, int64_t now_us) {
    return identity->not_after_us > now_us;
}

static void in_words(int64_t at_us, char ret[24]) {
    struct tm utc;
    time_t at = (time_t)(at_us / 1000000);
    strftime(ret, 24, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &utc));
}

void authority_identity_lack(const struct authority_identity *identity, int64_t now_us, char *ret, size_t size) {
    char end[24], here[24];
    if (!identity->not_after_us) {
        snprintf(ret, size, "this node is not enrolled: state --enrolment-token-file");
        return;
    }
    in_words(identity->not_after_us, end);
    in_words(now_us, here);
    snprintf(ret, size,
             "it expired at %s, and it is %s here: enrol again with a new one-time token, or set the clock right", end,
             here);
}

bool authority_identity_due(const struct authority_identity *identity, int64_t now_us) {
    return 2 * now_us >= identity->not_before_us + identity->not_after_us;
}

/* A file that only its owner may read. */
static FILE *create_private(const char *name) {
    unlink(name);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file && fd >= 0)
        close(fd);
    return file;
}

static int write_key(const char *name, EVP_PKEY *key) {
    FILE *file = create_private(name);
    if (!file)
        return -errno;
    int good = PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
    return fclose(file) == 0 && good == 1 ? 0 : -EIO;
}

/* The certificate carries the identity that the token was made for; the name in the request is for people. */
static int make_csr(EVP_PKEY *key, const char *name, char **ret_csr) {
    X509_REQ *request = X509_REQ_new();
    BIO *memory = BIO_new(BIO_s_mem());
    int status = -ENOMEM, name_length = (int)strnlen(name, COMMON_NAME_MAX);
    char *text;
    long length;
    if (request && memory && X509_REQ_set_version(request, 0) == 1 &&
        X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(request), "CN", MBSTRING_ASC, (const unsigned char *)name,
                                   name_length, -1, 0) == 1 &&
        X509_REQ_set_pubkey(request, key) == 1 && X509_REQ_sign(request, key, EVP_sha256()) > 0 &&
        PEM_write_bio_X509_REQ(memory, request) == 1) {
        length = BIO_get_mem_data(memory, &text);
        *ret_csr = strndup(text, (size_t)length);
        status = *ret_csr ? 0 : -ENOMEM;
    }
    BIO_free(memory);
    X509_REQ_free(request);
    return status;
}

static EVP_PKEY *read_key(const char *name) {
    FILE *file = fopen(name, "re");
    if (!file)
        return NULL;
    EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    fclose(file);
    return key;
}

int authority_identity_request(struct authority_identity *identity, const char *name, char **ret_csr) {
    EVP_PKEY *key = read_key(identity->new_key_file);
    int status = 0;
    if (!key) {
        key = EVP_EC_gen("P-256");
        if (!key)
            return -ENOMEM;
        status = write_key(identity->new_key_file, key);
    }
    status = status ? status : make_csr(key, name, ret_csr);
    EVP_PKEY_free(key);
    return status;
}

static int check_key(const char *key_file, X509 *certificate) {
    EVP_PKEY *key = read_key(key_file);
    int good = key && X509_check_private_key(certificate, key) == 1;
    EVP_PKEY_free(key);
    return good ? 0 : -EBADMSG;
}

int authority_identity_keep(struct authority_identity *identity, const char *certificate_pem) {
    BIO *memory = BIO_new_mem_buf(certificate_pem, -1);
    X509 *certificate = memory ? PEM_read_bio_X509(memory, NULL, NULL, NULL) : NULL;
    char draft[AUTHORITY_PATH_LEN + 8];
    FILE *file;
    int status;
    BIO_free(memory);
    status = certificate ? check_key(identity->new_key_file, certificate) : -EBADMSG;
    if (status)
        goto out;
    snprintf(draft, sizeof(draft), "%s.new", identity->certificate_file);
    file = create_private(draft);
    status = file ? 0 : -errno;
    if (file) {
        bool good = fputs(certificate_pem, file) >= 0;
        status = fclose(file) == 0 && good ? 0 : -EIO;
    }
    /* The key first: with an old certificate and a new key the next start enrols or renews again, never the reverse. */
    if (!status && (rename(identity->new_key_file, identity->key_file) || rename(draft, identity->certificate_file)))
        status = -errno;
    if (!status)
        note_times(identity, certificate);
out:
    X509_free(certificate);
    return status;
}

int authority_identity_token(const char *file, char *ret, size_t size) {
    int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    int error = file ? -errno : -ENOENT;
    *ret = '\0';
    if (fd < 0)
        return error;
    ssize_t length = read(fd, ret, size);
    error = length < 0 ? -errno : (size_t)length == size ? -EFBIG : 0;
    close(fd);
    ret[error ? 0 : length] = '\0';
    ret[strcspn(ret, " \r\n\t")] = '\0';
    return error ? error : *ret ? 0 : -ENODATA;
}

void authority_identity_no_token(const char *file, int error, char *ret, size_t size) {
    if (!file)
        snprintf(ret, size, "this node is not enrolled: state --enrolment-token-file");
    else if (error == -ENODATA)
        snprintf(ret, size, "%.120s is empty: this node is not enrolled", file);
    else
        snprintf(ret, size, "%.120s: %s", file, strerror(-error));
}
