/* Radix sort of 64-bit keys by their low 24 bits: read in order, written to 256 places at once. */
#include "truth.h"

static void pass(uint64_t *restrict to, const uint64_t *restrict from, size_t count, int shift) {
    size_t at[256] = {0}, sum = 0;
    for (size_t i = 0; i < count; i++)
        at[from[i] >> shift & 255]++;
    for (int digit = 0; digit < 256; digit++) {
        size_t here = at[digit];
        at[digit] = sum;
        sum += here;
    }
    for (size_t i = 0; i < count; i++)
        to[at[from[i] >> shift & 255]++] = from[i];
}

int main(void) {
    size_t count = sized((size_t)4 << 20);
    uint64_t *a = new_memory(count * sizeof *a), *b = new_memory(count * sizeof *b), state = 5;
    for (size_t i = 0; i < count; i++)
        a[i] = next_random(&state);
    pass(b, a, count, 0);
    pass(a, b, count, 8);
    pass(b, a, count, 16);
    return done(b[count / 2]);
}
