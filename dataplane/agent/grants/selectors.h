/* Selectors of grants in the form the BPF programs compare (dataplane/bpf/maps.h); pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "grants/decide.h"
#include "maps.h"

/* Prefixes become address and mask, IPv4 as ::ffff:a.b.c.d. 0, or -EINVAL (more bits than the family has). */
int selector_to_kernel(const struct decide_selector *selector, struct chart_selector *ret);

/* How much a selector says: the more, the earlier it is tried. */
unsigned selector_specificity(const struct chart_selector *selector);

/* Most specific first; of equals the older grant (smaller number). */
void selector_sort(struct chart_selector *selectors, size_t n_selectors);
