/* act MIB [WHAT]: touches MIB MiB of memory, then does WHAT. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void touch(long mib)
{
    long n = mib << 20;
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < n; i += 4096)
        p[i] = 1;
}

/* Begins when the first thread has ended. */
static void *work(void *none)
{
    usleep(200000);
    touch(24);
    return none;
}

static void leave(int signal)
{
    (void)signal;
    _exit(5);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    if (!strcmp(what, "wait"))
        signal(SIGTERM, leave);
    touch(atol(argv[1]));
    if (!strcmp(what, "cat")) {
        char line[256];
        while (fgets(line, sizeof line, stdin))
            printf("%s and %s", getenv("WITH"), line);
    } else if (!strcmp(what, "read")) {
        /* Its code is the number of bytes. */
        int bytes = 0;
        while (getchar() != EOF)
            bytes++;
        return bytes;
    } else if (!strcmp(what, "count")) {
        return argc % 251;
    } else if (!strcmp(what, "worker")) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, 0) == 0)
            pthread_exit(0);
    } else if (!strcmp(what, "exec")) {
        return (int)syscall(SYS_execve, argv[3], argv + 3, environ);
    } else if (!strcmp(what, "fork")) {
        if (fork() == 0) {
            touch(16);
            _exit(0);
        }
        wait(0);
    } else if (!strcmp(what, "crash")) {
        *(volatile int *)8 = 1;
    } else if (!strcmp(what, "kill")) {
        /* More than the recorder's queue holds, so that some of it is in the file. */
        static volatile long many[1 << 13];
        for (long i = 0; i < 8 << 20; i++)
            many[i & 8191] = i;
        kill(getpid(), SIGKILL);
    } else if (!strcmp(what, "wait") || !strcmp(what, "sleep")) {
        for (;;)
            pause();
    }
    return 0;
}
