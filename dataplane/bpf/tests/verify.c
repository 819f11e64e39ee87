/* Load every program of the given BPF objects and print what it costs: instructions after the verifier's rewriting,
 * instructions the verifier walked, octets of machine code. Fails when one is refused. Needs root. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>

static int show(const struct bpf_program *program) {
    struct bpf_prog_info info = {0};
    unsigned length = sizeof(info);
    if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &length)) {
        fprintf(stderr, "verify: %s: no information\n", bpf_program__name(program));
        return 1;
    }
    printf("%-18s %6u instructions, %7u verified, %6u octets of code\n", bpf_program__name(program),
           info.xlated_prog_len / 8, info.verified_insns, info.jited_prog_len);
    return 0;
}

int main(int argc, char **argv) {
    int failed = 0;
    libbpf_set_strict_mode(LIBBPF_STRICT_ALL);
    for (int i = 1; i < argc; i++) {
        struct bpf_program *program;
        struct bpf_object *object = bpf_object__open_file(argv[i], NULL);
        if (!object || bpf_object__load(object)) {
            fprintf(stderr, "verify: the kernel refused %s\n", argv[i]);
            failed = 1;
        } else {
            bpf_object__for_each_program(program, object) failed |= show(program);
        }
        bpf_object__close(object);
    }
    return failed;
}
