/* TLS contexts and what goes wrong with them, see tls.h. */
#include "tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* OpenSSL numbers an alert of the other end as a reason from here on. */
#define ALERT_REASON SSL_AD_REASON_OFFSET

struct tls {
    struct tls_options options;
    bool answers;
    SSL_CTX *context;
    struct timespec loaded[3]; /* times of change of the files when they were loaded */
};

__attribute__((format(printf, 2, 3))) static int fail(char *fault, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault, TLS_FAULT_BYTES, format, arguments);
    va_end(arguments);
    ERR_clear_error();
    return -EINVAL;
}

/* What OpenSSL says last about a file. */
static const char *reason(void) {
    unsigned long error = ERR_peek_last_error();
    const char *text = ERR_reason_error_string(error);
    if (ERR_SYSTEM_ERROR(ERR_peek_error()))
        return strerror((int)ERR_GET_REASON(ERR_peek_error()));
    return text ? text : "not a PEM file of that kind";
}

/* Whose certificate was refused last: the connection itself does not keep one that failed. */
static char refused_subject[96];

static int on_verified(int good, X509_STORE_CTX *store) {
    const X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    if (!good && certificate)
        X509_NAME_oneline(X509_get_subject_name(certificate), refused_subject, sizeof(refused_subject));
    return good;
}

static void read_times(const struct tls_options *options, struct timespec *ret) {
    const char *const paths[] = {options->certificate, options->key, options->authority};
    for (size_t i = 0; i < 3; i++) {
        struct stat found;
        memset(&ret[i], 0, sizeof(ret[i]));
        if (stat(paths[i], &found) == 0)
            ret[i] = found.st_mtim;
    }
}

static int check_dates(SSL_CTX *context, const char *path, char *fault) {
    X509 *certificate = SSL_CTX_get0_certificate(context);
    char text[64] = "";
    const ASN1_TIME *end = X509_get0_notAfter(certificate), *start = X509_get0_notBefore(certificate);
    bool over = X509_cmp_current_time(end) < 0, early = X509_cmp_current_time(start) > 0;
    if (!over && !early)
        return 0;
    BIO *memory = BIO_new(BIO_s_mem());
    if (memory && ASN1_TIME_print(memory, over ? end : start)) {
        int bytes = BIO_read(memory, text, sizeof(text) - 1);
        text[bytes > 0 ? bytes : 0] = '\0';
    }
    BIO_free(memory);
    return fail(fault, "certificate %s %s %s", path, over ? "has expired on" : "is not valid before", text);
}

static int load(const struct tls_options *options, SSL_CTX *context, char *fault) {
    if (SSL_CTX_use_certificate_chain_file(context, options->certificate) != 1)
        return fail(fault, "certificate %s: %s", options->certificate, reason());
    if (SSL_CTX_use_PrivateKey_file(context, options->key, SSL_FILETYPE_PEM) != 1) {
        if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH ||
            ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_TYPE_MISMATCH)
            return fail(fault, "key %s does not belong to certificate %s", options->key, options->certificate);
        return fail(fault, "key %s: %s", options->key, reason());
    }
    if (SSL_CTX_load_verify_locations(context, options->authority, NULL) != 1)
        return fail(fault, "authority %s: %s", options->authority, reason());
    return check_dates(context, options->certificate, fault);
}

static SSL_CTX *make_context(const struct tls_options *options, bool answers, char *fault) {
    SSL_CTX *context = SSL_CTX_new(answers ? TLS_server_method() : TLS_client_method());
    if (!context) {
        (void)fail(fault, "no memory for TLS");
        return NULL;
    }
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_verified);
    /* The kernel encrypts where it can. A buffer may grow while a part of it waits to be sent. */
    SSL_CTX_set_options(context, SSL_OP_ENABLE_KTLS | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    if (load(options, context, fault) < 0) {
        SSL_CTX_free(context);
        return NULL;
    }
    return context;
}

int tls_open(const struct tls_options *options, bool answers, struct tls **ret, char fault[TLS_FAULT_BYTES]) {
    struct tls *tls = calloc(1, sizeof(*tls));
    if (!tls)
        return fail(fault, "no memory for TLS");
    tls->options = *options;
    tls->answers = answers;
    read_times(options, tls->loaded);
    tls->context = make_context(options, answers, fault);
    if (!tls->context) {
        free(tls);
        return -EINVAL;
    }
    *ret = tls;
    return 0;
}

void tls_close(struct tls *tls) {
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    free(tls);
}

int tls_refresh(struct tls *tls, char fault[TLS_FAULT_BYTES]) {
    struct timespec times[3];
    read_times(&tls->options, times);
    if (memcmp(times, tls->loaded, sizeof(times)) == 0)
        return 0;
    /* Half-written files are looked at again when they change again. */
    memcpy(tls->loaded, times, sizeof(times));
    SSL_CTX *context = make_context(&tls->options, tls->answers, fault);
    if (!context)
        return -EINVAL;
    SSL_CTX_free(tls->context);
    tls->context = context;
    return 0;
}

SSL *tls_connection(struct tls *tls, int descriptor, const char *address) {
    SSL *ssl = SSL_new(tls->context);
    if (!ssl)
        return NULL;
    bool good = SSL_set_fd(ssl, descriptor) == 1;
    if (tls->options.name)
        good &= SSL_set1_host(ssl, tls->options.name) == 1;
    else if (address)
        good &= X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), address) == 1;
    if (!good) {
        SSL_free(ssl);
        return NULL;
    }
    if (tls->answers)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

void tls_fault(SSL *ssl, char fault[TLS_FAULT_BYTES]) {
    unsigned long error = ERR_peek_error();
    long verified = SSL_get_verify_result(ssl);
    int number = ERR_GET_REASON(error);

    if (number == SSL_R_CERTIFICATE_VERIFY_FAILED || verified != X509_V_OK) {
        (void)fail(fault, "the other end's certificate is refused: %s%s%s", X509_verify_cert_error_string(verified),
                   ", subject ", refused_subject);
    } else if (ERR_GET_LIB(error) == ERR_LIB_SSL && number == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        (void)fail(fault, "the other end shows no certificate");
    } else if (ERR_GET_LIB(error) == ERR_LIB_SSL && number > ALERT_REASON && number < ALERT_REASON + 256) {
        (void)fail(fault, "the other end refuses our certificate or TLS: %s",
                   SSL_alert_desc_string_long(number - ALERT_REASON));
    } else if (ERR_GET_LIB(error) == ERR_LIB_SSL &&
               (number == SSL_R_WRONG_VERSION_NUMBER || number == SSL_R_HTTP_REQUEST)) {
        (void)fail(fault, "what is at the other end does not speak TLS");
    } else {
        const char *text = ERR_reason_error_string(error);
        (void)fail(fault, "TLS: %s", text ? text : "the connection ended in the handshake");
    }
}
