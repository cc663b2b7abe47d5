/* Each load says where the next one goes: nodes of one line, in a random circle through `MIB`. */
#include "truth.h"

int main(int argc, char **argv) {
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 128;
    size_t hops = sized(argc > 2 ? strtoul(argv[2], NULL, 10) * 1000000 : 4000000);
    size_t bytes = mib * MIB, nodes = bytes / 64;
    char *memory = new_memory(bytes);
    /* The circle of a linear congruence that visits all numbers below a power of two. */
    for (size_t i = 0; i < nodes; i++) {
        size_t to = (i * 0x5851f42d4c957f2du + 0x14057b7ef767814fu) % nodes;
        *(char **)(memory + i * 64) = memory + to * 64;
    }
    char *at = memory;
    for (size_t i = 0; i < hops; i++)
        at = *(char **)at;
    return done(at - memory);
}
