/* An overlay of Chimera nodes in simulated time: they join one after the other, some die at once, and messages for
 * nodes that live are routed all the while. The nodes are those of chimera.h; simulated is what lies between: places on
 * a plane that latency follows from, messages that get lost, and probes that find who died.
 *
 * Usage: chimera-simulate [--nodes N] [--seed N] [--die SHARE] [--loss SHARE]. JSON on stdout. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/chimera/chimera.h"

#define MS 1000ll
#define SECOND 1000000ll
/* A node is asked for again after so long, so many times. */
#define RETRY_US (300 * MS)
#define TRIES 6
/* Two nodes are at least so far apart, one way, and at most about twice the other figure. */
#define NEAR_US (1 * MS)
#define FAR_US (40 * MS)
/* Probes of a peer, and how many in a row go unanswered before it counts as dead. */
#define PROBE_US (50 * MS)
#define PROBES 5
#define JOIN_EVERY_US (50 * MS)
/* Nodes ask each other for what they lack so often, also when nothing happened. */
#define EXCHANGE_US (1 * SECOND)
/* From the last join to the measurement. */
#define SETTLE_US (10 * SECOND)
/* Messages are sent so often after the deaths, so many each time. */
#define SAMPLE_US (10 * MS)
#define SAMPLES 100
#define WATCH_US (3 * SECOND)
#define HOPS_MAX 64
#define PEERS_MAX 2048

enum kind { JOIN, STEP, ANSWER, HEAR, MEET, DETECT, ASK, EXCHANGE, SAMPLE };

struct event {
    int64_t at_us;
    uint64_t order;
    enum kind kind;
    /* Of a question that is asked again. */
    enum kind again;
    uint32_t node;
    uint32_t other;
    uint8_t question;
    uint8_t row;
    uint8_t tries;
};

struct place {
    double x, y;
};

struct member {
    struct chimera state;
    struct place place;
    bool joined;
    bool dead;
};

struct world {
    struct member *members;
    uint32_t n;
    double loss;
    uint64_t random;
    struct event *heap;
    size_t n_heap, room;
    uint64_t order;
    int64_t now_us;
    uint64_t messages;
    /* Of messages after the deaths. */
    uint64_t sent, lost, late_sent, late_lost;
    int64_t died_at_us, last_lost_us;
};

/* Marsaglia's xorshift*, 64 bits. */
static uint64_t draw(struct world *world) {
    world->random ^= world->random >> 12;
    world->random ^= world->random << 25;
    world->random ^= world->random >> 27;
    return world->random * 0x2545f4914f6cdd1dull;
}

static double uniform(struct world *world) {
    return (double)(draw(world) >> 11) / (double)(1ull << 53);
}

static uint32_t below(struct world *world, uint32_t n) {
    return (uint32_t)(uniform(world) * n);
}

static void fail(const char *what) {
    fprintf(stderr, "chimera-simulate: %s\n", what);
    exit(1);
}

static bool is_before(const struct event *one, const struct event *other) {
    return one->at_us != other->at_us ? one->at_us < other->at_us : one->order < other->order;
}

static void swap(struct event *heap, size_t one, size_t other) {
    struct event kept = heap[one];

    heap[one] = heap[other];
    heap[other] = kept;
}

static void plan(struct world *world, int64_t in_us, struct event event) {
    size_t place = world->n_heap;

    if (place == world->room) {
        world->room = world->room ? 2 * world->room : 4096;
        world->heap = realloc(world->heap, world->room * sizeof(*world->heap));
        if (!world->heap)
            fail("no memory");
    }
    event.at_us = world->now_us + in_us;
    event.order = world->order++;
    world->heap[world->n_heap++] = event;
    for (; place && is_before(&world->heap[place], &world->heap[(place - 1) / 2]); place = (place - 1) / 2)
        swap(world->heap, place, (place - 1) / 2);
}

static struct event next_event(struct world *world) {
    struct event first = world->heap[0];
    size_t place = 0;

    world->heap[0] = world->heap[--world->n_heap];
    for (;;) {
        size_t least = place, left = 2 * place + 1;

        for (size_t child = left; child < left + 2 && child < world->n_heap; child++)
            if (is_before(&world->heap[child], &world->heap[least]))
                least = child;
        if (least == place)
            return first;
        swap(world->heap, place, least);
        place = least;
    }
}

static int64_t latency_us(const struct world *world, uint32_t one, uint32_t other) {
    const struct place *a = &world->members[one].place, *b = &world->members[other].place;

    return NEAR_US + (int64_t)(FAR_US * hypot(a->x - b->x, a->y - b->y));
}

static bool is_lost(struct world *world) {
    return uniform(world) < world->loss;
}

/* Somebody was heard of: a probe finds whether it lives, and how far it is. */
static void hear(struct world *world, uint32_t node, uint32_t other) {
    const struct member *member = &world->members[node];

    if (other == node || !member->joined || chimera_knows(&member->state, &world->members[other].state.self.id))
        return;
    world->messages += 2;
    if (!world->members[other].dead && !is_lost(world) && !is_lost(world))
        plan(world, 2 * latency_us(world, node, other), (struct event){.kind = MEET, .node = node, .other = other});
}

/* It answered; if it is kept it is told of this node. */
static void meet(struct world *world, uint32_t node, uint32_t other) {
    struct chimera_peer peer = world->members[other].state.self;

    if (world->members[other].dead)
        return;
    peer.rtt_us = (uint32_t)(2 * latency_us(world, node, other));
    if (chimera_learn(&world->members[node].state, &peer) > 0 && !is_lost(world))
        plan(world, latency_us(world, node, other), (struct event){.kind = HEAR, .node = other, .other = node});
}

/* A question is sent; its answer comes after a round trip, unless one of both is lost or the other is dead. */
static void ask(struct world *world, struct event question) {
    int64_t rtt_us = 2 * latency_us(world, question.node, question.other);
    bool lost = is_lost(world) || is_lost(world);

    world->messages += 2;
    if (!lost && !world->members[question.other].dead) {
        plan(world, rtt_us, question);
        return;
    }
    if (++question.tries < TRIES)
        plan(world, RETRY_US,
             (struct event){.kind = ASK,
                            .again = question.kind,
                            .node = question.node,
                            .other = question.other,
                            .question = question.question,
                            .row = question.row,
                            .tries = question.tries});
}

/* What one node lacks is asked for; one that joins asks by ASK and STEP as well. */
static void fill_gaps(struct world *world, uint32_t node) {
    struct chimera_gap gap;

    while (chimera_next_gap(&world->members[node].state, &gap))
        ask(world, (struct event){.kind = ANSWER,
                                  .node = node,
                                  .other = gap.whom.handle,
                                  .question = (uint8_t)gap.question,
                                  .row = gap.row});
}

static void take_answer(struct world *world, const struct event *event) {
    const struct chimera *from = &world->members[event->other].state;
    struct chimera_peer peers[CHIMERA_ROW_MAX];
    size_t n = event->question == CHIMERA_ASK_ROW ? chimera_answer_row(from, event->row, peers)
                                                  : chimera_answer_leaves(from, peers);

    for (size_t i = 0; i < n; i++)
        hear(world, event->node, peers[i].handle);
}

/* A node that joins goes from node to node towards its own identifier, and learns their rows; the last one, which is
 * nearest, gives it its leaf set. */
static void take_step(struct world *world, const struct event *event) {
    struct member *member = &world->members[event->node];
    const struct chimera *there = &world->members[event->other].state;
    unsigned shared = chimera_shared_digits(&member->state.self.id, &there->self.id);
    struct chimera_peer peers[CHIMERA_ROW_MAX], next;
    size_t n;

    for (unsigned row = event->row; row <= shared && row < CHIMERA_DIGITS; row++) {
        n = chimera_answer_row(there, row, peers);
        for (size_t i = 0; i < n; i++)
            hear(world, event->node, peers[i].handle);
    }
    if (chimera_next_to_ask(there, &member->state.self.id, &next)) {
        ask(world, (struct event){.kind = STEP, .node = event->node, .other = next.handle, .row = (uint8_t)shared});
        return;
    }
    n = chimera_answer_leaves(there, peers);
    for (size_t i = 0; i < n; i++)
        hear(world, event->node, peers[i].handle);
}

static void join(struct world *world, uint32_t node) {
    uint32_t known = node ? below(world, node) : 0;

    world->members[node].joined = true;
    if (node)
        ask(world, (struct event){.kind = STEP, .node = node, .other = known});
    plan(world, (int64_t)(uniform(world) * EXCHANGE_US), (struct event){.kind = EXCHANGE, .node = node});
    if (node + 1 < world->n)
        plan(world, JOIN_EVERY_US, (struct event){.kind = JOIN, .node = node + 1});
}

/* A row of a peer may have nearer candidates; a leaf knows those beside it; and on the way towards its own identifier,
 * from a peer that it has by chance, a node finds those beside it on the ring whom it never heard of. */
static void exchange(struct world *world, uint32_t node) {
    struct chimera_peer peers[PEERS_MAX];
    size_t n = chimera_peers(&world->members[node].state, peers, PEERS_MAX);
    const struct chimera_peer *whom = n ? &peers[below(world, (uint32_t)n)] : NULL;

    plan(world, EXCHANGE_US, (struct event){.kind = EXCHANGE, .node = node});
    if (!whom)
        return;
    ask(world, (struct event){.kind = ANSWER,
                              .node = node,
                              .other = whom->handle,
                              .question = CHIMERA_ASK_ROW,
                              .row = (uint8_t)chimera_shared_digits(&world->members[node].state.self.id, &whom->id)});
    ask(world, (struct event){.kind = STEP, .node = node, .other = peers[below(world, (uint32_t)n)].handle});
    n = chimera_answer_leaves(&world->members[node].state, peers);
    if (n > 1)
        ask(world, (struct event){.kind = ANSWER,
                                  .node = node,
                                  .other = peers[1 + below(world, (uint32_t)n - 1)].handle,
                                  .question = CHIMERA_ASK_LEAVES});
}

/* Where a message goes: by what each node on the way believes. Hops, or below 0: it is lost. */
static int route(const struct world *world, uint32_t from, uint32_t to) {
    const struct chimera_id *key = &world->members[to].state.self.id;
    struct chimera_peer hops[CHIMERA_NEXT_HOPS];

    for (int n = 0; n < HOPS_MAX; n++) {
        if (from == to)
            return n;
        if (!chimera_next_hops(&world->members[from].state, key, hops))
            return -1;
        from = hops[0].handle;
        if (world->members[from].dead)
            return -1;
    }
    return -1;
}

static uint32_t any_alive(struct world *world) {
    uint32_t found;

    do
        found = below(world, world->n);
    while (world->members[found].dead);
    return found;
}

static void sample(struct world *world) {
    for (int i = 0; i < SAMPLES; i++) {
        uint32_t from = any_alive(world), to = any_alive(world);
        bool late = world->now_us >= world->died_at_us + SECOND;
        bool lost = from != to && route(world, from, to) < 0;

        world->sent++;
        world->lost += lost;
        world->late_sent += late;
        world->late_lost += lost && late;
        if (lost)
            world->last_lost_us = world->now_us;
    }
    if (world->now_us < world->died_at_us + WATCH_US)
        plan(world, SAMPLE_US, (struct event){.kind = SAMPLE});
}

static void happen(struct world *world, const struct event *event) {
    struct member *member = &world->members[event->node];

    if (event->kind != SAMPLE && member->dead)
        return;
    switch (event->kind) {
    case JOIN:
        join(world, event->node);
        break;
    case STEP:
        take_step(world, event);
        break;
    case ANSWER:
        take_answer(world, event);
        break;
    case HEAR:
        hear(world, event->node, event->other);
        break;
    case MEET:
        meet(world, event->node, event->other);
        break;
    case DETECT:
        if (chimera_lose(&member->state, &world->members[event->other].state.self.id))
            fill_gaps(world, event->node);
        break;
    case ASK:
        ask(world, (struct event){.kind = event->again,
                                  .node = event->node,
                                  .other = event->other,
                                  .question = event->question,
                                  .row = event->row,
                                  .tries = event->tries});
        break;
    case EXCHANGE:
        exchange(world, event->node);
        break;
    case SAMPLE:
        sample(world);
        break;
    }
}

static void run(struct world *world, int64_t until_us) {
    while (world->n_heap && world->heap[0].at_us <= until_us) {
        struct event event = next_event(world);

        world->now_us = event.at_us;
        happen(world, &event);
    }
    world->now_us = until_us;
}

/* A share of all die in one moment; who probes them finds it so after its unanswered probes. */
static void die(struct world *world, double share) {
    uint32_t n = (uint32_t)lround(share * world->n);
    struct chimera_peer peers[PEERS_MAX];

    world->died_at_us = world->last_lost_us = world->now_us;
    while (n--)
        world->members[any_alive(world)].dead = true;
    for (uint32_t node = 0; node < world->n; node++) {
        size_t n_peers = chimera_peers(&world->members[node].state, peers, PEERS_MAX);

        for (size_t i = 0; i < n_peers && !world->members[node].dead; i++)
            if (world->members[peers[i].handle].dead)
                plan(world, PROBES * PROBE_US + (int64_t)(uniform(world) * PROBE_US) + peers[i].rtt_us,
                     (struct event){.kind = DETECT, .node = node, .other = peers[i].handle});
    }
    plan(world, 0, (struct event){.kind = SAMPLE});
}

struct seen {
    uint64_t tried;
    uint64_t undelivered;
    uint64_t hops;
    int most;
};

static struct seen all_pairs(const struct world *world) {
    struct seen seen = {0};

    for (uint32_t from = 0; from < world->n; from++)
        for (uint32_t to = 0; to < world->n && !world->members[from].dead; to++) {
            int hops = from == to || world->members[to].dead ? 0 : route(world, from, to);

            if (from == to || world->members[to].dead)
                continue;
            seen.tried++;
            seen.undelivered += hops < 0;
            seen.hops += hops > 0 ? (uint64_t)hops : 0;
            seen.most = hops > seen.most ? hops : seen.most;
        }
    return seen;
}

static double mean_peers(const struct world *world) {
    struct chimera_peer peers[PEERS_MAX];
    double sum = 0, n = 0;

    for (uint32_t node = 0; node < world->n; node++)
        if (!world->members[node].dead) {
            sum += (double)chimera_peers(&world->members[node].state, peers, PEERS_MAX);
            n++;
        }
    return sum / n;
}

static void make(struct world *world) {
    world->members = calloc(world->n, sizeof(*world->members));
    if (!world->members)
        fail("no memory");
    for (uint32_t node = 0; node < world->n; node++) {
        struct chimera_peer self = {.handle = node};
        uint64_t key = draw(world);

        self.id = chimera_id_of_key((const uint8_t *)&key, sizeof(key));
        world->members[node].place = (struct place){uniform(world), uniform(world)};
        chimera_init(&world->members[node].state, &self);
    }
}

static double number(const char *text, double least, double most, const char *what) {
    char *end;
    double found = strtod(text, &end);

    if (*end || end == text || !(found >= least && found <= most)) {
        fprintf(stderr, "chimera-simulate: %s is %s, must be a number from %g to %g\n", what, text, least, most);
        exit(2);
    }
    return found;
}

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"nodes", required_argument, NULL, 'n'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"die", required_argument, NULL, 'd'},
                                            {"loss", required_argument, NULL, 'l'},
                                            {NULL, 0, NULL, 0}};
    struct world world = {.n = 256, .loss = 0.01};
    double seed = 1, dying = 0.1;
    struct seen before, after;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'n')
            world.n = (uint32_t)number(optarg, 2, 4096, "--nodes");
        else if (option == 's')
            seed = number(optarg, 1, 1e9, "--seed");
        else if (option == 'd')
            dying = number(optarg, 0, 0.9, "--die");
        else if (option == 'l')
            world.loss = number(optarg, 0, 0.5, "--loss");
        else
            return 2;
    }
    world.random = (uint64_t)seed * 0x9e3779b97f4a7c15ull;
    make(&world);
    plan(&world, 0, (struct event){.kind = JOIN});
    run(&world, world.n * JOIN_EVERY_US);
    world.messages = 0;
    run(&world, world.now_us + SETTLE_US);
    before = all_pairs(&world);
    printf("{\"nodes\": %u, \"seed\": %.0f, \"loss\": %g, \"joined_s\": %.1f, \"messages_per_node_s\": %.1f, "
           "\"peers_mean\": %.1f, \"hops_mean\": %.3f, \"hops_max\": %d, \"undelivered_before\": %llu, "
           "\"tried_before\": %llu, ",
           world.n, seed, world.loss, (double)world.now_us / SECOND,
           (double)world.messages / world.n / ((double)SETTLE_US / SECOND), mean_peers(&world),
           share(before.hops, before.tried - before.undelivered), before.most, (unsigned long long)before.undelivered,
           (unsigned long long)before.tried);
    die(&world, dying);
    run(&world, world.died_at_us + WATCH_US + SECOND);
    after = all_pairs(&world);
    printf("\"died\": %.0f, \"repair_s\": %.3f, \"lost_in_first_second\": %.4f, \"undelivered_after_1s\": %llu, "
           "\"tried_after_1s\": %llu, \"undelivered\": %llu, \"tried\": %llu, \"hops_mean_after\": %.3f, "
           "\"peers_mean_after\": %.1f}\n",
           round(dying * world.n), (double)(world.last_lost_us - world.died_at_us) / SECOND,
           share(world.lost - world.late_lost, world.sent - world.late_sent), (unsigned long long)world.late_lost,
           (unsigned long long)world.late_sent, (unsigned long long)after.undelivered, (unsigned long long)after.tried,
           share(after.hops, after.tried - after.undelivered), mean_peers(&world));
    for (uint32_t node = 0; node < world.n; node++)
        chimera_free(&world.members[node].state);
    free(world.members);
    free(world.heap);
    return 0;
}
