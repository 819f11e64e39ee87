/* Plain TCP and TLS, see channel.h. */
#include "channel.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

int channel_open(struct channel *channel, int descriptor, struct tls *tls, const char *address) {
    *channel = (struct channel){.descriptor = descriptor};
    if (!tls)
        return 0;
    channel->ssl = tls_connection(tls, descriptor, address);
    if (channel->ssl)
        return 0;
    channel_close(channel);
    return -ENOMEM;
}

void channel_close(struct channel *channel) {
    SSL_free(channel->ssl);
    if (channel->descriptor >= 0)
        close(channel->descriptor);
    *channel = (struct channel){.descriptor = -1};
}

/* What a failed call of OpenSSL means: -EAGAIN, 0 for the end of the stream, or a negative errno. */
static int meaning(struct channel *channel, int result, int error) {
    switch (SSL_get_error(channel->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        return error ? -error : -ECONNRESET;
    default:
        return -EPROTO;
    }
}

int channel_handshake(struct channel *channel, char fault[TLS_FAULT_BYTES]) {
    if (!channel->ssl)
        return 0;
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(channel->ssl), error = errno;
    if (result == 1)
        return 0;
    if (meaning(channel, result, error) == -EAGAIN)
        return -EAGAIN;
    tls_fault(channel->ssl, fault);
    return -EPROTO;
}

ssize_t channel_send(struct channel *channel, const void *bytes, size_t count) {
    if (!channel->ssl) {
        ssize_t sent = send(channel->descriptor, bytes, count, MSG_NOSIGNAL);
        if (sent >= 0)
            return sent;
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
    }
    ERR_clear_error();
    errno = 0;
    int sent = SSL_write(channel->ssl, bytes, count < INT_MAX ? (int)count : INT_MAX), error = errno;
    if (sent > 0)
        return sent;
    int result = meaning(channel, sent, error);
    return result ? result : -ECONNRESET;
}

ssize_t channel_receive(struct channel *channel, void *bytes, size_t count, char fault[TLS_FAULT_BYTES]) {
    if (!channel->ssl) {
        ssize_t got = recv(channel->descriptor, bytes, count, 0);
        if (got >= 0)
            return got;
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
    }
    ERR_clear_error();
    errno = 0;
    int got = SSL_read(channel->ssl, bytes, count < INT_MAX ? (int)count : INT_MAX), error = errno;
    if (got > 0)
        return got;
    int result = meaning(channel, got, error);
    if (result == -EPROTO)
        tls_fault(channel->ssl, fault);
    return result;
}

void channel_finish(struct channel *channel) {
    if (channel->ssl)
        (void)SSL_shutdown(channel->ssl);
    shutdown(channel->descriptor, SHUT_WR);
}
