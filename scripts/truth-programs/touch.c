/* New memory, written for the first time: a word in each `STEP` bytes. */
#include "truth.h"

int main(int argc, char **argv) {
    size_t step = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    size_t bytes = sized(argc > 2 ? strtoul(argv[2], NULL, 10) * MIB : 256 * MIB);
    int turns = argc > 3 ? atoi(argv[3]) : 1;
    uint64_t sum = 0;
    for (int turn = 0; turn < turns; turn++) {
        volatile char *memory = new_memory(bytes);
        for (size_t at = 0; at < bytes; at += step)
            memory[at + turn] = at;
        sum += memory[bytes / 2];
        munmap((void *)memory, bytes);
    }
    return done(sum);
}
