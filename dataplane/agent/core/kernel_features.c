/* See kernel_features.h. */
#include "core/kernel_features.h"

#include <bpf/btf.h>
#include <stddef.h>
#include <string.h>

static bool has_enumerator(const struct btf *btf, const char *type_name, const char *name) {
    int id = btf__find_by_name_kind(btf, type_name, BTF_KIND_ENUM);
    const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(btf, (unsigned)id);
    const struct btf_enum *enumerators = type ? btf_enum(type) : NULL;
    for (unsigned i = 0; type && i < btf_vlen(type); i++)
        if (strcmp(btf__name_by_offset(btf, enumerators[i].name_off), name) == 0)
            return true;
    return false;
}

/* How many arguments a function has that a structure points to; 0: there is none of that name. */
static unsigned count_arguments(const struct btf *btf, const char *structure, const char *name) {
    int id = btf__find_by_name_kind(btf, structure, BTF_KIND_STRUCT);
    const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(btf, (unsigned)id);
    const struct btf_member *members = type ? btf_members(type) : NULL;
    for (unsigned i = 0; type && i < btf_vlen(type); i++) {
        if (strcmp(btf__name_by_offset(btf, members[i].name_off), name) != 0)
            continue;
        const struct btf_type *pointer = btf__type_by_id(btf, members[i].type);
        const struct btf_type *function = btf_is_ptr(pointer) ? btf__type_by_id(btf, pointer->type) : NULL;
        return function && btf_is_func_proto(function) ? btf_vlen(function) : 0;
    }
    return 0;
}

const struct kernel_features *kernel_features(void) {
    static struct kernel_features features;
    static bool known;
    struct btf *btf;
    if (known)
        return &features;
    known = true;
    btf = btf__load_vmlinux_btf();
    if (!btf)
        return &features;
    features.tcx = has_enumerator(btf, "bpf_attach_type", "BPF_TCX_INGRESS");
    features.struct_ops_link = has_enumerator(btf, "bpf_attach_type", "BPF_STRUCT_OPS");
    features.cong_control_arguments = count_arguments(btf, "tcp_congestion_ops", "cong_control");
    btf__free(btf);
    return &features;
}

bool kernel_keeps_programs(void) {
    return !kernel_features()->tcx || !kernel_features()->struct_ops_link;
}
