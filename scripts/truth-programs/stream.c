/* Memory read from end to end, or one array copied to another: what prefetchers are made for. */
#include "truth.h"

static uint64_t read_all(const uint64_t *from, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += from[i];
    return sum;
}

static void scale(uint64_t *restrict to, const uint64_t *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = from[i] * 3 + 1;
}

int main(int argc, char **argv) {
    int copy = argc > 1 && !strcmp(argv[1], "copy");
    size_t bytes = sized(copy ? 64 * MIB : 128 * MIB), count = bytes / sizeof(uint64_t);
    uint64_t *a = new_memory(bytes), sum = 0;
    for (size_t i = 0; i < count; i++)
        a[i] = i;
    if (copy) {
        uint64_t *b = new_memory(bytes);
        for (int turn = 0; turn < 2; turn++) {
            scale(b, a, count);
            scale(a, b, count);
        }
        return done(a[count / 3]);
    }
    for (int turn = 0; turn < 4; turn++)
        sum += read_all(a, count) ^ turn;
    return done(sum);
}
