/* Binary search in one large sorted array. */
#include "truth.h"

int main(void) {
    size_t bytes = sized(128 * MIB), count = bytes / sizeof(uint64_t), searches = sized(1000000);
    uint64_t *sorted = new_memory(bytes), state = 3, sum = 0;
    for (size_t i = 0; i < count; i++)
        sorted[i] = i * 7;
    for (size_t i = 0; i < searches; i++) {
        uint64_t key = next_random(&state) % (count * 7);
        size_t low = 0, high = count;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (sorted[middle] < key)
                low = middle + 1;
            else
                high = middle;
        }
        sum += low;
    }
    return done(sum);
}
