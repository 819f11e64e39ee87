/* bpf() calls that libbpf 1.1 has no functions for: links, and finding what another agent of this kernel has loaded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Register the struct_ops map; it stays registered while the returned descriptor is open somewhere. */
int kernel_link_struct_ops(int map_fd);

/* Take back a registration without a link. Sockets that use the operations keep them until they are given others. */
int kernel_unregister_struct_ops(int map_fd);

/* BPF_LINK_CREATE. A descriptor or a negative errno. */
int kernel_link_create(uint32_t object_fd, uint32_t target, uint32_t attach_type, uint32_t flags);

bool kernel_map_has_name(int fd, const char *name);

/* The link of a registered struct_ops map of that name, or on kernels without such links the map once more; *ret_map_fd
 * is the map. A descriptor, -ENOENT when there is none, or a negative errno: -EPERM without CAP_SYS_ADMIN. */
int kernel_find_struct_ops(const char *map_name, int *ret_map_fd);

/* A map by name among those of the program `program_name` that the struct_ops map `map_fd` calls. A descriptor, -ENOENT
 * or a negative errno. */
int kernel_find_map(int map_fd, const char *program_name, const char *map_name);
