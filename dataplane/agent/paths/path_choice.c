/* See path_choice.h. */
#include "paths/path_choice.h"

#include <math.h>
#include <string.h>

/* Standard deviations of what is believed of the last seconds. */
#define BELIEVED 3.0
/* Loss that is looked for: so much more than the others', and so many times it. */
#define MORE_LOSS 0.05
#define TIMES_LOSS 4.0
#define LOSS_MIN 0.002
#define LOSS_MAX 0.9
/* How suspicious a path has to be. */
#define SUSPICIOUS 10.0
/* Probes that the memory of loss weighs, at the most. */
#define MEMORY_PROBES 500.0
#define LOADED 0.7
/* More than a queue that flows fill themselves loses. */
#define LOSS_OF_OTHERS 0.03
/* New flows of a class with many paths take those up to this factor, and go on to a little more. */
#define OFFERED_FACTOR 1.2
#define WITHDRAWN_FACTOR 1.4
#define WORSE_LOOKS 2
#define NS_PER_MS 1e6
#define US_PER_S 1e6

static const struct {
    /* How much worse than the best a path is that flows leave. */
    double left_factor;
    bool many_paths;
} classes[CHART_OVERLAY_CLASSES] = {
    [CHART_OVERLAY_VOICE] = {1.2, false},
    [CHART_OVERLAY_VIDEO] = {1.2, false},
    [CHART_OVERLAY_DATA] = {2.0, true},
};

/* A bound of a share of which `hits` of `n` were seen: Wilson's score interval, so many standard deviations off, the
 * lower one where they are negative. */
static double wilson(double hits, double n, double deviations) {
    double share, square = deviations * deviations, centre, half;

    if (n <= 0)
        return deviations > 0 ? 1.0 : 0.0;
    share = hits / n;
    centre = share + square / (2 * n);
    half = deviations * sqrt(share * (1 - share) / n + square / (4 * n * n));
    return fmin(fmax((centre + half) / (1 + square / n), 0.0), 1.0);
}

struct exchanges {
    double n;
    double lost;
};

/* Between two answered probes: those still on their way are no loss. */
static struct exchanges between(const struct path_seen *first, const struct path_seen *last) {
    double n = (double)(last->answered - first->answered);

    return (struct exchanges){n, fmax(n - (double)(last->answers - first->answers), 0.0)};
}

/* Of the last second, or of less where less is known. */
static struct exchanges of_last_second(const struct path_memory *memory) {
    return memory->n_looks ? between(&memory->looks[0], &memory->looks[memory->n_looks - 1]) : (struct exchanges){0};
}

static struct exchanges of_last_look(const struct path_memory *memory) {
    return memory->n_looks > 1 ? between(&memory->looks[memory->n_looks - 2], &memory->looks[memory->n_looks - 1])
                               : (struct exchanges){0};
}

static void keep_look(struct path_memory *memory, const struct path_seen *seen) {
    const struct path_seen *before = memory->n_looks ? &memory->looks[memory->n_looks - 1] : seen;

    /* The program counts from the start again. */
    if (seen->answered < before->answered || seen->answers < before->answers)
        memory->n_looks = 0;
    if (memory->n_looks == PATH_LOOKS + 1)
        memmove(memory->looks, memory->looks + 1, sizeof(*memory->looks) * PATH_LOOKS);
    else
        memory->n_looks++;
    memory->looks[memory->n_looks - 1] = *seen;
}

static void remember_loss(struct path_memory *memory, struct exchanges fresh) {
    double kept = memory->probes + fresh.n > MEMORY_PROBES ? fmax(MEMORY_PROBES - fresh.n, 0.0) / memory->probes : 1.0;

    memory->probes = memory->probes * kept + fresh.n;
    memory->lost = memory->lost * kept + fresh.lost;
}

static double load_of(const struct path_memory *memory) {
    uint64_t octets = memory->looks[memory->n_looks - 1].forwarded_bytes - memory->looks[0].forwarded_bytes;
    double seconds = (double)(memory->n_looks - 1) * PATH_LOOK_US / US_PER_S;

    return memory->capacity_bps ? (double)octets * 8.0 / seconds / (double)memory->capacity_bps : 0.0;
}

void path_memory_look(struct path_memory *memory, const struct path_seen *seen) {
    struct path_quality *quality = &memory->quality;
    struct exchanges second;

    quality->alive = seen->alive;
    /* What is not answered while a path is dead is no loss of its. */
    if (!seen->alive) {
        memory->n_looks = 0;
        quality->known = false;
        return;
    }
    keep_look(memory, seen);
    quality->known = memory->n_looks == PATH_LOOKS + 1;
    quality->rtt_ms = (double)seen->rtt_ns / NS_PER_MS;
    quality->variation_ms = (double)seen->rtt_variation_ns / NS_PER_MS;
    if (memory->n_looks < 2)
        return;
    remember_loss(memory, of_last_look(memory));
    quality->loss = memory->probes > 0 ? memory->lost / memory->probes : 0.0;
    quality->loss_least = wilson(memory->lost, memory->probes, -BELIEVED);
    quality->loss_most = wilson(memory->lost, memory->probes, BELIEVED);
    second = of_last_second(memory);
    quality->loss_now = second.n > 0 ? second.lost / second.n : 0.0;
    quality->load = load_of(memory);
}

double path_cost(enum chart_overlay_class class, const struct path_quality *quality, double loss) {
    /* One way, with what evens the variation out. */
    double delay_ms = quality->rtt_ms / 2 + 2 * quality->variation_ms;
    double percent = loss * 100;

    switch (class) {
    case CHART_OVERLAY_VOICE:
        return 1 + 0.024 * delay_ms + 0.11 * fmax(delay_ms - 177.3, 0.0) + 95 * percent / (percent + 25.1);
    case CHART_OVERLAY_VIDEO:
        return (1 + delay_ms / 50) * (1 + percent / 0.5);
    default:
        /* Four round trips, and 8 Mbit at 1.22 segments per round trip over the root of loss; a loss of 0.01 % is
         * taken for none. */
        return fmax(quality->rtt_ms, 0.1) * (4 + 8e6 / (1.22 * 1448 * 8) * sqrt(fmax(loss, 1e-4)));
    }
}

static double usual_cost(const struct path_group *group, enum chart_overlay_class class, size_t i) {
    return path_cost(class, &group->paths[i].quality, group->paths[i].quality.loss);
}

/* How many times the best path's cost a path's is. Losses that chance may have made different are the same. */
static double times_best(const struct path_group *group, enum chart_overlay_class class, size_t i, size_t best) {
    const struct path_quality *own = &group->paths[i].quality, *peer = &group->paths[best].quality;
    double loss = peer->loss;

    if (own->loss_least > peer->loss_most)
        loss = own->loss;
    if (group->paths[i].suspicion >= SUSPICIOUS)
        loss = fmax(loss, own->loss_now);
    return path_cost(class, own, loss) / path_cost(class, peer, peer->loss);
}

/* The best path that is alive, and that flows do not leave unless `any`; `group->n`: there is none. */
static size_t best_of(const struct path_group *group, enum chart_overlay_class class, bool any) {
    size_t best = group->n;

    for (size_t i = 0; i < group->n; i++)
        if (group->paths[i].quality.alive && (any || !group->verdicts[class][i].left) &&
            (best == group->n || usual_cost(group, class, i) < usual_cost(group, class, best)))
            best = i;
    return best;
}

static bool is_loaded(const struct path_quality *quality) {
    return quality->load >= LOADED && quality->loss_now < LOSS_OF_OTHERS;
}

static void judge_path(struct path_group *group, enum chart_overlay_class class, size_t i, size_t best) {
    const struct path_quality *quality = &group->paths[i].quality;
    struct path_verdict *verdict = &group->verdicts[class][i];
    double factor = classes[class].left_factor;

    if (!verdict->left) {
        bool excused = classes[class].many_paths && is_loaded(quality);
        bool worse = quality->known && !excused && times_best(group, class, i, best) > factor;

        verdict->worse = worse ? verdict->worse + 1 : 0;
        verdict->left = verdict->worse >= WORSE_LOOKS;
        return;
    }
    verdict->good = times_best(group, class, i, best) <= factor ? verdict->good + 1 : 0;
    if (verdict->good >= PATH_GOOD_WINDOWS * PATH_LOOKS)
        *verdict = (struct path_verdict){0};
}

/* Whether all that flows would take are loaded. */
static bool all_loaded(const struct path_group *group, enum chart_overlay_class class, size_t best) {
    for (size_t i = 0; i < group->n; i++)
        if (group->paths[i].quality.alive && !group->verdicts[class][i].left && group->paths[i].quality.load < LOADED &&
            times_best(group, class, i, best) <= OFFERED_FACTOR)
            return false;
    return true;
}

static void offer(struct path_group *group, enum chart_overlay_class class, size_t best) {
    bool loaded = all_loaded(group, class, best);

    for (size_t i = 0; i < group->n; i++) {
        struct path_verdict *verdict = &group->verdicts[class][i];
        double factor = verdict->offered ? WITHDRAWN_FACTOR : OFFERED_FACTOR;

        verdict->offered =
            group->paths[i].quality.alive && !verdict->left && (loaded || times_best(group, class, i, best) <= factor);
    }
}

/* Of classes that take one path: it stays until flows leave it or it fails, then it is the best. */
static void prefer(struct path_group *group, enum chart_overlay_class class, size_t best) {
    size_t now = group->preferred[class];

    if (now >= group->n || !group->paths[now].quality.alive || group->verdicts[class][now].left)
        group->preferred[class] = best;
}

/* What the others lose usually, at most but for a standard deviation. */
static double usual_loss_of_others(const struct path_group *group, size_t i) {
    double least = LOSS_MAX / TIMES_LOSS;

    for (size_t k = 0; k < group->n; k++)
        if (k != i && group->paths[k].quality.alive)
            least = fmin(least, wilson(group->paths[k].lost, group->paths[k].probes, 1));
    return fmax(least, LOSS_MIN);
}

static void suspect(struct path_group *group, size_t i) {
    struct path_memory *memory = &group->paths[i];
    struct exchanges fresh = of_last_look(memory);
    double usual = usual_loss_of_others(group, i);
    double more = fmin(fmax(usual * TIMES_LOSS, usual + MORE_LOSS), LOSS_MAX);
    double evidence = fresh.lost * log(more / usual) + (fresh.n - fresh.lost) * log((1 - more) / (1 - usual));

    memory->suspicion = fmin(fmax(memory->suspicion + evidence, 0.0), 2 * SUSPICIOUS);
}

static void judge_class(struct path_group *group, enum chart_overlay_class class) {
    size_t best = best_of(group, class, false);

    if (best == group->n) {
        /* Flows left all that are alive: one has to be taken. */
        best = best_of(group, class, true);
        if (best == group->n)
            return;
        group->verdicts[class][best] = (struct path_verdict){0};
    }
    for (size_t i = 0; i < group->n; i++)
        if (i != best && group->paths[i].quality.alive)
            judge_path(group, class, i, best);
    group->verdicts[class][best].worse = 0;
    offer(group, class, best);
    prefer(group, class, best);
}

static bool is_left(const struct path_group *group, size_t i) {
    bool left = false;

    for (unsigned class = 0; class < CHART_OVERLAY_CLASSES; class ++)
        left |= group->verdicts[class][i].left;
    return left;
}

/* What a path lost before it became good again is not what it usually loses: the last second stands for it. */
static void forget_past(struct path_memory *memory) {
    struct exchanges second = of_last_second(memory);

    if (!memory->n_looks)
        return;
    memory->probes = second.n;
    memory->lost = second.lost;
}

void path_group_judge(struct path_group *group) {
    bool before[CHART_OVERLAY_COLOURS] = {false};

    for (size_t i = 0; i < group->n; i++) {
        suspect(group, i);
        before[i] = is_left(group, i);
    }
    for (unsigned class = 0; class < CHART_OVERLAY_CLASSES; class ++)
        judge_class(group, class);
    for (size_t i = 0; i < group->n; i++)
        if (before[i] && !is_left(group, i))
            forget_past(&group->paths[i]);
}

static void fill_order(const struct path_group *group, enum chart_overlay_class class,
                       struct chart_overlay_choice *ret) {
    bool taken[CHART_OVERLAY_COLOURS] = {false};

    while (ret->n_order < group->n) {
        size_t next = group->n;

        for (size_t i = 0; i < group->n; i++) {
            bool left = group->verdicts[class][i].left;

            if (taken[i])
                continue;
            if (next == group->n || left < group->verdicts[class][next].left ||
                (left == group->verdicts[class][next].left &&
                 usual_cost(group, class, i) < usual_cost(group, class, next)))
                next = i;
        }
        taken[next] = true;
        ret->order[ret->n_order++] = group->colours[next];
    }
}

/* How much of new flows a path shall take; a capacity that is unknown is taken for that of the largest known. */
static double weight_of(const struct path_group *group, size_t i) {
    uint64_t largest = 0;

    if (group->paths[i].capacity_bps)
        return (double)group->paths[i].capacity_bps;
    for (size_t k = 0; k < group->n; k++)
        if (group->paths[k].capacity_bps > largest)
            largest = group->paths[k].capacity_bps;
    return largest ? (double)largest : 1.0;
}

/* Smooth weighted round robin: shares are kept in every stretch of slots. */
static void fill_slots(const struct path_group *group, enum chart_overlay_class class,
                       struct chart_overlay_choice *ret) {
    double credit[CHART_OVERLAY_COLOURS] = {0}, total = 0;
    size_t first = group->preferred[class] < group->n ? group->preferred[class] : 0;

    for (size_t i = 0; i < group->n; i++)
        total += group->verdicts[class][i].offered ? weight_of(group, i) : 0;
    for (size_t slot = 0; slot < CHART_OVERLAY_SLOTS; slot++) {
        size_t next = group->n;

        for (size_t i = 0; i < group->n; i++) {
            if (!group->verdicts[class][i].offered)
                continue;
            credit[i] += weight_of(group, i);
            if (next == group->n || credit[i] > credit[next])
                next = i;
        }
        if (next == group->n || !classes[class].many_paths) {
            ret->slots[slot] = group->colours[first];
            continue;
        }
        credit[next] -= total;
        ret->slots[slot] = group->colours[next];
    }
}

struct chart_overlay_choice path_group_choice(const struct path_group *group, enum chart_overlay_class class) {
    struct chart_overlay_choice choice = {0};

    for (size_t i = 0; i < group->n; i++) {
        choice.numbers[group->colours[i]] = group->numbers[i];
        choice.left |= (uint32_t)group->verdicts[class][i].left << group->colours[i];
    }
    fill_order(group, class, &choice);
    fill_slots(group, class, &choice);
    return choice;
}

uint32_t path_choice_taken(const struct chart_overlay_choice *choice, uint32_t alive) {
    uint32_t found = 0;

    for (size_t i = 0; i < sizeof(choice->slots); i++)
        found |= (1u << choice->slots[i]) & alive;
    if (found)
        return found;
    for (size_t i = 0; i < choice->n_order; i++)
        if (alive >> choice->order[i] & 1)
            return 1u << choice->order[i];
    return 1u << choice->slots[0];
}
