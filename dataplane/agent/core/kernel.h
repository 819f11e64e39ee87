/* bpf() calls that libbpf 1.1 has no functions for: links for struct_ops and for tc, and finding what another agent of
 * this kernel has loaded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Register the struct_ops map; it stays registered while the returned descriptor is open somewhere. */
int kernel_link_struct_ops(int map_fd);

/* Attach a classifier to an interface (tcx), as the first there or behind those that are; vanishes with the descriptor.
 */
int kernel_link_tc(int program_fd, uint32_t ifindex, bool ingress, bool first);

bool kernel_map_has_name(int fd, const char *name);

/* The link of a registered struct_ops map of that name; *ret_map_fd is the map. A descriptor, -ENOENT when there is
 * none, or a negative errno: -EPERM without CAP_SYS_ADMIN. */
int kernel_find_struct_ops(const char *map_name, int *ret_map_fd);

/* A map by name among those of the program `program_name` that the struct_ops map `map_fd` calls. A descriptor, -ENOENT
 * or a negative errno. */
int kernel_find_map(int map_fd, const char *program_name, const char *map_name);
