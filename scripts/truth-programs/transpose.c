/* A matrix is written turned round: read along its rows, written down its columns. */
#include "truth.h"

int main(void) {
    size_t side = getenv("TRUTH_SMALL") ? 512 : 4096;
    uint32_t *from = new_memory(side * side * sizeof *from);
    uint32_t *to = new_memory(side * side * sizeof *to);
    for (size_t i = 0; i < side * side; i++)
        from[i] = i;
    for (size_t row = 0; row < side; row++)
        for (size_t column = 0; column < side; column++)
            to[column * side + row] = from[row * side + column];
    return done(to[side + 2]);
}
