/* The overlay on the streams: this node's path table, and its links in its state. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "chart/v1/path_table.pb-c.h"
#include "streams/messages.h"
#include "streams/messages_paths.h"

struct heard {
    struct overlay_table table;
    uint64_t generation;
    int told;
};

static void on_table(struct overlay_table *table, uint64_t generation, void *context) {
    struct heard *heard = context;

    overlay_table_free(&heard->table);
    heard->table = *table;
    heard->generation = generation;
    heard->told++;
}

static int take(struct heard *heard, const char *key, const ProtobufCMessage *message) {
    const struct messages_intake intake = {.node = "alpha", .path_table = on_table, .context = heard};
    uint8_t buffer[1024];
    struct streams_record record = {.topic = STREAMS_PATH_TABLE, .key = key};

    if (message) {
        record.length = protobuf_c_message_pack(message, buffer);
        record.value = buffer;
    }
    return messages_take(&intake, &record);
}

/* Two links, an owner reached by both, and this node. */
struct stated {
    Chart__V1__PathTable table;
    Chart__V1__OverlayLink links[2], *link_pointers[2];
    Chart__V1__OverlayOwner owners[2], *owner_pointers[2];
    Chart__V1__OverlayPath path, *path_pointers[1];
    char *hops[2], *behind[1], *own[1];
};

static void state_table(struct stated *stated) {
    memset(stated, 0, sizeof(*stated));
    chart__v1__path_table__init(&stated->table);
    chart__v1__overlay_path__init(&stated->path);
    for (int i = 0; i < 2; i++) {
        chart__v1__overlay_link__init(&stated->links[i]);
        chart__v1__overlay_owner__init(&stated->owners[i]);
        stated->link_pointers[i] = &stated->links[i];
        stated->owner_pointers[i] = &stated->owners[i];
        stated->links[i].local_address = "10.0.1.1";
    }
    stated->links[0].link_id = "alpha:a", stated->links[0].remote_address = "10.0.1.2";
    stated->links[0].interface = "a", stated->links[0].mtu = 1400, stated->links[0].capacity_bps = 7;
    stated->links[1].link_id = "alpha:b", stated->links[1].remote_address = "10.0.1.3";
    stated->hops[0] = "alpha:b", stated->hops[1] = "alpha:a";
    stated->path.n_next_hops = 2, stated->path.next_hops = stated->hops;
    stated->path.choice = true, stated->path.capacity_bps = 60000000;
    stated->path_pointers[0] = &stated->path;
    stated->behind[0] = "10.9.0.0/16", stated->own[0] = "10.0.0.1/32";
    stated->owners[0].node = "bravo", stated->owners[0].n_prefixes = 1, stated->owners[0].prefixes = stated->behind;
    stated->owners[0].n_paths = 1, stated->owners[0].paths = stated->path_pointers;
    stated->owners[1].node = "alpha", stated->owners[1].n_prefixes = 1, stated->owners[1].prefixes = stated->own;
    stated->table.node = "alpha", stated->table.generation = 9;
    stated->table.n_links = 2, stated->table.links = stated->link_pointers;
    stated->table.n_owners = 2, stated->table.owners = stated->owner_pointers;
}

static void the_table_of_this_node_is_handed_over(void **state) {
    struct heard heard = {0};
    struct stated stated;

    (void)state;
    state_table(&stated);
    assert_int_equal(take(&heard, "alpha", &stated.table.base), 0);
    assert_int_equal(heard.told, 1);
    assert_int_equal(heard.generation, 9);
    assert_int_equal(heard.table.port, OVERLAY_PORT);
    assert_int_equal(heard.table.n_links, 2);
    assert_string_equal(heard.table.links[0].interface, "a");
    assert_int_equal(heard.table.links[0].mtu, 1400);
    assert_int_equal(heard.table.links[1].mtu, 1500);
    assert_int_equal(heard.table.owners[0].routes[0].n_hops, 2);
    assert_int_equal(heard.table.owners[0].routes[0].hops[0], 1);
    assert_true(heard.table.owners[0].routes[0].choice);
    assert_int_equal(heard.table.owners[0].routes[0].capacity_bps, 60000000);
    assert_int_equal(heard.table.owners[1].n_routes, 0);
    overlay_table_free(&heard.table);
}

static void those_of_others_are_passed_over(void **state) {
    struct heard heard = {0};
    struct stated stated;

    (void)state;
    state_table(&stated);
    assert_int_equal(take(&heard, "bravo", &stated.table.base), 0);
    assert_int_equal(heard.told, 0);
}

static void a_tombstone_is_a_table_without_links(void **state) {
    struct heard heard = {0};

    (void)state;
    assert_int_equal(take(&heard, "alpha", NULL), 0);
    assert_int_equal(heard.told, 1);
    assert_int_equal(heard.table.n_links, 0);
    overlay_table_free(&heard.table);
}

static void what_cannot_be_meant_is_refused_whole(void **state) {
    struct heard heard = {0};
    struct stated stated;

    static const uint8_t garbage[] = {0xff, 0xff, 0xff};
    const struct messages_intake intake = {.node = "alpha", .path_table = on_table, .context = &heard};
    const struct streams_record unreadable = {
        .topic = STREAMS_PATH_TABLE, .key = "alpha", .value = garbage, .length = sizeof(garbage)};

    (void)state;
    assert_int_equal(messages_take(&intake, &unreadable), -EBADMSG);
    for (int fault = 0; fault < 13; fault++) {
        state_table(&stated);
        if (fault == 0)
            stated.links[0].remote_address = "nowhere";
        else if (fault == 1)
            stated.hops[1] = "alpha:c";
        else if (fault == 2)
            stated.path.n_next_hops = 0;
        else if (fault == 3)
            stated.path.colour = CHART_OVERLAY_COLOURS;
        else if (fault == 4)
            stated.behind[0] = "10.9.0.0/99";
        else if (fault == 5)
            stated.links[1].remote_address = stated.links[0].remote_address;
        else if (fault == 6)
            stated.own[0] = stated.behind[0];
        else if (fault == 7)
            stated.links[0].mtu = OVERLAY_MTU_MIN - 1;
        else if (fault == 8)
            stated.links[0].mtu = OVERLAY_MTU_MAX + 1;
        else if (fault == 9)
            stated.links[0].capacity_bps = OVERLAY_CAPACITY_MAX_BPS + 1;
        else if (fault == 10)
            stated.path.capacity_bps = OVERLAY_CAPACITY_MAX_BPS + 1;
        else if (fault == 11)
            stated.owners[0].node = "";
        else
            stated.links[1].link_id = stated.hops[0] = "";
        assert_true(take(&heard, "alpha", &stated.table.base) < 0);
    }
    assert_int_equal(heard.told, 0);
}

static void a_table_stands_in_the_state_folder_as_it_came(void **state) {
    struct overlay_table read;
    struct heard heard = {0};
    struct stated stated;
    char error[OVERLAY_ERROR_LEN];
    char *text, *again;

    (void)state;
    state_table(&stated);
    assert_int_equal(take(&heard, "alpha", &stated.table.base), 0);
    text = overlay_file_print(&heard.table);
    assert_non_null(text);
    assert_int_equal(overlay_file_parse(text, strlen(text), &read, error), 0);
    again = overlay_file_print(&read);
    assert_string_equal(text, again);
    assert_int_equal(read.owners[0].routes[0].hops[0], 1);
    free(text);
    free(again);
    overlay_table_free(&read);
    overlay_table_free(&heard.table);
}

static void links_paths_and_events_stand_in_the_nodes_state(void **state) {
    Chart__V1__NodeState message = CHART__V1__NODE_STATE__INIT;
    struct overlay_report report = {.running = true, .generation = 3, .n_links = 1};
    void *room;

    (void)state;
    report.links[0] = (struct overlay_link_report){
        .name = "alpha:a", .alive = true, .rtt_us = 20000, .exchange_loss = 0.25, .failures = 2};
    report.n_paths = 1;
    report.paths[0] = (struct flow_path_report){.owner = "bravo",
                                                .colour = 2,
                                                .alive = true,
                                                .rtt_us = 30000,
                                                .load = 0.5,
                                                .taken_by = 1u << CHART_OVERLAY_VIDEO | 1u << CHART_OVERLAY_DATA,
                                                .left_by = 1u << CHART_OVERLAY_VOICE};
    report.n_events = 2;
    report.events[0] = (struct overlay_event){
        .sequence = 8, .at_us = 5, .kind = OVERLAY_EVENT_LINK_FAILED, .subject = "alpha:a", .interface_down = true};
    report.events[1] = (struct overlay_event){.sequence = 9,
                                              .at_us = 6,
                                              .kind = OVERLAY_EVENT_PATH_LEFT,
                                              .subject = "bravo",
                                              .colour = 2,
                                              .classes = 1u << CHART_OVERLAY_VOICE | 1u << CHART_OVERLAY_DATA,
                                              .exchange_loss = 0.05};
    report.counted.strangers = 4;
    report.counted.bad_probes = 1;
    report.counted.detours = 6;
    room = messages_add_overlay(&message, &report);
    assert_non_null(room);
    assert_int_equal(message.overlay->generation, 3);
    assert_int_equal(message.overlay->n_links, 1);
    assert_string_equal(message.overlay->links[0]->link_id, "alpha:a");
    assert_true(message.overlay->links[0]->alive);
    assert_int_equal(message.overlay->links[0]->failures, 2);
    assert_int_equal(message.overlay->refused_packets, 5);
    assert_int_equal(message.overlay->detour_packets, 6);
    assert_int_equal(message.overlay->n_paths, 1);
    assert_string_equal(message.overlay->paths[0]->owner, "bravo");
    assert_int_equal(message.overlay->paths[0]->n_taken_by, 2);
    assert_int_equal(message.overlay->paths[0]->taken_by[0], CHART__V1__OVERLAY_CLASS__OVERLAY_CLASS_VIDEO);
    assert_int_equal(message.overlay->paths[0]->n_left_by, 1);
    assert_int_equal(message.overlay->paths[0]->left_by[0], CHART__V1__OVERLAY_CLASS__OVERLAY_CLASS_VOICE);
    assert_int_equal(message.overlay->n_events, 2);
    assert_string_equal(message.overlay->events[0]->link_id, "alpha:a");
    assert_string_equal(message.overlay->events[0]->owner, "");
    assert_true(message.overlay->events[0]->interface_down);
    assert_int_equal(message.overlay->events[0]->n_flow_classes, 0);
    assert_int_equal(message.overlay->events[1]->kind, CHART__V1__OVERLAY_EVENT_KIND__OVERLAY_EVENT_KIND_PATH_LEFT);
    assert_string_equal(message.overlay->events[1]->owner, "bravo");
    assert_int_equal(message.overlay->events[1]->n_flow_classes, 2);
    assert_int_equal(message.overlay->events[1]->flow_classes[1], CHART__V1__OVERLAY_CLASS__OVERLAY_CLASS_DATA);
    free(room);
    message.overlay = NULL;
    report.running = false;
    room = messages_add_overlay(&message, &report);
    assert_null(message.overlay);
    free(room);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_of_this_node_is_handed_over),
        cmocka_unit_test(those_of_others_are_passed_over),
        cmocka_unit_test(a_tombstone_is_a_table_without_links),
        cmocka_unit_test(what_cannot_be_meant_is_refused_whole),
        cmocka_unit_test(a_table_stands_in_the_state_folder_as_it_came),
        cmocka_unit_test(links_paths_and_events_stand_in_the_nodes_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
