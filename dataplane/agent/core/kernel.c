/* See kernel.h. The structures are spelt out here because the distribution's headers are older than the kernel. */
#include "core/kernel.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ATTACH_TYPE_STRUCT_OPS 44
#define ATTACH_TYPE_TCX_INGRESS 46
#define ATTACH_TYPE_TCX_EGRESS 47
#define ATTACH_BEFORE (1u << 3)
#define LINK_TYPE_STRUCT_OPS 9
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

static int link_create(uint32_t object_fd, uint32_t target, uint32_t attach_type, uint32_t flags) {
    struct link_create attributes = {
        .object_fd = object_fd, .target = target, .attach_type = attach_type, .flags = flags};
    long fd = syscall(__NR_bpf, BPF_LINK_CREATE, &attributes, sizeof(attributes));
    return fd < 0 ? -errno : (int)fd;
}

int kernel_link_struct_ops(int map_fd) {
    return link_create((uint32_t)map_fd, 0, ATTACH_TYPE_STRUCT_OPS, 0);
}

int kernel_link_tc(int program_fd, uint32_t ifindex, bool ingress, bool first) {
    return link_create((uint32_t)program_fd, ifindex, ingress ? ATTACH_TYPE_TCX_INGRESS : ATTACH_TYPE_TCX_EGRESS,
                       first ? ATTACH_BEFORE : 0);
}

bool kernel_map_has_name(int fd, const char *name) {
    struct bpf_map_info info = {0};
    uint32_t length = sizeof(info);
    return bpf_obj_get_info_by_fd(fd, &info, &length) == 0 && strcmp(info.name, name) == 0;
}

int kernel_find_struct_ops(const char *map_name, int *ret_map_fd) {
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
