/* Every memory call once, with touches around it, and data moved by the kernel. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void fill(char *p, int pages)
{
    for (int i = 0; i < pages; i++)
        p[i * PAGE] = 1;
}

int main(int argc, char **argv)
{
    char *big = mmap(0, 64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(big, 32 * PAGE, PROT_READ | PROT_WRITE);
    fill(big, 32);
    char *in = mmap(big + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    fill(in, 4);
    madvise(big, 4 * PAGE, MADV_DONTNEED);
    fill(big, 4);
    char *moved = mremap(big + 16 * PAGE, 8 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);
    fill(moved, 128);
    munmap(big, 64 * PAGE);
    char *heap = sbrk(0);
    sbrk(40 * PAGE);
    fill((char *)(((unsigned long)heap + PAGE) & -(unsigned long)PAGE), 38);
    sbrk(-20 * PAGE);
    int fd = open("/proc/self/exe", O_RDONLY);
    char *file = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    file[0]++;
    char *buffer = mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long n = read(fd, buffer, 3 * PAGE);
    struct iovec v[2] = {{buffer + 8 * PAGE, 100}, {buffer + 10 * PAGE, 100}};
    lseek(fd, 0, SEEK_SET);
    n += readv(fd, v, 2);
    fflush(stdout);
    int pid = fork();
    if (pid == 0) {
        fill(moved, 128);
        char *c = mmap(0, 1024 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fill(c, 1024);
        _exit(3);
    }
    int status;
    waitpid(pid, &status, 0);
    fill(moved, 128);
    execl("/nonexistent/program", "x", (char *)0);
    printf("%ld %d\n", n, WEXITSTATUS(status));
    if (argc > 1) {
        fflush(stdout);
        execl("/bin/echo", "echo", argv[1], (char *)0);
    }
    return 0;
}
