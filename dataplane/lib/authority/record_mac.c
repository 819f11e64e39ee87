/* HMAC-SHA-256 over topic, key and value of a record; see record_mac.h. */
#include "lib/authority/record_mac.h"

#include <arpa/inet.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <string.h>

#define MAC_OCTETS 32

static bool add_text(EVP_MAC_CTX *mac, const void *octets, size_t length) {
    uint32_t size = htonl((uint32_t)length);
    return EVP_MAC_update(mac, (const unsigned char *)&size, sizeof(size)) == 1 &&
           EVP_MAC_update(mac, octets, length) == 1;
}

static bool compute(const uint8_t key_octets[32], const char *topic, const char *key, const void *value, size_t length,
                    uint8_t ret[MAC_OCTETS]) {
    static const char label[] = "chart-record-v1";
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = algorithm ? EVP_MAC_CTX_new(algorithm) : NULL;
    size_t size = 0;
    bool good = mac && EVP_MAC_init(mac, key_octets, 32, params) == 1 && add_text(mac, label, sizeof(label) - 1) &&
                add_text(mac, topic, strlen(topic)) && add_text(mac, key, strlen(key)) &&
                add_text(mac, value, length) && EVP_MAC_final(mac, ret, &size, MAC_OCTETS) == 1 && size == MAC_OCTETS;
    EVP_MAC_CTX_free(mac);
    EVP_MAC_free(algorithm);
    return good;
}

bool record_mac(const char *node, uint8_t epoch, const uint8_t key_octets[32], const char *topic, const char *key,
                const void *value, size_t length, char ret[RECORD_MAC_LEN]) {
    uint8_t mac[MAC_OCTETS];
    int at;
    if (!compute(key_octets, topic, key, value, length, mac))
        return false;
    at = snprintf(ret, RECORD_MAC_LEN, "v1 %s %u ", node, epoch);
    if (at < 0 || at + 2 * MAC_OCTETS >= RECORD_MAC_LEN)
        return false;
    for (int i = 0; i < MAC_OCTETS; i++)
        snprintf(ret + at + 2 * i, 3, "%02x", mac[i]);
    return true;
}
