/* Privileges: after its start a program keeps what it goes on needing. */
#pragma once

#include <sys/capability.h>

/* Keep only these capabilities, set no_new_privs. 0 or a negative errno. */
int caps_drop(const cap_value_t *kept, int n_kept);
