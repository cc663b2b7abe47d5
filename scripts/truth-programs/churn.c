/* Short-lived mappings: made, filled and unmapped, over and over. */
#include "truth.h"

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 4096) << 10;
    size_t turns = sized(argc > 2 ? strtoul(argv[2], NULL, 10) : 128);
    uint64_t sum = 0;
    for (size_t turn = 0; turn < turns; turn++) {
        uint64_t *memory = new_memory(bytes);
        for (size_t i = 0; i < bytes / sizeof *memory; i++)
            memory[i] = i ^ turn;
        sum += memory[turn];
        munmap(memory, bytes);
    }
    return done(sum);
}
