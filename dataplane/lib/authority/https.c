/* See https.h. */
#include "lib/authority/https.h"

#include <curl/curl.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define ANSWER_MAX (4u << 20)
#define CONNECT_LIMIT_S 5L
#define URL_LEN 1024
#define CLOCK_FAULT_LEN 160
#define MOMENT_LEN 24

struct exchange {
    struct exchange *next;
    CURL *easy;
    /* The replica that was asked. */
    size_t base;
    struct curl_slist *headers;
    authority_answer answer;
    void *context;
    char *text;
    size_t length;
    size_t room;
    char error[CURL_ERROR_SIZE];
};

struct authority_https {
    struct authority_loop loop;
    CURLM *multi;
    struct exchange *running;
    char bases[AUTHORITY_REPLICAS_MAX][AUTHORITY_URL_LEN];
    size_t n_bases;
    size_t base;
    const char *ca_file;
    const char *certificate_file;
    const char *key_file;
    /* What is wrong with the time of the certificate that an authority presented last; "": nothing. */
    char clock_fault[CLOCK_FAULT_LEN];
};

static void wipe(char *text, size_t length) {
    if (text)
        explicit_bzero(text, length);
    free(text);
}

static size_t on_data(char *data, size_t size, size_t n, void *context) {
    struct exchange *exchange = context;
    size_t more = size * n, need = exchange->length + more + 1;
    if (need > ANSWER_MAX)
        return 0;
    if (need > exchange->room) {
        /* Not realloc: it would leave a copy of what may be a key. */
        size_t room = need < 4096 ? 4096 : 2 * need;
        char *grown = malloc(room);
        if (!grown)
            return 0;
        if (exchange->text)
            memcpy(grown, exchange->text, exchange->length);
        wipe(exchange->text, exchange->length);
        exchange->text = grown;
        exchange->room = room;
    }
    memcpy(exchange->text + exchange->length, data, more);
    exchange->length += more;
    exchange->text[exchange->length] = '\0';
    return more;
}

static void in_words(const struct tm *utc, char ret[MOMENT_LEN]) {
    strftime(ret, MOMENT_LEN, "%Y-%m-%dT%H:%M:%SZ", utc);
}

/* A clock that is off is told with both times: curl's own words have neither. */
static int on_certificate(int good, X509_STORE_CTX *store) {
    const SSL *connection = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct authority_https *https = SSL_CTX_get_app_data(SSL_get_SSL_CTX(connection));
    const X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    int error = X509_STORE_CTX_get_error(store);
    char limit[MOMENT_LEN], here[MOMENT_LEN];
    struct tm utc;
    time_t now = time(NULL);
    if (good || !certificate || (error != X509_V_ERR_CERT_NOT_YET_VALID && error != X509_V_ERR_CERT_HAS_EXPIRED))
        return good;
    bool early = error == X509_V_ERR_CERT_NOT_YET_VALID;
    if (ASN1_TIME_to_tm(early ? X509_get0_notBefore(certificate) : X509_get0_notAfter(certificate), &utc) != 1)
        return good;
    in_words(&utc, limit);
    in_words(gmtime_r(&now, &utc), here);
    snprintf(https->clock_fault, sizeof(https->clock_fault),
             "the authority's certificate %s %s, and it is %s here: a clock is off, set them right",
             early ? "is not valid before" : "expired at", limit, here);
    return good;
}

static CURLcode on_tls(CURL *easy, void *tls, void *context) {
    (void)easy;
    SSL_CTX_set_app_data((SSL_CTX *)tls, context);
    SSL_CTX_set_verify((SSL_CTX *)tls, SSL_VERIFY_PEER, on_certificate);
    return CURLE_OK;
}

/* This replica is gone, or has lost its database or its key store: the next one is asked from now on. */
static void move_on(struct authority_https *https, const struct exchange *exchange, long status) {
    /* Several questions may have failed at the same replica. */
    if ((status == 0 || status == 503) && exchange->base == https->base)
        https->base = (https->base + 1) % https->n_bases;
}

static void finish(struct authority_https *https, struct exchange *exchange, CURLcode result) {
    struct exchange **link = &https->running;
    long status = 0;
    while (*link && *link != exchange)
        link = &(*link)->next;
    if (*link)
        *link = exchange->next;
    if (result == CURLE_OK)
        curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(https->multi, exchange->easy);
    move_on(https, exchange, status);
    if (status)
        exchange->answer(exchange->context, status, exchange->text ? exchange->text : "");
    else if (result == CURLE_PEER_FAILED_VERIFICATION && *https->clock_fault)
        exchange->answer(exchange->context, 0, https->clock_fault);
    else
        exchange->answer(exchange->context, 0, *exchange->error ? exchange->error : curl_easy_strerror(result));
    curl_easy_cleanup(exchange->easy);
    curl_slist_free_all(exchange->headers);
    wipe(exchange->text, exchange->length);
    free(exchange);
}

static void collect(struct authority_https *https) {
    const CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(https->multi, &left))) {
        struct exchange *exchange;
        CURLcode result = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        finish(https, exchange, result);
    }
}

/* One descriptor has events; which one curl finds out itself, since the loop hands over the context only. */
static void on_socket(void *context, uint32_t events) {
    struct authority_https *https = context;
    int running;
    (void)events;
    curl_multi_perform(https->multi, &running);
    collect(https);
}

static int watch(CURL *easy, curl_socket_t socket, int what, void *context, void *socket_context) {
    struct authority_https *https = context;
    (void)easy;
    if (socket_context)
        https->loop.forget(https->loop.context, socket);
    curl_multi_assign(https->multi, socket, NULL);
    if (what == CURL_POLL_REMOVE)
        return 0;
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (https->loop.watch(https->loop.context, socket, events, on_socket, https) == 0)
        curl_multi_assign(https->multi, socket, https);
    return 0;
}

int authority_https_open(const struct authority_loop *loop, const char *urls, const char *ca_file,
                         struct authority_https **ret) {
    struct authority_https *https = calloc(1, sizeof(*https));
    int n;
    if (!https)
        return -ENOMEM;
    https->loop = *loop;
    https->ca_file = ca_file;
    n = authority_replicas(urls, https->bases);
    if (n < 0) {
        free(https);
        return n;
    }
    https->n_bases = (size_t)n;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    https->multi = curl_multi_init();
    if (!https->multi) {
        free(https);
        return -ENOMEM;
    }
    if (loop->watch) {
        curl_multi_setopt(https->multi, CURLMOPT_SOCKETFUNCTION, watch);
        curl_multi_setopt(https->multi, CURLMOPT_SOCKETDATA, https);
    }
    curl_multi_setopt(https->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, 8L);
    *ret = https;
    return 0;
}

void authority_https_close(struct authority_https *https) {
    if (!https)
        return;
    while (https->running)
        finish(https, https->running, CURLE_ABORTED_BY_CALLBACK);
    curl_multi_cleanup(https->multi);
    curl_global_cleanup();
    free(https);
}

void authority_https_identity(struct authority_https *https, const char *certificate_file, const char *key_file) {
    https->certificate_file = certificate_file;
    https->key_file = key_file;
}

static void set_options(struct authority_https *https, struct exchange *exchange, const char *url, long limit_s) {
    CURL *easy = exchange->easy;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https");
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CAINFO, https->ca_file);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_tls);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, https);
    if (https->certificate_file) {
        curl_easy_setopt(easy, CURLOPT_SSLCERT, https->certificate_file);
        curl_easy_setopt(easy, CURLOPT_SSLKEY, https->key_file);
    }
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, CONNECT_LIMIT_S);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, limit_s);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->error);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
}

int authority_https_ask(struct authority_https *https, const char *path, const char *body, long limit_s,
                        authority_answer answer, void *context) {
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    char url[URL_LEN];
    int running;
    if (!exchange)
        return -ENOMEM;
    exchange->easy = curl_easy_init();
    exchange->base = https->base;
    if (!exchange->easy ||
        (size_t)snprintf(url, sizeof(url), "%s%s", https->bases[exchange->base], path) >= sizeof(url)) {
        curl_easy_cleanup(exchange->easy);
        free(exchange);
        return -EINVAL;
    }
    exchange->answer = answer;
    exchange->context = context;
    https->clock_fault[0] = '\0';
    set_options(https, exchange, url, limit_s);
    if (body) {
        exchange->headers = curl_slist_append(NULL, "Content-Type: application/json");
        curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, exchange->headers);
        curl_easy_setopt(exchange->easy, CURLOPT_COPYPOSTFIELDS, body);
    }
    exchange->next = https->running;
    https->running = exchange;
    curl_multi_add_handle(https->multi, exchange->easy);
    curl_multi_socket_action(https->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    return 0;
}

void authority_https_tick(struct authority_https *https) {
    int running;
    curl_multi_perform(https->multi, &running);
    collect(https);
}
