/* Which path of the overlay the flows of a grant take: the one that was committed. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "paths/overlay_table.h"

/* A grant that this node applies: by what number the kernel knows it, and the links of its path. */
struct overlay_grant {
    uint64_t number;
    const char (*link_ids)[DECIDE_ID_LEN];
    size_t n_link_ids;
};

/* A grant and the colour that its flows take. */
struct grant_colour {
    uint64_t number;
    uint64_t colour;
};

/* The longest of the paths that flows may choose here whose links a grant has; 0: none. */
uint8_t overlay_grant_colour(const struct overlay_table *table, const struct overlay_grant *grant);
