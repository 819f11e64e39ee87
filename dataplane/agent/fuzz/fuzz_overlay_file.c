/* What stands in an overlay file: any octets are read or refused with a sentence, and a table that is taken is one that
 * the kernel's maps have room for. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "paths/overlay_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct overlay_table table;
    char error[OVERLAY_ERROR_LEN] = "";

    if (overlay_file_parse((const char *)data, size, &table, error)) {
        if (!*error)
            abort();
        return 0;
    }
    for (size_t i = 0; i < table.n_owners; i++)
        for (size_t k = 0; k < table.owners[i].n_routes; k++)
            for (size_t hop = 0; hop < table.owners[i].routes[k].n_hops; hop++)
                if (table.owners[i].routes[k].hops[hop] >= table.n_links)
                    abort();
    overlay_table_free(&table);
    return 0;
}
