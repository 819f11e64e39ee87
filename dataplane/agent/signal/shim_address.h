/* The own address that the UDP shim is sent from when nobody states one. */
#pragma once

#include "signal/signal_tables.h"

/* For each family that no address is stated of: the local address towards the first of these hops that the shim
 * reaches by it. Families without such a hop, or without a way there, stay as they are. */
void shim_address_fill(const struct signal_hop *hops, size_t n_hops, struct signal_policy *policy);
