/* Shared keys and message codes; see keyring.h. */
#include "keyring.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire.h"

/* Far more than KEYRING_MAX_KEYS lines need. */
#define KEY_FILE_MAX_BYTES 8192

static EVP_MAC_CTX *mac_context(const uint8_t *secret) {
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = algorithm ? EVP_MAC_CTX_new(algorithm) : NULL;

    EVP_MAC_free(algorithm);
    if (context && !EVP_MAC_init(context, secret, KEYRING_SECRET_BYTES, parameters)) {
        EVP_MAC_CTX_free(context);
        return NULL;
    }
    return context;
}

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

/* One line without its end; 0 for blank and comment lines, 1 for a key, -1 for nonsense. */
static int parse_line(const char *line, uint16_t *ret_id, uint8_t secret[KEYRING_SECRET_BYTES]) {
    unsigned long id;
    char *end;

    line += strspn(line, " \t\r");
    if (*line == '\0' || *line == '#')
        return 0;
    if (*line < '0' || *line > '9')
        return -1;
    id = strtoul(line, &end, 10);
    if (id < 1 || id > UINT16_MAX || (*end != ' ' && *end != '\t'))
        return -1;
    end += strspn(end, " \t");
    for (size_t i = 0; i < KEYRING_SECRET_BYTES; i++) {
        int high = hex_value(end[0]);
        int low = high < 0 ? -1 : hex_value(end[1]);

        if (low < 0)
            return -1;
        secret[i] = (uint8_t)(high << 4 | low);
        end += 2;
    }
    end += strspn(end, " \t\r");
    if (*end != '\0' && *end != '#')
        return -1;
    *ret_id = (uint16_t)id;
    return 1;
}

static int add_key(struct keyring *keyring, uint16_t id, const uint8_t *secret, struct failure *failure) {
    for (size_t i = 0; i < keyring->count; i++)
        if (keyring->keys[i].id == id)
            return failure_set(failure, FAILURE_USAGE, "key file: key %u stands twice", id);
    if (keyring->count == KEYRING_MAX_KEYS)
        return failure_set(failure, FAILURE_USAGE, "key file: more than %d keys", KEYRING_MAX_KEYS);
    keyring->keys[keyring->count].mac = mac_context(secret);
    if (!keyring->keys[keyring->count].mac)
        return failure_set(failure, FAILURE_OTHER, "HMAC-SHA-256 is not available in libcrypto");
    keyring->keys[keyring->count++].id = id;
    return 0;
}

int keyring_parse(const char *text, size_t length, struct keyring *ret_keyring, struct failure *failure) {
    struct keyring keyring = {0};
    uint8_t secret[KEYRING_SECRET_BYTES];
    char line[256];
    size_t at = 0;
    int result = 0;

    for (unsigned number = 1; at < length && result >= 0; number++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t bytes = end ? (size_t)(end - (text + at)) : length - at;
        uint16_t id;
        int found;

        if (bytes >= sizeof(line)) {
            result = failure_set(failure, FAILURE_USAGE, "key file: line %u is too long", number);
            break;
        }
        memcpy(line, text + at, bytes);
        line[bytes] = '\0';
        at += bytes + 1;
        found = parse_line(line, &id, secret);
        if (found < 0)
            result = failure_set(failure, FAILURE_USAGE, "key file: line %u is not `<id> <64 hex digits>`", number);
        else if (found)
            result = add_key(&keyring, id, secret, failure);
    }
    OPENSSL_cleanse(secret, sizeof(secret));
    OPENSSL_cleanse(line, sizeof(line));
    if (result == 0 && keyring.count == 0)
        result = failure_set(failure, FAILURE_USAGE, "key file: no key in it");
    if (result < 0) {
        keyring_free(&keyring);
        return result;
    }
    *ret_keyring = keyring;
    return 0;
}

int keyring_load(const char *path, struct keyring *ret_keyring, struct failure *failure) {
    char text[KEY_FILE_MAX_BYTES];
    struct stat status;
    ssize_t length;
    int result;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);

    if (descriptor < 0) {
        int error = errno;

        failure_from_errno(failure, error, path);
        if (error == ENOENT)
            failure->kind = FAILURE_USAGE;
        return -1;
    }
    if (fstat(descriptor, &status) < 0 || (status.st_mode & 077)) {
        close(descriptor);
        return failure_set(failure, FAILURE_PERMISSION, "%s: others may read this key file (chmod 600 it)", path);
    }
    length = read(descriptor, text, sizeof(text));
    close(descriptor);
    if (length < 0)
        return failure_from_errno(failure, errno, path);
    result = keyring_parse(text, (size_t)length, ret_keyring, failure);
    OPENSSL_cleanse(text, sizeof(text));
    return result;
}

int keyring_generate(const char *path, struct failure *failure) {
    uint8_t secret[KEYRING_SECRET_BYTES];
    char line[2 * KEYRING_SECRET_BYTES + 8];
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int length;
    int result = 0;

    if (descriptor < 0 && errno == EEXIST)
        return failure_set(failure, FAILURE_USAGE, "%.200s: is there already; remove it to make another key", path);
    if (descriptor < 0)
        return failure_from_errno(failure, errno, path);
    if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret)) {
        close(descriptor);
        return failure_set(failure, FAILURE_OTHER, "no random numbers from the kernel");
    }
    length = snprintf(line, sizeof(line), "1 ");
    for (size_t i = 0; i < sizeof(secret); i++)
        length += snprintf(line + length, sizeof(line) - (size_t)length, "%02x", secret[i]);
    length += snprintf(line + length, sizeof(line) - (size_t)length, "\n");
    if (write(descriptor, line, (size_t)length) != length || fsync(descriptor) < 0)
        result = failure_from_errno(failure, errno, path);
    close(descriptor);
    OPENSSL_cleanse(secret, sizeof(secret));
    OPENSSL_cleanse(line, sizeof(line));
    return result;
}

void keyring_free(struct keyring *keyring) {
    for (size_t i = 0; i < keyring->count; i++)
        EVP_MAC_CTX_free(keyring->keys[i].mac);
    keyring->count = 0;
}

static bool compute(void *mac, const union address *source, const union address *destination, const uint8_t *datagram,
                    size_t length, uint8_t ret_code[WIRE_MAC_BYTES]) {
    uint8_t addresses[2 * ADDRESS_CANONICAL_BYTES];
    uint8_t code[32];
    size_t code_length = 0;

    if (length < WIRE_HEADER_BYTES)
        return false;
    address_canonical(source, addresses);
    address_canonical(destination, addresses + ADDRESS_CANONICAL_BYTES);
    if (!EVP_MAC_init(mac, NULL, 0, NULL) || !EVP_MAC_update(mac, addresses, sizeof(addresses)) ||
        !EVP_MAC_update(mac, datagram, WIRE_MAC_OFFSET) ||
        !EVP_MAC_update(mac, datagram + WIRE_HEADER_BYTES, length - WIRE_HEADER_BYTES) ||
        !EVP_MAC_final(mac, code, &code_length, sizeof(code)) || code_length != sizeof(code))
        return false;
    memcpy(ret_code, code, WIRE_MAC_BYTES);
    return true;
}

int keyring_sign(const struct keyring *keyring, const union address *source, const union address *destination,
                 uint8_t *datagram, size_t length) {
    uint8_t code[WIRE_MAC_BYTES];

    if (keyring->count == 0 || !compute(keyring->keys[0].mac, source, destination, datagram, length, code))
        return -EINVAL;
    memcpy(datagram + WIRE_MAC_OFFSET, code, sizeof(code));
    return 0;
}

bool keyring_verify(const struct keyring *keyring, uint16_t key_id, const union address *source,
                    const union address *destination, const uint8_t *datagram, size_t length) {
    uint8_t code[WIRE_MAC_BYTES];

    for (size_t i = 0; i < keyring->count; i++) {
        if (keyring->keys[i].id != key_id)
            continue;
        if (!compute(keyring->keys[i].mac, source, destination, datagram, length, code))
            return false;
        return CRYPTO_memcmp(code, datagram + WIRE_MAC_OFFSET, sizeof(code)) == 0;
    }
    return false;
}
