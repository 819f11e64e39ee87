/* See queue.h. */
#define _GNU_SOURCE
#include "queue.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECEIVE_BYTES (256 * 1024)
/* Of the socket: a burst of first packets. */
#define SOCKET_BYTES (1024 * 1024)

struct queue {
    struct mnl_socket *socket;
    uint16_t number;
    uint32_t mark;
    char buffer[RECEIVE_BYTES];
};

struct reading {
    queue_packet *take;
    void *context;
};

static struct nlmsghdr *begin(char *buffer, const struct queue *queue, uint16_t type, uint16_t flags) {
    struct nlmsghdr *header = mnl_nlmsg_put_header(buffer);
    header->nlmsg_type = (NFNL_SUBSYS_QUEUE << 8) | type;
    header->nlmsg_flags = NLM_F_REQUEST | flags;
    struct nfgenmsg *message = mnl_nlmsg_put_extra_header(header, sizeof(*message));
    message->nfgen_family = AF_UNSPEC;
    message->version = NFNETLINK_V0;
    message->res_id = htons(queue->number);
    return header;
}

static int send_to_kernel(const struct queue *queue, const struct nlmsghdr *header) {
    return mnl_socket_sendto(queue->socket, header, header->nlmsg_len) < 0 ? -errno : 0;
}

/* Sends a request that is answered before any packet can come. */
static int configure(struct queue *queue, struct nlmsghdr *header) {
    int error = send_to_kernel(queue, header);
    if (error)
        return error;
    ssize_t got = mnl_socket_recvfrom(queue->socket, queue->buffer, sizeof(queue->buffer));
    if (got < 0 || mnl_cb_run(queue->buffer, (size_t)got, 0, 0, NULL, NULL) < 0)
        return -errno;
    return 0;
}

static int set_up(struct queue *queue, uint32_t held) {
    char buffer[256];
    struct nfqnl_msg_config_cmd command = {.command = NFQNL_CFG_CMD_BIND, .pf = htons(AF_UNSPEC)};
    struct nlmsghdr *header = begin(buffer, queue, NFQNL_MSG_CONFIG, NLM_F_ACK);
    mnl_attr_put(header, NFQA_CFG_CMD, sizeof(command), &command);
    int error = configure(queue, header);
    /* The kernel says EPERM as well when the queue has an owner. */
    if (error)
        return error == -EPERM ? -EBUSY : error;
    struct nfqnl_msg_config_params parameters = {.copy_range = htonl(QUEUE_COPY_BYTES), .copy_mode = NFQNL_COPY_PACKET};
    header = begin(buffer, queue, NFQNL_MSG_CONFIG, NLM_F_ACK);
    mnl_attr_put(header, NFQA_CFG_PARAMS, sizeof(parameters), &parameters);
    mnl_attr_put_u32(header, NFQA_CFG_QUEUE_MAXLEN, htonl(held));
    mnl_attr_put_u32(header, NFQA_CFG_FLAGS, htonl(NFQA_CFG_F_FAIL_OPEN));
    mnl_attr_put_u32(header, NFQA_CFG_MASK, htonl(NFQA_CFG_F_FAIL_OPEN));
    return configure(queue, header);
}

int queue_open(uint16_t number, uint32_t held, uint32_t mark, struct queue **ret) {
    struct queue *queue = calloc(1, sizeof(*queue));
    int one = 1, bytes = SOCKET_BYTES, error = 0;
    if (!queue)
        return -ENOMEM;
    queue->number = number;
    queue->mark = mark;
    queue->socket = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
    if (!queue->socket || mnl_socket_bind(queue->socket, 0, MNL_SOCKET_AUTOPID) < 0)
        error = -errno;
    if (!error)
        error = set_up(queue, held);
    /* Blocking until here; an overrun costs packets that come again, and is no reason to end. */
    if (!error) {
        (void)mnl_socket_setsockopt(queue->socket, NETLINK_NO_ENOBUFS, &one, sizeof(one));
        (void)setsockopt(mnl_socket_get_fd(queue->socket), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    }
    if (error) {
        queue_close(queue);
        return error;
    }
    *ret = queue;
    return 0;
}

void queue_close(struct queue *queue) {
    if (!queue)
        return;
    if (queue->socket)
        mnl_socket_close(queue->socket);
    free(queue);
}

int queue_fd(const struct queue *queue) {
    return mnl_socket_get_fd(queue->socket);
}

static int read_message(const struct nlmsghdr *header, void *context) {
    const struct reading *reading = context;
    const struct nlattr *attribute;
    struct nfqnl_msg_packet_hdr packet;
    const uint8_t *payload = NULL;
    size_t bytes = 0;
    bool has_id = false;
    if (header->nlmsg_type != ((NFNL_SUBSYS_QUEUE << 8) | NFQNL_MSG_PACKET))
        return MNL_CB_OK;
    mnl_attr_for_each(attribute, header, sizeof(struct nfgenmsg)) {
        if (mnl_attr_get_type(attribute) == NFQA_PACKET_HDR && mnl_attr_get_payload_len(attribute) >= sizeof(packet)) {
            memcpy(&packet, mnl_attr_get_payload(attribute), sizeof(packet));
            has_id = true;
        } else if (mnl_attr_get_type(attribute) == NFQA_PAYLOAD) {
            payload = mnl_attr_get_payload(attribute);
            bytes = mnl_attr_get_payload_len(attribute);
        }
    }
    if (has_id)
        reading->take(reading->context, ntohl(packet.packet_id), payload, bytes);
    return MNL_CB_OK;
}

int queue_run(struct queue *queue, queue_packet *take, void *context) {
    struct reading reading = {take, context};
    for (;;) {
        ssize_t got = recv(queue_fd(queue), queue->buffer, sizeof(queue->buffer), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS))
            return 0;
        if (got <= 0)
            return got < 0 ? -errno : 0;
        /* An answer to a verdict whose packet is gone is no reason to end either. */
        (void)mnl_cb_run(queue->buffer, (size_t)got, 0, 0, read_message, &reading);
    }
}

int queue_decide(struct queue *queue, uint32_t id, enum queue_verdict verdict) {
    static const uint32_t meaning[] = {[QUEUE_PASS] = NF_ACCEPT, [QUEUE_TAKE] = NF_REPEAT, [QUEUE_DROP] = NF_DROP};
    char buffer[128];
    struct nlmsghdr *header = begin(buffer, queue, NFQNL_MSG_VERDICT, 0);
    struct nfqnl_msg_verdict_hdr decided = {.verdict = htonl(meaning[verdict]), .id = htonl(id)};
    mnl_attr_put(header, NFQA_VERDICT_HDR, sizeof(decided), &decided);
    if (verdict == QUEUE_TAKE)
        mnl_attr_put_u32(header, NFQA_MARK, htonl(queue->mark));
    return send_to_kernel(queue, header);
}
