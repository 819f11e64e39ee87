/* See flow_paths.h. */
#include "paths/flow_paths.h"

#include "core/log.h"
#include "core/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* An owner without flows for so many looks is idle, and so much more slowly its paths are probed. */
#define IDLE_LOOKS 80
#define IDLE_TIMES 10
/* Of this process's time, for one probe, with much to spare. */
#define SEND_US 150

/* The longest prefix of a family: an address of it is the owner's, whoever owns what is around it. */
static const struct decide_prefix *longest(const struct overlay_owner *owner, uint8_t family) {
    const struct decide_prefix *found = NULL;

    for (size_t i = 0; owner && i < owner->n_prefixes; i++)
        if (owner->prefixes[i].family == family && (!found || owner->prefixes[i].bits > found->bits))
            found = &owner->prefixes[i];
    return found;
}

static const struct overlay_owner *find_owner(const struct overlay_table *table, const char *node) {
    for (size_t i = 0; i < table->n_owners; i++)
        if (strcmp(table->owners[i].node, node) == 0)
            return &table->owners[i];
    return NULL;
}

/* Addresses between which this node's probes to an owner go; false: there is no family that both have. */
static bool find_ends(const struct overlay_owner *self, const struct overlay_owner *owner,
                      const struct decide_prefix **ret_local, const struct decide_prefix **ret_remote) {
    static const uint8_t families[] = {AF_INET, AF_INET6};

    for (size_t i = 0; i < sizeof(families); i++) {
        *ret_local = longest(self, families[i]);
        *ret_remote = longest(owner, families[i]);
        if (*ret_local && *ret_remote)
            return true;
    }
    return false;
}

static size_t count_choices(const struct overlay_owner *owner) {
    size_t n = 0;

    for (size_t i = 0; i < owner->n_routes; i++)
        n += owner->routes[i].choice;
    return n;
}

static const struct flow_owner *find_known(const struct flow_paths *paths, const char *node) {
    for (size_t i = 0; i < paths->n_owners; i++)
        if (strcmp(paths->owners[i].node, node) == 0)
            return &paths->owners[i];
    return NULL;
}

/* What is known of a colour. */
static void recall(struct path_group *group, size_t place, const struct flow_owner *known) {
    uint8_t colour = group->colours[place];

    for (size_t i = 0; known && i < known->group.n; i++) {
        if (known->group.colours[i] != colour)
            continue;
        group->numbers[place] = known->group.numbers[i];
        group->paths[place] = known->group.paths[i];
        for (unsigned class = 0; class < CHART_OVERLAY_CLASSES; class ++) {
            group->verdicts[class][place] = known->group.verdicts[class][i];
            if (known->group.preferred[class] == i)
                group->preferred[class] = place;
        }
        return;
    }
}

static void add_owner(struct flow_paths *fresh, const struct flow_paths *before, const struct overlay_owner *owner,
                      uint32_t number) {
    struct flow_owner *ret = &fresh->owners[fresh->n_owners++];
    const struct flow_owner *known = find_known(before, owner->node);

    strcpy(ret->node, owner->node);
    ret->number = number;
    for (size_t i = 0; i < owner->n_routes; i++) {
        size_t place = ret->group.n;

        if (!owner->routes[i].choice)
            continue;
        ret->group.colours[place] = owner->routes[i].colour;
        recall(&ret->group, place, known);
        ret->group.paths[place].capacity_bps = owner->routes[i].capacity_bps;
        ret->group.n++;
    }
    ret->idle_looks = known ? known->idle_looks : IDLE_LOOKS;
    if (known)
        memcpy(ret->told, known->told, sizeof(ret->told));
}

/* Give numbers to the paths that are new. There are as many as paths. */
static void number_paths(struct flow_paths *paths) {
    bool used[CHART_OVERLAY_PROBED_MAX] = {false};
    uint32_t number = CHART_OVERLAY_NEIGHBOURS_MAX;

    for (size_t i = 0; i < paths->n_owners; i++)
        for (size_t k = 0; k < paths->owners[i].group.n; k++)
            used[paths->owners[i].group.numbers[k]] = true;
    for (size_t i = 0; i < paths->n_owners; i++)
        for (size_t k = 0; k < paths->owners[i].group.n; k++) {
            if (paths->owners[i].group.numbers[k])
                continue;
            while (used[number])
                number++;
            paths->owners[i].group.numbers[k] = number++;
        }
}

/* How far probes of an owner's path lie apart: those of all paths in use together keep to what the probes of one link
 * may, and to what this process can send; nobody waits for those of the others. */
static uint32_t period_us(const struct flow_owner *owner, size_t place, size_t n_active) {
    uint64_t share_bps = owner->group.paths[place].capacity_bps / (n_active ? n_active : 1);
    uint32_t least_us = (uint32_t)(n_active * SEND_US), found_us = liveness_period_us(share_bps);

    found_us = found_us > least_us ? found_us : least_us;
    return owner->idle_looks < IDLE_LOOKS ? found_us : found_us * IDLE_TIMES;
}

static void set_periods(const struct flow_paths *paths, struct prober *prober) {
    size_t n_active = 0;

    for (size_t i = 0; i < paths->n_owners; i++)
        n_active += paths->owners[i].idle_looks < IDLE_LOOKS ? paths->owners[i].group.n : 0;
    for (size_t i = 0; i < paths->n_owners; i++)
        for (size_t k = 0; k < paths->owners[i].group.n; k++)
            prober_set_period(prober, paths->owners[i].group.numbers[k], period_us(&paths->owners[i], k, n_active));
}

static int probe_owner(const struct flow_owner *owner, struct overlay_program *program, struct prober *prober,
                       const struct overlay_table *table, const char *self) {
    const struct decide_prefix *local, *remote;
    int error = 0;

    if (!find_ends(find_owner(table, self), find_owner(table, owner->node), &local, &remote))
        return -EAFNOSUPPORT;
    for (size_t i = 0; i < owner->group.n && !error; i++) {
        uint32_t number = owner->group.numbers[i];

        error = overlay_program_set_path(program, number, local, remote, owner->group.colours[i]);
        if (!error)
            prober_add(prober, number, owner->group.paths[i].capacity_bps);
    }
    return error;
}

/* Numbers and owners that there are no more. */
static void sweep(const struct flow_paths *before, const struct flow_paths *now, struct overlay_program *program,
                  struct prober *prober) {
    bool wanted[CHART_OVERLAY_PROBED_MAX] = {false};

    for (size_t i = 0; i < now->n_owners; i++)
        for (size_t k = 0; k < now->owners[i].group.n; k++)
            wanted[now->owners[i].group.numbers[k]] = true;
    for (size_t i = 0; i < before->n_owners; i++) {
        const struct flow_owner *owner = &before->owners[i];

        for (size_t k = 0; k < owner->group.n; k++) {
            if (wanted[owner->group.numbers[k]])
                continue;
            prober_remove(prober, owner->group.numbers[k]);
            overlay_program_forget_path(program, owner->group.numbers[k]);
        }
        if (find_known(now, owner->node))
            continue;
        for (unsigned class = 0; class < CHART_OVERLAY_CLASSES; class ++)
            (void)overlay_program_set_choice(program, owner->number, class, NULL);
    }
}

static const char *const class_names[CHART_OVERLAY_CLASSES] = {"voice", "video", "data"};

static void note(struct overlay_events *events, const struct flow_owner *owner, size_t place, uint8_t classes,
                 enum overlay_event_kind kind) {
    const struct path_quality *quality = &owner->group.paths[place].quality;
    struct overlay_event event = {.at_us = agent_now_us(),
                                  .kind = kind,
                                  .colour = owner->group.colours[place],
                                  .classes = classes,
                                  .rtt_us = (uint32_t)(quality->rtt_ms * 1e3),
                                  .exchange_loss = quality->loss_now};

    if (!events || !classes)
        return;
    strcpy(event.subject, owner->node);
    overlay_events_add(events, &event);
}

static void log_changes(const struct flow_owner *owner, unsigned class, uint32_t before, uint32_t now) {
    for (size_t i = 0; i < owner->group.n; i++) {
        const struct path_quality *quality = &owner->group.paths[i].quality;
        unsigned colour = owner->group.colours[i];

        if (((before ^ now) >> colour & 1) == 0)
            continue;
        log_info("%s path %u to %s (round trip %.1f ms, %.1f %% of exchanges lost): flows of %s %s",
                 now >> colour & 1 ? "worse:" : "good again:", colour, owner->node, quality->rtt_ms,
                 quality->loss_now * 100, class_names[class], now >> colour & 1 ? "leave it" : "may take it");
    }
}

/* Paths that flows of some classes left, or may take again, since these bits of colours were told. */
static void note_changes(struct overlay_events *events, const struct flow_owner *owner,
                         const uint32_t before[CHART_OVERLAY_CLASSES]) {
    for (size_t i = 0; i < owner->group.n; i++) {
        unsigned colour = owner->group.colours[i];
        uint8_t left = 0, good = 0;

        for (unsigned class = 0; class < CHART_OVERLAY_CLASSES; class ++) {
            uint32_t now = owner->told[class].left;

            left |= (uint8_t)((now & ~before[class]) >> colour & 1) << class;
            good |= (uint8_t)((before[class] & ~now) >> colour & 1) << class;
        }
        note(events, owner, i, left, OVERLAY_EVENT_PATH_LEFT);
        note(events, owner, i, good, OVERLAY_EVENT_PATH_GOOD_AGAIN);
    }
}

static void tell(struct flow_owner *owner, struct overlay_program *program, struct overlay_events *events) {
    uint32_t before[CHART_OVERLAY_CLASSES];

    for (unsigned class = 0; class < CHART_OVERLAY_CLASSES; class ++) {
        struct chart_overlay_choice choice = path_group_choice(&owner->group, class);

        before[class] = owner->told[class].left;
        if (memcmp(&choice, &owner->told[class], sizeof(choice)) == 0)
            continue;
        if (overlay_program_set_choice(program, owner->number, class, &choice))
            continue;
        log_changes(owner, class, owner->told[class].left, choice.left);
        owner->told[class] = choice;
    }
    note_changes(events, owner, before);
}

int flow_paths_follow(struct flow_paths *paths, struct overlay_program *program, struct prober *prober,
                      const struct overlay_table *table, const char *self) {
    struct flow_paths fresh = {.owners = calloc(table->n_owners + 1, sizeof(*fresh.owners)), .events = paths->events};
    size_t n_paths = 0;
    int error = 0;

    if (!fresh.owners)
        return -ENOMEM;
    for (size_t i = 0; i < table->n_owners; i++) {
        const struct overlay_owner *owner = &table->owners[i];
        const struct decide_prefix *local, *remote;
        size_t n = count_choices(owner);

        if (!n)
            continue;
        if (n_paths + n > FLOW_PATHS_MAX || !find_ends(find_owner(table, self), owner, &local, &remote)) {
            fresh.left_out++;
            continue;
        }
        n_paths += n;
        add_owner(&fresh, paths, owner, overlay_program_owner(program, owner->node));
    }
    sweep(paths, &fresh, program, prober);
    number_paths(&fresh);
    free(paths->owners);
    *paths = fresh;
    for (size_t i = 0; i < paths->n_owners && !error; i++) {
        error = probe_owner(&paths->owners[i], program, prober, table, self);
        tell(&paths->owners[i], program, paths->events);
    }
    set_periods(paths, prober);
    return error;
}

static struct path_seen look(const volatile struct chart_overlay_liveness *now) {
    /* Answered before answers: what comes between is no loss. */
    struct path_seen seen = {.answered = now->answered};

    seen.answers = now->answers;
    seen.forwarded_bytes = now->forwarded_bytes;
    seen.rtt_ns = now->rtt_ns;
    seen.rtt_variation_ns = now->rtt_variation_ns;
    seen.alive = now->usable;
    return seen;
}

/* Whether flows took any of the owner's paths since the last look. */
static bool is_active(const struct path_group *group, const struct path_seen seen[]) {
    bool active = false;

    for (size_t i = 0; i < group->n; i++)
        active |= group->paths[i].n_looks &&
                  group->paths[i].looks[group->paths[i].n_looks - 1].forwarded_bytes != seen[i].forwarded_bytes;
    return active;
}

void flow_paths_look(struct flow_paths *paths, struct overlay_program *program, struct prober *prober) {
    bool changed = false;

    for (size_t i = 0; i < paths->n_owners; i++) {
        struct flow_owner *owner = &paths->owners[i];
        struct path_seen seen[CHART_OVERLAY_COLOURS];
        unsigned before = owner->idle_looks;

        for (size_t k = 0; k < owner->group.n; k++)
            seen[k] = look(overlay_program_liveness(program, owner->group.numbers[k]));
        owner->idle_looks = is_active(&owner->group, seen) ? 0 : before < IDLE_LOOKS ? before + 1 : before;
        changed |= (before == IDLE_LOOKS) != (owner->idle_looks == IDLE_LOOKS);
        for (size_t k = 0; k < owner->group.n; k++)
            path_memory_look(&owner->group.paths[k], &seen[k]);
        path_group_judge(&owner->group);
        tell(owner, program, paths->events);
    }
    if (changed)
        set_periods(paths, prober);
}

const char *flow_paths_name(const struct flow_paths *paths, uint32_t number, unsigned *ret_colour) {
    *ret_colour = 0;
    for (size_t i = 0; i < paths->n_owners; i++)
        for (size_t k = 0; k < paths->owners[i].group.n; k++)
            if (paths->owners[i].group.numbers[k] == number) {
                *ret_colour = paths->owners[i].group.colours[k];
                return paths->owners[i].node;
            }
    return "?";
}

static uint32_t alive_colours(const struct flow_owner *owner, const struct overlay_program *program) {
    uint32_t alive = 0;

    for (size_t i = 0; i < owner->group.n; i++)
        alive |= (uint32_t)(overlay_program_liveness(program, owner->group.numbers[i])->usable != 0)
                 << owner->group.colours[i];
    return alive;
}

static struct flow_path_report path_report(const struct flow_owner *owner, size_t place, uint32_t alive,
                                           const struct chart_overlay_liveness *liveness) {
    const struct path_memory *memory = &owner->group.paths[place];
    struct flow_path_report report = {.owner = owner->node,
                                      .colour = owner->group.colours[place],
                                      .alive = alive >> owner->group.colours[place] & 1,
                                      .rtt_us = (uint32_t)(liveness->rtt_ns / 1000),
                                      .exchange_loss = memory->quality.loss,
                                      .load = memory->quality.load,
                                      .capacity_bps = memory->capacity_bps,
                                      .forwarded_packets = liveness->forwarded_packets,
                                      .forwarded_bytes = liveness->forwarded_bytes};

    for (unsigned class = 0; class < CHART_OVERLAY_CLASSES; class ++) {
        report.taken_by |= (uint8_t)((path_choice_taken(&owner->told[class], alive) >> report.colour & 1) << class);
        report.left_by |= (uint8_t)(owner->group.verdicts[class][place].left << class);
    }
    return report;
}

size_t flow_paths_report(const struct flow_paths *paths, const struct overlay_program *program,
                         struct flow_path_report *ret) {
    size_t n = 0;

    for (size_t i = 0; i < paths->n_owners; i++) {
        const struct flow_owner *owner = &paths->owners[i];
        uint32_t alive = alive_colours(owner, program);

        for (size_t k = 0; k < owner->group.n && n < FLOW_PATHS_MAX; k++)
            ret[n++] = path_report(owner, k, alive, overlay_program_liveness(program, owner->group.numbers[k]));
    }
    return n;
}

static void add_classes(cJSON *object, const char *name, uint8_t classes) {
    cJSON *array = cJSON_AddArrayToObject(object, name);

    for (unsigned class = 0; class < CHART_OVERLAY_CLASSES; class ++)
        if (classes >> class & 1)
            cJSON_AddItemToArray(array, cJSON_CreateString(class_names[class]));
}

static cJSON *describe(const struct flow_path_report *report) {
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "owner", report->owner);
    cJSON_AddNumberToObject(object, "colour", report->colour);
    cJSON_AddBoolToObject(object, "alive", report->alive);
    cJSON_AddNumberToObject(object, "rtt_ms", report->rtt_us / 1e3);
    cJSON_AddNumberToObject(object, "exchange_loss", report->exchange_loss);
    cJSON_AddNumberToObject(object, "load", report->load);
    cJSON_AddNumberToObject(object, "capacity_bps", (double)report->capacity_bps);
    cJSON_AddNumberToObject(object, "forwarded_packets", (double)report->forwarded_packets);
    cJSON_AddNumberToObject(object, "forwarded_bytes", (double)report->forwarded_bytes);
    add_classes(object, "taken_by", report->taken_by);
    add_classes(object, "left_by", report->left_by);
    return object;
}

void flow_paths_tell(const struct flow_paths *paths, const struct overlay_program *program, cJSON *array) {
    struct flow_path_report reports[FLOW_PATHS_MAX];
    size_t n = flow_paths_report(paths, program, reports);

    for (size_t i = 0; i < n; i++)
        cJSON_AddItemToArray(array, describe(&reports[i]));
}

void flow_paths_forget(struct flow_paths *paths, struct overlay_program *program, struct prober *prober) {
    const struct flow_paths none = {0};

    sweep(paths, &none, program, prober);
    free(paths->owners);
    *paths = (struct flow_paths){.events = paths->events};
}
