/* Threads that read through one descriptor, and that make one file longer, all at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4, TURNS = 100, BYTES = 64 };

static int in, end, far;

static void *work(void *number)
{
    char buffer[BYTES] = {0};
    long ok = 0, me = (long)number;
    for (int i = 0; i < TURNS; i++) {
        ok += read(in, buffer, BYTES) == BYTES;
        ok += write(end, buffer, BYTES) == BYTES;
        ok += pwrite(far, buffer, BYTES, (i * THREADS + me) * BYTES) == BYTES;
    }
    return (void *)(3 * TURNS - ok);
}

int main(int argc, char **argv)
{
    if (argc < 2 || chdir(argv[1]))
        return 1;
    in = open("in.bin", O_RDWR | O_CREAT | O_TRUNC, 0600);
    end = open("end.bin", O_WRONLY | O_APPEND | O_CREAT | O_TRUNC, 0600);
    far = open("far.bin", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (ftruncate(in, THREADS * TURNS * BYTES))
        return 1;
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&t[i], 0, work, (void *)i);
    long wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        void *w;
        pthread_join(t[i], &w);
        wrong += (long)w;
    }
    return wrong ? 2 : 0;
}
