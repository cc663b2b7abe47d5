/* Words at random places are changed; each change is independent of the others. */
#include "truth.h"

int main(void) {
    size_t bytes = sized(128 * MIB), words = bytes / sizeof(uint64_t);
    size_t updates = sized(12000000);
    uint64_t *memory = new_memory(bytes), state = 1;
    memset(memory, 1, bytes);
    for (size_t i = 0; i < updates; i++) {
        uint64_t r = next_random(&state);
        memory[r % words] ^= r;
    }
    return done(memory[words / 2]);
}
