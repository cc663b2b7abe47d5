/* Memory that nobody has written, read: each page is the page of zeros. */
#include "truth.h"

int main(void) {
    size_t bytes = sized(1024 * MIB);
    const volatile uint64_t *memory = new_memory(bytes);
    uint64_t sum = 0;
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < bytes / sizeof *memory; i += 8)
            sum += memory[i];
    return done(sum);
}
