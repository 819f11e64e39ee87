/* See grant_paths.h. */
#include "paths/grant_paths.h"

#include <string.h>

static bool has_link(const struct overlay_grant *grant, const char *id) {
    for (size_t i = 0; i < grant->n_link_ids; i++)
        if (strcmp(grant->link_ids[i], id) == 0)
            return true;
    return false;
}

static bool has_all(const struct overlay_grant *grant, const struct overlay_route *route) {
    for (size_t i = 0; i < route->n_link_ids; i++)
        if (!has_link(grant, route->link_ids[i]))
            return false;
    return true;
}

uint8_t overlay_grant_colour(const struct overlay_table *table, const struct overlay_grant *grant) {
    uint8_t colour = 0;
    size_t longest = 0;

    for (size_t i = 0; i < table->n_owners; i++)
        for (size_t k = 0; k < table->owners[i].n_routes; k++) {
            const struct overlay_route *route = &table->owners[i].routes[k];

            if (!route->choice || route->n_link_ids <= longest || !has_all(grant, route))
                continue;
            colour = route->colour;
            longest = route->n_link_ids;
        }
    return colour;
}
