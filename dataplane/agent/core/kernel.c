/* See kernel.h. The structures are spelt out here because the distribution's headers are older than the kernel. */
#include "core/kernel.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/kernel_features.h"

#define ATTACH_TYPE_STRUCT_OPS 44
#define LINK_TYPE_STRUCT_OPS 9
/* Second word of a struct_ops map's value: its operations are registered (enum bpf_struct_ops_state). */
#define STRUCT_OPS_STATE_IN_USE 1
#define PROGRAM_MAPS_MAX 16
#define STRUCT_OPS_VALUE_MAX 4096

/* What BPF_LINK_CREATE takes; the tail is zero for what we attach. */
struct link_create {
    uint32_t object_fd;
    uint32_t target;
    uint32_t attach_type;
    uint32_t flags;
    uint64_t tail[4];
};

/* The beginning of struct bpf_link_info. */
struct link_info {
    uint32_t type;
    uint32_t id;
    uint32_t program_id;
    uint32_t unused;
    uint32_t struct_ops_map_id;
    uint32_t tail[11];
};

int kernel_link_create(uint32_t object_fd, uint32_t target, uint32_t attach_type, uint32_t flags) {
    struct link_create attributes = {
        .object_fd = object_fd, .target = target, .attach_type = attach_type, .flags = flags};
    long fd = syscall(__NR_bpf, BPF_LINK_CREATE, &attributes, sizeof(attributes));
    return fd < 0 ? -errno : (int)fd;
}

int kernel_link_struct_ops(int map_fd) {
    return kernel_link_create((uint32_t)map_fd, 0, ATTACH_TYPE_STRUCT_OPS, 0);
}

int kernel_unregister_struct_ops(int map_fd) {
    uint32_t zero = 0;
    return bpf_map_delete_elem(map_fd, &zero) ? -errno : 0;
}

bool kernel_map_has_name(int fd, const char *name) {
    struct bpf_map_info info = {0};
    uint32_t length = sizeof(info);
    return bpf_obj_get_info_by_fd(fd, &info, &length) == 0 && strcmp(info.name, name) == 0;
}

static int find_linked(const char *map_name, int *ret_map_fd) {
    uint32_t id = 0;
    errno = 0;
    while (bpf_link_get_next_id(id, &id) == 0) {
        struct link_info info = {0};
        uint32_t length = sizeof(info);
        int link_fd = bpf_link_get_fd_by_id(id);
        if (link_fd < 0 && errno == EPERM)
            return -EPERM;
        if (link_fd < 0)
            continue;
        if (bpf_obj_get_info_by_fd(link_fd, &info, &length) == 0 && info.type == LINK_TYPE_STRUCT_OPS) {
            int map_fd = bpf_map_get_fd_by_id(info.struct_ops_map_id);
            if (map_fd >= 0 && kernel_map_has_name(map_fd, map_name)) {
                *ret_map_fd = map_fd;
                return link_fd;
            }
            if (map_fd >= 0)
                close(map_fd);
        }
        close(link_fd);
    }
    return errno == EPERM ? -EPERM : -ENOENT;
}

static bool is_registered(int map_fd, const char *map_name) {
    uint32_t value[STRUCT_OPS_VALUE_MAX / sizeof(uint32_t)] = {0};
    struct bpf_map_info info = {0};
    uint32_t length = sizeof(info), zero = 0;
    return bpf_obj_get_info_by_fd(map_fd, &info, &length) == 0 && info.type == BPF_MAP_TYPE_STRUCT_OPS &&
           strcmp(info.name, map_name) == 0 && info.value_size <= sizeof(value) &&
           bpf_map_lookup_elem(map_fd, &zero, value) == 0 && value[1] == STRUCT_OPS_STATE_IN_USE;
}

/* A registration without a link is one of the map's own. */
static int find_registered(const char *map_name, int *ret_map_fd) {
    uint32_t id = 0;
    errno = 0;
    while (bpf_map_get_next_id(id, &id) == 0) {
        int map_fd = bpf_map_get_fd_by_id(id);
        if (map_fd < 0 && errno == EPERM)
            return -EPERM;
        if (map_fd >= 0 && is_registered(map_fd, map_name)) {
            int holder = fcntl(map_fd, F_DUPFD_CLOEXEC, 3);
            if (holder < 0) {
                int error = -errno;
                close(map_fd);
                return error;
            }
            *ret_map_fd = map_fd;
            return holder;
        }
        if (map_fd >= 0)
            close(map_fd);
    }
    return errno == EPERM ? -EPERM : -ENOENT;
}

int kernel_find_struct_ops(const char *map_name, int *ret_map_fd) {
    return kernel_features()->struct_ops_link ? find_linked(map_name, ret_map_fd)
                                              : find_registered(map_name, ret_map_fd);
}

static int find_in_program(int program_fd, const char *map_name) {
    uint32_t map_ids[PROGRAM_MAPS_MAX] = {0};
    struct bpf_prog_info info = {.nr_map_ids = PROGRAM_MAPS_MAX, .map_ids = (uintptr_t)map_ids};
    uint32_t length = sizeof(info);
    if (bpf_obj_get_info_by_fd(program_fd, &info, &length))
        return -errno;
    for (uint32_t i = 0; i < info.nr_map_ids && i < PROGRAM_MAPS_MAX; i++) {
        int fd = bpf_map_get_fd_by_id(map_ids[i]);
        if (fd >= 0 && kernel_map_has_name(fd, map_name))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -ENOENT;
}

/* The value of a struct_ops map, as user space reads it, has program ids where the kernel has function pointers. */
static int calls_program(const uint64_t *value, size_t n_words, uint32_t program_id) {
    for (size_t i = 0; i < n_words; i++)
        if (value[i] == program_id)
            return 1;
    return 0;
}

int kernel_find_map(int map_fd, const char *program_name, const char *map_name) {
    uint64_t value[STRUCT_OPS_VALUE_MAX / sizeof(uint64_t)] = {0};
    struct bpf_map_info map = {0};
    uint32_t length = sizeof(map), zero = 0, id = 0;
    if (bpf_obj_get_info_by_fd(map_fd, &map, &length))
        return -errno;
    if (map.value_size > sizeof(value))
        return -E2BIG;
    if (bpf_map_lookup_elem(map_fd, &zero, value))
        return -errno;
    while (bpf_prog_get_next_id(id, &id) == 0) {
        struct bpf_prog_info program = {0};
        int program_fd = -1, fd = -ENOENT;
        if (!calls_program(value, map.value_size / sizeof(uint64_t), id))
            continue;
        program_fd = bpf_prog_get_fd_by_id(id);
        length = sizeof(program);
        if (program_fd < 0)
            continue;
        if (bpf_obj_get_info_by_fd(program_fd, &program, &length) == 0 && strcmp(program.name, program_name) == 0)
            fd = find_in_program(program_fd, map_name);
        close(program_fd);
        if (fd != -ENOENT)
            return fd;
    }
    return -ENOENT;
}
