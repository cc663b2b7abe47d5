/* grow MIB [crash|wait]: touches MIB MiB, copies its input to its output, then crashes or waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    long n = atol(argv[1]) << 20;
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < n; i += 64)
        p[i] = 1;
    for (int c; (c = getchar()) != EOF;)
        putchar(c);
    fflush(stdout);
    if (argc > 2 && !strcmp(argv[2], "crash"))
        *(volatile int *)8 = 1;
    if (argc > 2 && !strcmp(argv[2], "wait")) {
        write(1, "!", 1);
        for (;;)
            pause();
    }
    return 0;
}
