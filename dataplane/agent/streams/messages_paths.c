/* See messages_paths.h. */
#include "streams/messages_paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chart/v1/path_table.pb-c.h"
#include "core/log.h"

/* A text of the message into a field; false: it is longer than the field. */
static bool copy(char *ret, size_t size, const char *text) {
    if (strlen(text) >= size)
        return false;
    strcpy(ret, text);
    return true;
}

static bool read_link(const Chart__V1__OverlayLink *from, struct overlay_link *ret) {
    ret->mtu = from->mtu ? from->mtu : OVERLAY_MTU_USUAL;
    ret->capacity_bps = from->capacity_bps;
    return copy(ret->name, sizeof(ret->name), from->link_id) &&
           copy(ret->interface, sizeof(ret->interface), from->interface) &&
           decide_parse_prefix(from->local_address, &ret->local) == 0 && ret->local.family &&
           decide_parse_prefix(from->remote_address, &ret->remote) == 0 && ret->remote.family;
}

static bool read_route(const struct overlay_table *table, const Chart__V1__OverlayPath *from,
                       struct overlay_route *ret) {
    ret->colour = (uint8_t)from->colour;
    ret->choice = from->choice;
    ret->capacity_bps = from->capacity_bps;
    if (from->colour >= CHART_OVERLAY_COLOURS || !from->n_next_hops || from->n_next_hops > CHART_OVERLAY_HOPS_MAX)
        return false;
    for (size_t i = 0; i < from->n_next_hops; i++) {
        size_t link = 0;

        while (link < table->n_links && strcmp(table->links[link].name, from->next_hops[i]) != 0)
            link++;
        if (link == table->n_links)
            return false;
        ret->hops[ret->n_hops++] = (uint8_t)link;
    }
    return true;
}

static int read_links(const Chart__V1__OverlayPath *from, struct overlay_route *ret) {
    if (!from->n_link_ids)
        return 0;
    ret->link_ids = calloc(from->n_link_ids, sizeof(*ret->link_ids));
    if (!ret->link_ids)
        return -ENOMEM;
    for (size_t i = 0; i < from->n_link_ids; i++, ret->n_link_ids++)
        if (!copy(ret->link_ids[i], sizeof(ret->link_ids[i]), from->link_ids[i]))
            return -EBADMSG;
    return 0;
}

static int read_owner(const struct overlay_table *table, const Chart__V1__OverlayOwner *from,
                      struct overlay_owner *ret) {
    if (!copy(ret->node, sizeof(ret->node), from->node))
        return -EBADMSG;
    ret->prefixes = calloc(from->n_prefixes + 1, sizeof(*ret->prefixes));
    ret->routes = calloc(from->n_paths + 1, sizeof(*ret->routes));
    if (!ret->prefixes || !ret->routes)
        return -ENOMEM;
    for (size_t i = 0; i < from->n_prefixes; i++, ret->n_prefixes++)
        if (decide_parse_prefix(from->prefixes[i], &ret->prefixes[i]) || !ret->prefixes[i].family)
            return -EBADMSG;
    for (size_t i = 0; i < from->n_paths; i++) {
        int status = read_route(table, from->paths[i], &ret->routes[i]) ? 0 : -EBADMSG;

        status = status ? status : read_links(from->paths[i], &ret->routes[i]);
        ret->n_routes++;
        if (status)
            return status;
    }
    return 0;
}

static int read_table(const Chart__V1__PathTable *from, struct overlay_table *ret) {
    int status = 0;

    *ret = (struct overlay_table){.port = OVERLAY_PORT};
    if (from->n_links > OVERLAY_LINKS_MAX)
        return -EBADMSG;
    ret->links = calloc(from->n_links + 1, sizeof(*ret->links));
    ret->owners = calloc(from->n_owners + 1, sizeof(*ret->owners));
    if (!ret->links || !ret->owners)
        return -ENOMEM;
    for (size_t i = 0; i < from->n_links; i++, ret->n_links++)
        if (!read_link(from->links[i], &ret->links[i]))
            return -EBADMSG;
    for (size_t i = 0; i < from->n_owners && !status; i++, ret->n_owners++)
        status = read_owner(ret, from->owners[i], &ret->owners[i]);
    return status;
}

int messages_take_path_table(const struct messages_intake *intake, const struct streams_record *record) {
    struct overlay_table table = {.port = OVERLAY_PORT};
    char error[OVERLAY_ERROR_LEN] = "a field that cannot be read";
    Chart__V1__PathTable *message;
    uint64_t generation = 0;
    int status = 0;

    if (strcmp(record->key, intake->node) != 0 || !intake->path_table)
        return 0;
    if (record->value) {
        message = chart__v1__path_table__unpack(NULL, record->length, record->value);
        if (!message)
            return -EBADMSG;
        generation = message->generation;
        status = read_table(message, &table);
        chart__v1__path_table__free_unpacked(message, NULL);
        status = status ? status : overlay_table_check(&table, error);
    }
    if (status) {
        log_warning("the path table of this node is refused, what was known before stays: %s", error);
        overlay_table_free(&table);
        return status;
    }
    intake->path_table(&table, generation, intake->context);
    return 0;
}

struct path_room {
    Chart__V1__OverlayPathState path;
    Chart__V1__OverlayClass taken_by[CHART_OVERLAY_CLASSES];
    Chart__V1__OverlayClass left_by[CHART_OVERLAY_CLASSES];
};

struct event_room {
    Chart__V1__OverlayEvent event;
    Chart__V1__OverlayClass classes[CHART_OVERLAY_CLASSES];
};

struct room {
    Chart__V1__OverlayState state;
    Chart__V1__OverlayLinkState links[OVERLAY_LINKS_MAX];
    Chart__V1__OverlayLinkState *pointers[OVERLAY_LINKS_MAX];
    struct path_room paths[FLOW_PATHS_MAX];
    Chart__V1__OverlayPathState *path_pointers[FLOW_PATHS_MAX];
    struct event_room events[OVERLAY_EVENTS_MAX];
    Chart__V1__OverlayEvent *event_pointers[OVERLAY_EVENTS_MAX];
};

static size_t put_classes(uint8_t bits, Chart__V1__OverlayClass *ret) {
    static const Chart__V1__OverlayClass messages[CHART_OVERLAY_CLASSES] = {
        CHART__V1__OVERLAY_CLASS__OVERLAY_CLASS_VOICE, CHART__V1__OVERLAY_CLASS__OVERLAY_CLASS_VIDEO,
        CHART__V1__OVERLAY_CLASS__OVERLAY_CLASS_DATA};
    size_t n = 0;

    for (unsigned class = 0; class < CHART_OVERLAY_CLASSES; class ++)
        if (bits >> class & 1)
            ret[n++] = messages[class];
    return n;
}

static void put_path(const struct flow_path_report *from, struct path_room *ret) {
    Chart__V1__OverlayPathState *path = &ret->path;

    chart__v1__overlay_path_state__init(path);
    path->owner = (char *)from->owner;
    path->colour = from->colour;
    path->alive = from->alive;
    path->rtt_us = from->rtt_us;
    path->exchange_loss = from->exchange_loss;
    path->load = from->load;
    path->n_taken_by = put_classes(from->taken_by, ret->taken_by);
    path->taken_by = ret->taken_by;
    path->n_left_by = put_classes(from->left_by, ret->left_by);
    path->left_by = ret->left_by;
    path->forwarded_packets = from->forwarded_packets;
    path->forwarded_bytes = from->forwarded_bytes;
}

static void put_event(const struct overlay_event *from, struct event_room *room) {
    Chart__V1__OverlayEvent *ret = &room->event;

    chart__v1__overlay_event__init(ret);
    ret->sequence = from->sequence;
    ret->at_us = from->at_us;
    ret->kind = (Chart__V1__OverlayEventKind)from->kind;
    if (from->kind >= OVERLAY_EVENT_PATH_FAILED)
        ret->owner = (char *)from->subject;
    else
        ret->link_id = (char *)from->subject;
    ret->colour = from->colour;
    ret->n_flow_classes = put_classes(from->classes, room->classes);
    ret->flow_classes = room->classes;
    ret->rtt_us = from->rtt_us;
    ret->exchange_loss = from->exchange_loss;
    ret->interface_down = from->interface_down;
}

void *messages_add_overlay(Chart__V1__NodeState *message, const struct overlay_report *report) {
    struct room *room = calloc(1, sizeof(*room));

    if (!room || !report->running)
        return room;
    chart__v1__overlay_state__init(&room->state);
    room->state.generation = report->generation;
    room->state.entered_packets = report->counted.entered;
    room->state.transit_packets = report->counted.transit;
    room->state.left_packets = report->counted.left;
    room->state.detour_packets = report->counted.detours;
    room->state.refused_packets = report->counted.strangers + report->counted.bad_probes;
    for (size_t i = 0; i < report->n_links; i++) {
        const struct overlay_link_report *from = &report->links[i];

        chart__v1__overlay_link_state__init(&room->links[i]);
        room->links[i].link_id = (char *)from->name;
        room->links[i].alive = from->alive;
        room->links[i].rtt_us = from->rtt_us;
        room->links[i].exchange_loss = from->exchange_loss;
        room->links[i].failures = from->failures;
        room->links[i].forwarded_packets = from->forwarded_packets;
        room->links[i].forwarded_bytes = from->forwarded_bytes;
        room->pointers[i] = &room->links[i];
    }
    room->state.n_links = report->n_links;
    room->state.links = room->pointers;
    for (size_t i = 0; i < report->n_paths; i++) {
        put_path(&report->paths[i], &room->paths[i]);
        room->path_pointers[i] = &room->paths[i].path;
    }
    room->state.n_paths = report->n_paths;
    room->state.paths = room->path_pointers;
    for (size_t i = 0; i < report->n_events; i++) {
        put_event(&report->events[i], &room->events[i]);
        room->event_pointers[i] = &room->events[i].event;
    }
    room->state.n_events = report->n_events;
    room->state.events = room->event_pointers;
    message->overlay = &room->state;
    return room;
}
