/* Which path the flows of a grant take. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

#include "paths/grant_paths.h"

/* Two paths to `egress`, of which a part leads to `north`; colour 0 is no choice. */
static const char text[] =
    "{\"links\": [{\"name\": \"n\", \"local\": \"10.0.1.1\", \"remote\": \"10.0.1.2\"},"
    "{\"name\": \"s\", \"local\": \"10.0.2.1\", \"remote\": \"10.0.2.2\"}],"
    "\"owners\": [{\"node\": \"north\", \"prefixes\": [\"10.1.0.0/16\"], \"paths\": ["
    "{\"colour\": 3, \"next_hops\": [\"n\"], \"choice\": true, \"link_ids\": [\"in:n\"]}]},"
    "{\"node\": \"egress\", \"prefixes\": [\"10.3.0.0/16\"], \"paths\": [{\"next_hops\": [\"n\", \"s\"]},"
    "{\"colour\": 1, \"next_hops\": [\"n\"], \"choice\": true, \"link_ids\": [\"in:n\", \"north:e\"]},"
    "{\"colour\": 2, \"next_hops\": [\"s\"], \"choice\": true, \"link_ids\": [\"in:s\", \"south:e\"]},"
    "{\"colour\": 4, \"next_hops\": [\"s\"], \"link_ids\": [\"in:s\", \"south:e\", \"egress:d\"]}]}]}";

static uint8_t colour_of(const char *const *links, size_t n) {
    char ids[8][DECIDE_ID_LEN] = {{0}}, error[OVERLAY_ERROR_LEN];
    const struct overlay_grant grant = {.number = 1, .link_ids = (const char(*)[DECIDE_ID_LEN])ids, .n_link_ids = n};
    struct overlay_table table;
    uint8_t colour;

    for (size_t i = 0; i < n; i++)
        strcpy(ids[i], links[i]);
    assert_int_equal(overlay_file_parse(text, strlen(text), &table, error), 0);
    colour = overlay_grant_colour(&table, &grant);
    overlay_table_free(&table);
    return colour;
}

static void a_grant_takes_the_path_whose_links_it_has(void **state) {
    const char *const north[] = {"source:i", "in:n", "north:e", "egress:d"};
    const char *const south[] = {"source:i", "in:s", "south:e", "egress:d"};
    const char *const only_north[] = {"source:i", "in:n"};

    (void)state;
    assert_int_equal(colour_of(north, 4), 1);
    assert_int_equal(colour_of(south, 4), 2);
    assert_int_equal(colour_of(only_north, 2), 3);
}

static void one_that_has_none_of_them_takes_the_first(void **state) {
    const char *const half[] = {"source:i", "in:s"};

    (void)state;
    assert_int_equal(colour_of(half, 2), 0);
    assert_int_equal(colour_of(NULL, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grant_takes_the_path_whose_links_it_has),
        cmocka_unit_test(one_that_has_none_of_them_takes_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
