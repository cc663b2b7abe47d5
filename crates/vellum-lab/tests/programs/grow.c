/* grow MIB [crash|scatter|wait|stubborn]: touches MIB MiB, copies its input to its output, then
   crashes, or writes here and there for ever, or says so and waits, deaf to signals if it is
   stubborn. */
#include <signal.h>
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
    if (argc > 2 && !strcmp(argv[2], "scatter"))
        for (unsigned long x = 1;; x = x * 6364136223846793005 + 1442695040888963407)
            p[(x >> 20) % n] = 1;
    if (argc > 2) {
        if (!strcmp(argv[2], "stubborn"))
            for (int s = 1; s < 32; s++)
                signal(s, SIG_IGN);
        write(1, "!", 1);
        for (;;)
            pause();
    }
    return 0;
}
