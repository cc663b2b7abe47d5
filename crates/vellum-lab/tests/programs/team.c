/* Four threads on memory of their own and of each other: pages written, read, given back, and written again. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS = 4, BYTES = 12 << 20, ROUNDS = 3 };
static unsigned char *area[THREADS];
static pthread_barrier_t barrier;

static void *work(void *arg) {
    intptr_t me = (intptr_t)arg;
    uint64_t sum = 0, x = me + 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BYTES; i += 512)
            area[me][i] = round + i / 4096;
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < 20000; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            sum += area[(me + 1) % THREADS][(x >> 20) % BYTES];
        }
        pthread_barrier_wait(&barrier);
        madvise(area[me], BYTES / 2, MADV_DONTNEED);
        char *buffer = malloc(300000 * (round + 1));
        memset(buffer, round, 300000 * (round + 1));
        sum += buffer[round];
        free(buffer);
    }
    return (void *)(intptr_t)(sum & 1);
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        area[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
