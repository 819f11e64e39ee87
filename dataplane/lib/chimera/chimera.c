/* See chimera.h. */
#include "lib/chimera/chimera.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CLOCKWISE, COUNTERCLOCKWISE };

void chimera_init(struct chimera *node, const struct chimera_peer *self) {
    *node = (struct chimera){.self = *self};
    node->self.alive = true;
}

void chimera_free(struct chimera *node) {
    for (unsigned i = 0; i < CHIMERA_DIGITS; i++)
        free(node->rows[i]);
    *node = (struct chimera){0};
}

static struct chimera_cell *cell_of(const struct chimera *node, const struct chimera_id *id) {
    unsigned shared = chimera_shared_digits(&node->self.id, id);

    if (shared == CHIMERA_DIGITS || !node->rows[shared])
        return NULL;
    return &node->rows[shared]->cells[chimera_digit(id, shared)];
}

static int make_row(struct chimera *node, unsigned row) {
    if (!node->rows[row])
        node->rows[row] = calloc(1, sizeof(*node->rows[row]));
    return node->rows[row] ? 0 : -ENOMEM;
}

/* How far a peer is along a side of the ring. */
static struct chimera_id along(const struct chimera *node, int side, const struct chimera_id *id) {
    return side == CLOCKWISE ? chimera_clockwise(&node->self.id, id) : chimera_clockwise(id, &node->self.id);
}

static size_t find(const struct chimera_peer *peers, size_t n, const struct chimera_id *id) {
    size_t place = 0;

    while (place < n && !chimera_same(&peers[place].id, id))
        place++;
    return place;
}

/* The nearest by latency first; who was not measured last, who is not alive after that. */
static bool is_nearer(const struct chimera_peer *one, const struct chimera_peer *other) {
    if (one->alive != other->alive)
        return one->alive;
    return one->rtt_us && (!other->rtt_us || one->rtt_us < other->rtt_us);
}

static void sort_cell(struct chimera_cell *cell) {
    for (size_t i = 1; i < cell->n; i++)
        for (size_t k = i; k > 0 && is_nearer(&cell->peers[k], &cell->peers[k - 1]); k--) {
            struct chimera_peer nearer = cell->peers[k];

            cell->peers[k] = cell->peers[k - 1];
            cell->peers[k - 1] = nearer;
        }
}

static bool enter_cell(struct chimera_cell *cell, const struct chimera_peer *peer) {
    size_t place = find(cell->peers, cell->n, &peer->id);
    bool kept = place < cell->n;

    if (kept) {
        cell->peers[place] = *peer;
    } else if (cell->n < CHIMERA_CANDIDATES) {
        cell->peers[cell->n++] = *peer;
    } else if (is_nearer(peer, &cell->peers[cell->n - 1])) {
        cell->peers[cell->n - 1] = *peer;
    } else {
        return false;
    }
    if (cell->n == CHIMERA_CANDIDATES)
        cell->asks = 0;
    sort_cell(cell);
    return !kept;
}

static bool enter_side(struct chimera *node, int number, const struct chimera_peer *peer) {
    struct chimera_side *side = &node->sides[number];
    struct chimera_id reach = along(node, number, &peer->id);
    size_t place = find(side->peers, side->n, &peer->id), n = side->n;

    if (place < n) {
        side->peers[place] = *peer;
        return false;
    }
    for (place = 0; place < n; place++) {
        struct chimera_id other = along(node, number, &side->peers[place].id);

        if (chimera_compare(&reach, &other) < 0)
            break;
    }
    if (place == CHIMERA_LEAVES)
        return false;
    n = n < CHIMERA_LEAVES ? n + 1 : n;
    memmove(&side->peers[place + 1], &side->peers[place], (n - place - 1) * sizeof(side->peers[0]));
    side->peers[place] = *peer;
    side->n = (uint8_t)n;
    if (n == CHIMERA_LEAVES)
        side->asks = 0;
    return true;
}

int chimera_learn(struct chimera *node, const struct chimera_peer *peer) {
    unsigned shared = chimera_shared_digits(&node->self.id, &peer->id);
    bool known = chimera_knows(node, &peer->id), kept;

    if (shared == CHIMERA_DIGITS)
        return 0;
    if (make_row(node, shared))
        return -ENOMEM;
    kept = enter_cell(cell_of(node, &peer->id), peer);
    for (int side = 0; side < 2; side++)
        kept |= enter_side(node, side, peer);
    return kept && !known;
}

static bool tell(struct chimera_peer *peers, size_t n, const struct chimera_id *id, bool alive, uint32_t rtt_us) {
    size_t place = find(peers, n, id);

    if (place == n)
        return false;
    peers[place].alive = alive;
    if (rtt_us)
        peers[place].rtt_us = rtt_us;
    return true;
}

bool chimera_tell(struct chimera *node, const struct chimera_id *id, bool alive, uint32_t rtt_us) {
    struct chimera_cell *cell = cell_of(node, id);
    bool found = cell && tell(cell->peers, cell->n, id, alive, rtt_us);

    if (found)
        sort_cell(cell);
    for (int side = 0; side < 2; side++)
        found |= tell(node->sides[side].peers, node->sides[side].n, id, alive, rtt_us);
    return found;
}

static bool drop(struct chimera_peer *peers, uint8_t *n, const struct chimera_id *id) {
    size_t place = find(peers, *n, id);

    if (place == *n)
        return false;
    memmove(&peers[place], &peers[place + 1], (*n - place - 1) * sizeof(peers[0]));
    (*n)--;
    return true;
}

bool chimera_lose(struct chimera *node, const struct chimera_id *id) {
    struct chimera_cell *cell = cell_of(node, id);
    bool found = cell && drop(cell->peers, &cell->n, id);

    if (found)
        cell->asks = CHIMERA_ASKS;
    for (int side = 0; side < 2; side++)
        if (drop(node->sides[side].peers, &node->sides[side].n, id)) {
            node->sides[side].asks = CHIMERA_ASKS;
            found = true;
        }
    return found;
}

bool chimera_knows(const struct chimera *node, const struct chimera_id *id) {
    const struct chimera_cell *cell = cell_of(node, id);
    bool found = cell && find(cell->peers, cell->n, id) < cell->n;

    for (int side = 0; side < 2; side++)
        found |= find(node->sides[side].peers, node->sides[side].n, id) < node->sides[side].n;
    return found;
}

/* Adds a peer that is alive and not there yet. */
static size_t add(struct chimera_peer *ret, size_t n, size_t room, const struct chimera_peer *peer) {
    if (n == room || !peer->alive || find(ret, n, &peer->id) < n)
        return n;
    ret[n] = *peer;
    return n + 1;
}

/* A peer that is nearer to the key than this node, and how it compares with others. */
struct onward {
    struct chimera_peer peer;
    unsigned shared;
    struct chimera_id distance;
};

static int order_onward(const void *one, const void *other) {
    const struct onward *a = one, *b = other;

    if (a->shared != b->shared)
        return a->shared > b->shared ? -1 : 1;
    return chimera_compare(&a->distance, &b->distance);
}

/* The nearer of two to a key on the ring; of two as near the one of the smaller identifier, so that all agree. */
static bool is_closer(const struct chimera_id *key, const struct chimera_id *one, const struct chimera_id *other) {
    struct chimera_id there = chimera_distance(key, one), here = chimera_distance(key, other);
    int order = chimera_compare(&there, &here);

    return order < 0 || (order == 0 && chimera_compare(one, other) < 0);
}

/* Whether a key lies between the farthest leaves that are alive, so that its root is a leaf or this node. */
static bool is_among_leaves(const struct chimera *node, const struct chimera_id *key) {
    for (int side = 0; side < 2; side++) {
        const struct chimera_side *leaves = &node->sides[side];
        struct chimera_id reach = along(node, side, key);

        for (size_t i = leaves->n; i-- > 0;) {
            struct chimera_id leaf = along(node, side, &leaves->peers[i].id);

            if (leaves->peers[i].alive && chimera_compare(&reach, &leaf) <= 0)
                return true;
        }
    }
    return false;
}

static size_t among_leaves(const struct chimera *node, const struct chimera_id *key,
                           struct chimera_peer ret[CHIMERA_NEXT_HOPS]) {
    struct chimera_peer sorted[CHIMERA_LEAF_SET];
    size_t n = 0;

    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < node->sides[side].n; i++)
            if (is_closer(key, &node->sides[side].peers[i].id, &node->self.id))
                n = add(sorted, n, CHIMERA_LEAF_SET, &node->sides[side].peers[i]);
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && is_closer(key, &sorted[k].id, &sorted[k - 1].id); k--) {
            struct chimera_peer closer = sorted[k];

            sorted[k] = sorted[k - 1];
            sorted[k - 1] = closer;
        }
    n = n < CHIMERA_NEXT_HOPS ? n : CHIMERA_NEXT_HOPS;
    memcpy(ret, sorted, n * sizeof(ret[0]));
    return n;
}

/* Whoever shares as many digits with the key as this node and is closer to it: the last resort where a cell is empty.
 */
static size_t add_onward(const struct chimera *node, const struct chimera_id *key, size_t n,
                         struct chimera_peer ret[CHIMERA_NEXT_HOPS]) {
    struct chimera_peer peers[CHIMERA_LEAF_SET + CHIMERA_BASE * CHIMERA_CANDIDATES];
    struct onward found[CHIMERA_LEAF_SET + CHIMERA_BASE * CHIMERA_CANDIDATES];
    unsigned row = chimera_shared_digits(&node->self.id, key);
    const struct chimera_row *same = row < CHIMERA_DIGITS ? node->rows[row] : NULL;
    size_t n_peers = 0, n_found = 0;

    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < node->sides[side].n; i++)
            n_peers = add(peers, n_peers, sizeof(peers) / sizeof(peers[0]), &node->sides[side].peers[i]);
    for (size_t i = 0; same && i < CHIMERA_BASE; i++)
        for (size_t k = 0; k < same->cells[i].n; k++)
            n_peers = add(peers, n_peers, sizeof(peers) / sizeof(peers[0]), &same->cells[i].peers[k]);
    for (size_t i = 0; i < n_peers; i++) {
        unsigned shared = chimera_shared_digits(&peers[i].id, key);

        if (shared >= row && is_closer(key, &peers[i].id, &node->self.id))
            found[n_found++] = (struct onward){peers[i], shared, chimera_distance(key, &peers[i].id)};
    }
    if (!n_found)
        return n;
    qsort(found, n_found, sizeof(found[0]), order_onward);
    for (size_t i = 0; i < n_found; i++)
        n = add(ret, n, CHIMERA_NEXT_HOPS, &found[i].peer);
    return n;
}

size_t chimera_next_hops(const struct chimera *node, const struct chimera_id *key,
                         struct chimera_peer ret[CHIMERA_NEXT_HOPS]) {
    const struct chimera_cell *cell = cell_of(node, key);
    size_t n = 0;

    for (size_t i = 0; cell && i < cell->n; i++)
        if (chimera_same(&cell->peers[i].id, key))
            n = add(ret, n, CHIMERA_NEXT_HOPS, &cell->peers[i]);
    if (!n && is_among_leaves(node, key))
        return among_leaves(node, key, ret);
    for (size_t i = 0; cell && i < cell->n; i++)
        n = add(ret, n, CHIMERA_NEXT_HOPS, &cell->peers[i]);
    return add_onward(node, key, n, ret);
}

bool chimera_next_to_ask(const struct chimera *node, const struct chimera_id *joining, struct chimera_peer *ret) {
    struct chimera_peer hops[CHIMERA_NEXT_HOPS];
    size_t n = chimera_next_hops(node, joining, hops), first = n && chimera_same(&hops[0].id, joining);

    if (first == n)
        return false;
    *ret = hops[first];
    return true;
}

size_t chimera_answer_row(const struct chimera *node, unsigned row, struct chimera_peer ret[CHIMERA_ROW_MAX]) {
    size_t n = add(ret, 0, CHIMERA_ROW_MAX, &node->self);

    if (row >= CHIMERA_DIGITS || !node->rows[row])
        return n;
    for (size_t i = 0; i < CHIMERA_BASE; i++)
        for (size_t k = 0; k < node->rows[row]->cells[i].n; k++)
            n = add(ret, n, CHIMERA_ROW_MAX, &node->rows[row]->cells[i].peers[k]);
    return n;
}

size_t chimera_answer_leaves(const struct chimera *node, struct chimera_peer ret[CHIMERA_LEAF_SET + 1]) {
    size_t n = add(ret, 0, CHIMERA_LEAF_SET + 1, &node->self);

    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < node->sides[side].n; i++)
            n = add(ret, n, CHIMERA_LEAF_SET + 1, &node->sides[side].peers[i]);
    return n;
}

/* The farthest leaf of a side that is alive reaches farthest beyond; without one the other side's nearest. */
static const struct chimera_peer *leaf_to_ask(const struct chimera *node, int side) {
    const struct chimera_side *leaves = &node->sides[side], *others = &node->sides[!side];

    for (size_t i = leaves->n; i-- > 0;)
        if (leaves->peers[i].alive)
            return &leaves->peers[i];
    for (size_t i = 0; i < others->n; i++)
        if (others->peers[i].alive)
            return &others->peers[i];
    return NULL;
}

/* Who shares as many digits with this node as those of the row has the same row; each question goes to another one. */
static const struct chimera_peer *peer_to_ask(const struct chimera *node, unsigned row, unsigned turn) {
    const struct chimera_peer *found = NULL;
    unsigned n = 0;

    for (unsigned at = row; at < CHIMERA_DIGITS; at++)
        for (unsigned i = 0; node->rows[at] && i < CHIMERA_BASE; i++)
            for (unsigned k = 0; k < node->rows[at]->cells[i].n; k++) {
                const struct chimera_peer *peer = &node->rows[at]->cells[i].peers[k];

                if (!peer->alive || n > turn)
                    continue;
                found = peer;
                n++;
            }
    return found;
}

static bool gap_of_leaves(struct chimera *node, struct chimera_gap *ret) {
    for (int side = 0; side < 2; side++) {
        struct chimera_side *leaves = &node->sides[side];
        const struct chimera_peer *whom = leaves->asks ? leaf_to_ask(node, side) : NULL;

        if (!whom)
            continue;
        leaves->asks--;
        *ret = (struct chimera_gap){.whom = *whom, .question = CHIMERA_ASK_LEAVES};
        return true;
    }
    return false;
}

bool chimera_next_gap(struct chimera *node, struct chimera_gap *ret) {
    if (gap_of_leaves(node, ret))
        return true;
    for (unsigned row = 0; row < CHIMERA_DIGITS; row++)
        for (unsigned i = 0; node->rows[row] && i < CHIMERA_BASE; i++) {
            struct chimera_cell *cell = &node->rows[row]->cells[i];
            const struct chimera_peer *whom;

            if (!cell->asks)
                continue;
            whom = peer_to_ask(node, row, (unsigned)(CHIMERA_ASKS - cell->asks) * 7 + i);
            cell->asks--;
            if (!whom)
                continue;
            *ret = (struct chimera_gap){.whom = *whom, .question = CHIMERA_ASK_ROW, .row = (uint8_t)row};
            return true;
        }
    return false;
}

size_t chimera_peers(const struct chimera *node, struct chimera_peer *ret, size_t room) {
    size_t n = 0;

    for (unsigned row = 0; row < CHIMERA_DIGITS; row++)
        for (unsigned i = 0; node->rows[row] && i < CHIMERA_BASE; i++)
            for (unsigned k = 0; k < node->rows[row]->cells[i].n && n < room; k++)
                ret[n++] = node->rows[row]->cells[i].peers[k];
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < node->sides[side].n; i++) {
            const struct chimera_peer *leaf = &node->sides[side].peers[i];
            const struct chimera_cell *cell = cell_of(node, &leaf->id);

            /* Leaves that stand in a cell as well, and those of a small ring that stand on both sides, count once. */
            if (n < room && (!cell || find(cell->peers, cell->n, &leaf->id) == cell->n) &&
                (side == 0 || find(node->sides[0].peers, node->sides[0].n, &leaf->id) == node->sides[0].n))
                ret[n++] = *leaf;
        }
    return n;
}
