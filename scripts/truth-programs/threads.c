/* Two threads: each fills memory of its own, then reads at random places of the other's. */
#include "truth.h"
#include <pthread.h>

static uint64_t *area[2];
static size_t bytes, reads;
static pthread_barrier_t filled;

static void *work(void *arg) {
    size_t me = (size_t)(uintptr_t)arg, words = bytes / sizeof(uint64_t);
    uint64_t state = me + 1, sum = 0;
    for (size_t i = 0; i < words; i++)
        area[me][i] = i + me;
    pthread_barrier_wait(&filled);
    for (size_t i = 0; i < reads; i++)
        sum += area[1 - me][next_random(&state) % words];
    return (void *)(uintptr_t)sum;
}

int main(void) {
    pthread_t thread[2];
    bytes = sized(64 * MIB);
    reads = sized(6000000);
    area[0] = new_memory(bytes);
    area[1] = new_memory(bytes);
    pthread_barrier_init(&filled, NULL, 2);
    uint64_t sum = 0;
    for (size_t t = 0; t < 2; t++)
        if (pthread_create(&thread[t], NULL, work, (void *)(uintptr_t)t))
            fail("pthread_create");
    for (int t = 0; t < 2; t++) {
        void *result;
        pthread_join(thread[t], &result);
        sum += (uintptr_t)result;
    }
    return done(sum);
}
