/* A record of the path tables' stream: any octets are read or refused, and a table that is taken is one that the
 * kernel's maps have room for and that the state folder gives back as it was. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "streams/messages_paths.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Refusals are told, millions of times. */
void agent_log(const char *level, const char *format, ...) {
    (void)level;
    (void)format;
}

static void on_table(struct overlay_table *table, uint64_t generation, void *context) {
    struct overlay_table again;
    char error[OVERLAY_ERROR_LEN];
    char *text = overlay_file_print(table);

    (void)generation;
    (void)context;
    if (table->n_links > OVERLAY_LINKS_MAX)
        abort();
    for (size_t i = 0; i < table->n_owners; i++)
        for (size_t k = 0; k < table->owners[i].n_routes; k++)
            for (size_t hop = 0; hop < table->owners[i].routes[k].n_hops; hop++)
                if (table->owners[i].routes[k].hops[hop] >= table->n_links)
                    abort();
    /* A table without links is the end of one: nothing is kept. */
    if (table->n_links && text) {
        if (overlay_file_parse(text, strlen(text), &again, error))
            abort();
        overlay_table_free(&again);
    }
    free(text);
    overlay_table_free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct messages_intake intake = {.node = "alpha", .path_table = on_table};
    const struct streams_record record = {.topic = STREAMS_PATH_TABLE, .key = "alpha", .value = data, .length = size};

    (void)messages_take_path_table(&intake, &record);
    return 0;
}
