/* What a node of the structured overlay Chimera knows of the others, and where it sends a message next: prefix routing
 * with several candidates for each step, of which the nearest that is alive is taken (First Reachable Link Selection,
 * Bavier et al., Increasing TCP Throughput with an Enhanced Internet Control Plane, section II.A), and a leaf set of
 * the nearest nodes on the ring (Rowstron and Druschel, Pastry, section 2). Pure: no clock and no I/O; who runs it
 * sends the questions and tells what is alive. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/chimera/chimera_id.h"

/* Candidates for each step of a route. */
#define CHIMERA_CANDIDATES 3
/* Of the leaf set, on each side. */
#define CHIMERA_LEAVES 4
#define CHIMERA_LEAF_SET (2 * CHIMERA_LEAVES)
/* A row as an answer: its peers, and who answers. */
#define CHIMERA_ROW_MAX (CHIMERA_BASE * CHIMERA_CANDIDATES + 1)
/* As many as the kernel's table has for one destination. */
#define CHIMERA_NEXT_HOPS 4
/* How often one asks for the replacement of one that was lost. */
#define CHIMERA_ASKS 3

struct chimera_peer {
    struct chimera_id id;
    /* The caller's: it is kept and given back. */
    uint32_t handle;
    /* 0: not measured. */
    uint32_t rtt_us;
    bool alive;
};

struct chimera_cell {
    struct chimera_peer peers[CHIMERA_CANDIDATES];
    uint8_t n;
    /* Questions that are still worth asking since one was lost. */
    uint8_t asks;
};

struct chimera_row {
    struct chimera_cell cells[CHIMERA_BASE];
};

/* The nearest nodes on one side of the ring, the nearest first. */
struct chimera_side {
    struct chimera_peer peers[CHIMERA_LEAVES];
    uint8_t n;
    uint8_t asks;
};

struct chimera {
    struct chimera_peer self;
    /* By the number of digits that its peers share with this node; NULL: none is known. */
    struct chimera_row *rows[CHIMERA_DIGITS];
    /* Clockwise and counterclockwise. */
    struct chimera_side sides[2];
};

enum chimera_question {
    /* For all peers that share so many digits with this node. */
    CHIMERA_ASK_ROW,
    /* For the leaf set. */
    CHIMERA_ASK_LEAVES,
};

/* Something that redundancy is short of, and who may know. */
struct chimera_gap {
    struct chimera_peer whom;
    enum chimera_question question;
    uint8_t row;
};

void chimera_init(struct chimera *node, const struct chimera_peer *self);
void chimera_free(struct chimera *node);

/* Somebody was heard of. Whether it is kept now and was not before: it is to be probed, and told of this node; below 0:
 * no memory. */
int chimera_learn(struct chimera *node, const struct chimera_peer *peer);
/* What probes found; false: it is no peer. */
bool chimera_tell(struct chimera *node, const struct chimera_id *id, bool alive, uint32_t rtt_us);
/* It is gone: let replacements be asked for. Whether it was a peer. */
bool chimera_lose(struct chimera *node, const struct chimera_id *id);
/* Whether it is a peer. */
bool chimera_knows(const struct chimera *node, const struct chimera_id *id);

/* Peers that bring a message for a key nearer, in the order in which they are tried, alive ones only: the key's own
 * node, then FRLS's candidates, then whoever else is nearer to the key than this node and shares as many digits. 0:
 * this node is the key's root as far as it knows. */
size_t chimera_next_hops(const struct chimera *node, const struct chimera_id *key,
                         struct chimera_peer ret[CHIMERA_NEXT_HOPS]);

/* Where a node that joins, or looks for its neighbours on the ring, goes on from here towards its own identifier:
 * somebody else who is nearer to it. false: nobody is, so this node's leaf set is what it looks for. */
bool chimera_next_to_ask(const struct chimera *node, const struct chimera_id *joining, struct chimera_peer *ret);

/* Answers: this node and its alive peers of a row, or of the leaf set. */
size_t chimera_answer_row(const struct chimera *node, unsigned row, struct chimera_peer ret[CHIMERA_ROW_MAX]);
size_t chimera_answer_leaves(const struct chimera *node, struct chimera_peer ret[CHIMERA_LEAF_SET + 1]);

/* What to ask next, and it counts as asked; false: nothing is short that could be asked for. */
bool chimera_next_gap(struct chimera *node, struct chimera_gap *ret);
/* All peers, each once; at most `room`. */
size_t chimera_peers(const struct chimera *node, struct chimera_peer *ret, size_t room);
