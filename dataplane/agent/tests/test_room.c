/* How much room a node's tables have, and how a node state says it. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <stdlib.h>
#include <string.h>

#include "grants/datapath_state.h"
#include "streams/messages_room.h"

static void what_is_held_is_counted_kind_by_kind(void **state) {
    struct datapath datapath = {0};
    struct datapath_room room[DATAPATH_ROOM_KINDS];

    (void)state;
    datapath.entries = calloc(DATAPATH_GRANTS_MAX, sizeof(*datapath.entries));
    assert_non_null(datapath.entries);
    datapath_room(&datapath, room);
    assert_int_equal(room[DATAPATH_ROOM_GRANTS].held, 0);
    assert_int_equal(room[DATAPATH_ROOM_SELECTORS].held, 0);

    datapath.entries[1] = (struct datapath_entry){.used = true, .n_selectors = 4};
    datapath.entries[DATAPATH_GRANTS_MAX - 1] = (struct datapath_entry){.used = true, .n_selectors = 1};
    datapath_room(&datapath, room);
    assert_string_equal(room[DATAPATH_ROOM_GRANTS].kind, "grants");
    assert_int_equal(room[DATAPATH_ROOM_GRANTS].held, 2);
    assert_int_equal(room[DATAPATH_ROOM_GRANTS].total, DATAPATH_GRANTS_MAX);
    assert_string_equal(room[DATAPATH_ROOM_SELECTORS].kind, "selectors");
    assert_int_equal(room[DATAPATH_ROOM_SELECTORS].held, 5);
    assert_int_equal(room[DATAPATH_ROOM_SELECTORS].total, CHART_SELECTORS_MAX);
    free(datapath.entries);
}

static void a_node_state_says_the_room(void **state) {
    const struct datapath_room room[] = {{.kind = "grants", .held = 3, .total = 256},
                                         {.kind = "selectors", .held = 12, .total = 4096}};
    const struct messages_node_state told = {.room = room, .n_room = 2};
    Chart__V1__NodeState message = CHART__V1__NODE_STATE__INIT, *read;
    struct messages_room keep;
    uint8_t buffer[256];

    (void)state;
    messages_put_room(&message, &told, &keep);
    assert_true(chart__v1__node_state__get_packed_size(&message) <= sizeof(buffer));
    read = chart__v1__node_state__unpack(NULL, chart__v1__node_state__pack(&message, buffer), buffer);
    assert_non_null(read);
    assert_int_equal(read->n_room, 2);
    assert_string_equal(read->room[0]->kind, "grants");
    assert_int_equal(read->room[0]->held, 3);
    assert_int_equal(read->room[0]->total, 256);
    assert_string_equal(read->room[1]->kind, "selectors");
    assert_int_equal(read->room[1]->held, 12);
    chart__v1__node_state__free_unpacked(read, NULL);
}

static void more_kinds_than_there_are_are_left_out(void **state) {
    const struct datapath_room room[DATAPATH_ROOM_KINDS + 1] = {
        {.kind = "grants"}, {.kind = "selectors"}, {.kind = "x"}};
    const struct messages_node_state told = {.room = room, .n_room = DATAPATH_ROOM_KINDS + 1};
    Chart__V1__NodeState message = CHART__V1__NODE_STATE__INIT;
    struct messages_room keep;

    (void)state;
    messages_put_room(&message, &told, &keep);
    assert_int_equal(message.n_room, DATAPATH_ROOM_KINDS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_is_counted_kind_by_kind),
        cmocka_unit_test(a_node_state_says_the_room),
        cmocka_unit_test(more_kinds_than_there_are_are_left_out),
    };

    return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
