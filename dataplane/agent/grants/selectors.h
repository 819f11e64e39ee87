/* Selectors of grants in the form the BPF programs compare (dataplane/bpf/maps.h); pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "grants/decide.h"
#include "maps.h"

/* Pairs that one grant may have. */
#define SELECTOR_PAIRS_MAX (DECIDE_PREFIXES_MAX * DECIDE_PREFIXES_MAX)

/* The first prefixes become address and mask, IPv4 as ::ffff:a.b.c.d. 0, or -EINVAL (more bits than the family has). */
int selector_to_kernel(const struct decide_selector *selector, struct chart_selector *ret);

/* The kernel compares one pair of prefixes at a time: one selector for each pair of a source and a destination of one
 * address family. Returns how many were written to `ret`, -ENOSPC when `size` are not enough, -EINVAL when there is no
 * such pair or a prefix has too many bits. */
int selector_pairs_to_kernel(const struct decide_selector *selector, struct chart_selector *ret, size_t size);

/* How much a selector says: the more, the earlier it is tried. */
unsigned selector_specificity(const struct chart_selector *selector);

/* Most specific first; of equals the older grant (smaller number). */
void selector_sort(struct chart_selector *selectors, size_t n_selectors);
