/* Runs a fuzz target over the files named, for the unit tests: no fuzzing engine needed. Prints how many it ran. */
#include <stdio.h>

#include "check.h"

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        uint8_t buffer[4096], *exact;
        size_t size;

        if (!file) {
            perror(argv[i]);
            return 1;
        }
        size = fread(buffer, 1, sizeof(buffer), file);
        fclose(file);
        exact = malloc(size ? size : 1); /* exactly as long as the input: the sanitizer sees a read beyond */
        if (!exact)
            return 1;
        memcpy(exact, buffer, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    printf("%s: %d inputs\n", argv[0], argc - 1);
    return argc > 1 ? 0 : 1;
}
