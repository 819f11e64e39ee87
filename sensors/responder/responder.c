/* Decisions of the sensor-responder; see responder.h. */
#include "responder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "replay.h"
#include "trains.h"

struct peer {
    union address host; /* port not used */
    uint64_t used_at;   /* order of use; 0: free */
    struct replay_hellos hellos;
    double bucket_replies;
    int64_t filled_at_ns;
};

struct session {
    union address source;
    uint64_t number;
    uint64_t token;
    uint64_t used_at; /* order of use; 0: free */
    struct replay_window window;
    struct train_store *trains; /* made by the first chirp packet */
};

struct responder {
    const struct keyring *keyring;
    struct responder_limits limits;
    struct responder_counters counters;
    uint64_t uses;
    /* HELLO times of peers that had to leave the table: nothing older is believed from a peer that is not in it. */
    uint64_t evicted_floor_ns;
    struct peer peers[RESPONDER_PEERS];
    struct session sessions[RESPONDER_SESSIONS];
};

struct responder *responder_new(const struct keyring *keyring, const struct responder_limits *limits) {
    struct responder *responder = calloc(1, sizeof(*responder));

    if (!responder)
        return NULL;
    responder->keyring = keyring;
    responder->limits = *limits;
    return responder;
}

void responder_free(struct responder *responder) {
    if (!responder)
        return;
    for (size_t i = 0; i < RESPONDER_SESSIONS; i++)
        free(responder->sessions[i].trains);
    free(responder);
}

const struct responder_counters *responder_counters(const struct responder *responder) {
    return &responder->counters;
}

static uint64_t newest_hello(const struct replay_hellos *hellos) {
    uint64_t newest = hellos->floor_ns;

    for (size_t i = 0; i < REPLAY_HELLOS; i++)
        if (hellos->times_ns[i] > newest)
            newest = hellos->times_ns[i];
    return newest;
}

static struct peer *find_or_take_peer(struct responder *responder, const union address *source, int64_t now_ns) {
    struct peer *oldest = &responder->peers[0];

    for (size_t i = 0; i < RESPONDER_PEERS; i++) {
        struct peer *peer = &responder->peers[i];

        if (peer->used_at && address_same_host(&peer->host, source)) {
            peer->used_at = ++responder->uses;
            return peer;
        }
        if (peer->used_at < oldest->used_at)
            oldest = peer;
    }
    if (oldest->used_at && newest_hello(&oldest->hellos) > responder->evicted_floor_ns)
        responder->evicted_floor_ns = newest_hello(&oldest->hellos);
    memset(oldest, 0, sizeof(*oldest));
    oldest->host = *source;
    oldest->used_at = ++responder->uses;
    oldest->hellos.floor_ns = responder->evicted_floor_ns;
    oldest->bucket_replies = responder->limits.burst_replies;
    oldest->filled_at_ns = now_ns;
    return oldest;
}

static struct session *find_session(struct responder *responder, const union address *source, uint64_t number) {
    for (size_t i = 0; i < RESPONDER_SESSIONS; i++) {
        struct session *session = &responder->sessions[i];

        if (session->used_at && session->number == number && address_equal(&session->source, source))
            return session;
    }
    return NULL;
}

static struct session *open_session(struct responder *responder, const union address *source, uint64_t number) {
    struct session *oldest = &responder->sessions[0];
    struct train_store *trains;
    uint64_t token = 0;

    for (size_t i = 1; i < RESPONDER_SESSIONS; i++)
        if (responder->sessions[i].used_at < oldest->used_at)
            oldest = &responder->sessions[i];
    if (getrandom(&token, sizeof(token), GRND_NONBLOCK) != (ssize_t)sizeof(token) || token == 0)
        return NULL;
    trains = oldest->trains;
    if (trains)
        memset(trains, 0, sizeof(*trains));
    memset(oldest, 0, sizeof(*oldest));
    oldest->trains = trains;
    oldest->source = *source;
    oldest->number = number;
    oldest->token = token;
    return oldest;
}

static bool take_reply(struct responder *responder, struct peer *peer, int64_t now_ns) {
    double passed_s = (double)(now_ns - peer->filled_at_ns) / 1e9;

    peer->filled_at_ns = now_ns;
    peer->bucket_replies += passed_s * responder->limits.replies_per_s;
    if (peer->bucket_replies > responder->limits.burst_replies)
        peer->bucket_replies = responder->limits.burst_replies;
    if (peer->bucket_replies < 1)
        return false;
    peer->bucket_replies -= 1;
    return true;
}

/* The session that the datagram belongs to, when it is neither replayed nor unknown. */
static struct session *admit(struct responder *responder, struct peer *peer, const struct wire_header *header,
                             const union address *source) {
    struct session *session = find_session(responder, source, header->session);

    if (header->type == WIRE_HELLO) {
        if (!replay_hello_accept(&peer->hellos, header->time_ns)) {
            responder->counters.refused_replayed++;
            return NULL;
        }
        /* A repeated HELLO of a sensor that missed the WELCOME keeps its session. */
        if (!session)
            session = open_session(responder, source, header->session);
        return session;
    }
    if (!session || session->token != header->token) {
        responder->counters.refused_unknown_session++;
        return NULL;
    }
    if (!replay_window_accept(&session->window, header->sequence)) {
        responder->counters.refused_replayed++;
        return NULL;
    }
    return session;
}

static void note_chirp(struct responder *responder, struct session *session, const struct wire_header *header,
                       int64_t at_ns) {
    if (!session->trains)
        session->trains = calloc(1, sizeof(*session->trains));
    if (!session->trains)
        return;
    train_store_add(session->trains, header->train, header->index, at_ns);
    responder->counters.chirp_packets++;
}

/* Fill the reply's header (and payload); false when this type has none. */
static bool build_reply(struct session *session, const struct wire_header *header,
                        const struct responder_datagram *datagram, struct wire_header *reply, uint8_t *bytes) {
    int64_t first_at_ns;
    size_t entries;

    reply->length = WIRE_HEADER_BYTES;
    switch (header->type) {
    case WIRE_HELLO:
        reply->type = WIRE_WELCOME;
        reply->token = session->token;
        return true;
    case WIRE_ECHO: {
        int64_t spent_ns = datagram->now_ns - datagram->arrived_at_ns;

        reply->type = WIRE_ECHO_REPLY;
        /* As long as the request, so that both directions carry the same. */
        reply->length = header->length;
        reply->time_ns = (uint64_t)datagram->arrived_at_ns;
        reply->train = spent_ns < 0 ? 0 : spent_ns > UINT32_MAX ? UINT32_MAX : (uint32_t)spent_ns;
        return true;
    }
    case WIRE_FETCH:
        if (!session->trains)
            return false;
        entries = train_store_read(session->trains, header->train, header->index, bytes + WIRE_HEADER_BYTES,
                                   header->length - WIRE_HEADER_BYTES, &first_at_ns);
        reply->type = WIRE_TRAIN;
        reply->train = header->train;
        reply->time_ns = (uint64_t)first_at_ns;
        reply->index = header->index;
        reply->count = (uint16_t)entries;
        reply->payload_length = (uint16_t)(entries * WIRE_TRAIN_ENTRY_BYTES);
        reply->length = (uint16_t)(WIRE_HEADER_BYTES + reply->payload_length);
        return true;
    default:
        return false;
    }
}

size_t responder_handle(struct responder *responder, const struct responder_datagram *datagram, uint8_t *ret_reply) {
    struct responder_counters *counters = &responder->counters;
    struct wire_header reply = {0};
    struct wire_header header;
    struct session *session;
    struct peer *peer;

    counters->received++;
    counters->received_bytes += datagram->length;
    if (wire_decode(datagram->bytes, datagram->length, &header) < 0 ||
        (header.type != WIRE_HELLO && header.type != WIRE_ECHO && header.type != WIRE_CHIRP &&
         header.type != WIRE_FETCH)) {
        counters->refused_malformed++;
        return 0;
    }
    if (!keyring_verify(responder->keyring, header.key_id, &datagram->source, &datagram->destination, datagram->bytes,
                        datagram->length)) {
        counters->refused_unauthenticated++;
        return 0;
    }
    peer = find_or_take_peer(responder, &datagram->source, datagram->monotonic_ns);
    session = admit(responder, peer, &header, &datagram->source);
    if (!session)
        return 0;
    session->used_at = ++responder->uses;
    if (header.type == WIRE_CHIRP) {
        note_chirp(responder, session, &header, datagram->arrived_at_ns);
        return 0;
    }
    if (!take_reply(responder, peer, datagram->monotonic_ns)) {
        counters->refused_rate++;
        return 0;
    }
    memset(ret_reply, 0, header.length);
    reply.key_id = responder->keyring->keys[0].id;
    reply.session = header.session;
    reply.token = session->token;
    reply.sequence = header.sequence;
    if (!build_reply(session, &header, datagram, &reply, ret_reply) || reply.length > header.length)
        return 0;
    wire_encode(&reply, ret_reply);
    if (keyring_sign(responder->keyring, &datagram->destination, &datagram->source, ret_reply, reply.length) < 0)
        return 0;
    counters->replies++;
    counters->reply_bytes += reply.length;
    return reply.length;
}
