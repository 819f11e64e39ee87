/* Asks that are built in, by name: what flows of a kind ask for when their program says nothing. */
#pragma once

#include "signal/signal_tables.h"

/* Appends those of `name` to `*asks`, which grows. 0, -ENOENT (no such name) or -ENOMEM. */
int default_asks_add(const char *name, struct signal_ask **asks, size_t *n_asks);
