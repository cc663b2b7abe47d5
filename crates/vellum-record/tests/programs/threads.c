/* Threads that map, touch and unmap at the same time, in two generations so that CPU numbers are reused. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { THREADS = 4, ROUNDS = 200, LENGTH = 64 << 10 };
static char *handed[THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *arg)
{
    long me = (long)arg, sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char *p = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int j = 0; j < LENGTH; j += 512)
            p[j] = j;
        pthread_mutex_lock(&lock);
        char *q = handed[(me + 1) % THREADS];
        handed[(me + 1) % THREADS] = 0;
        char *mine = handed[me];
        handed[me] = p;
        pthread_mutex_unlock(&lock);
        if (mine)
            munmap(mine, LENGTH);
        if (q) {
            for (int j = 0; j < LENGTH; j += 4096)
                sum += q[j];
            munmap(q, LENGTH);
        }
    }
    return (void *)sum;
}

int main(void)
{
    for (int generation = 0; generation < 2; generation++) {
        pthread_t t[THREADS];
        for (long i = 0; i < THREADS; i++)
            if (pthread_create(&t[i], 0, work, (void *)i))
                return 1;
        for (int i = 0; i < THREADS; i++)
            pthread_join(t[i], 0);
    }
    puts("done");
    return 7;
}
