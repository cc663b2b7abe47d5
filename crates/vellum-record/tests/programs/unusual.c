/* What few programs do: an `exec` in vain beside a thread that works (`torn`), and in two threads
 * at once (`both`); `close` all descriptors; `peek` at a message that is longer than the buffer; go
 * on after an `exec` of a file that is no program; `fault` at pages that a handler then opens. Then
 * 4 MiB are written. The code that it ends with has more than a byte. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static char message[60000];

static char *memory(long bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void open_page(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    char *page = (char *)((unsigned long)info->si_addr & ~4095ul);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

/* The access that faults is the first of its block. */
__attribute__((noinline)) static void fault(void) {
    struct sigaction act = {.sa_sigaction = open_page, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, 0);
    char *closed = mmap(0, 64 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < 64 * 4096; at += 4096)
        *(volatile char *)(closed + at) = 1;
}

static volatile int over;
static char *read_only;
static long cell;

/* A long block of loads, and one of modifications, in turn. */
static void *work(void *none) {
    while (!over) {
        __asm__ volatile("jmp 1f\n1: nop\n.rept 200\nmovq (%0),%%rax\n.endr\njmp 2f\n2:"
                         : : "r"(read_only) : "rax", "memory");
        __asm__ volatile("jmp 1f\n1: nop\n.rept 200\naddq $1,(%0)\n.endr\njmp 2f\n2:"
                         : : "r"(&cell) : "memory", "cc");
    }
    return none;
}

static void torn(char *file, char **words) {
    pthread_t thread;
    read_only = mmap(0, 32 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_create(&thread, 0, work, 0);
    for (int times = 0; times < 20; times++) {
        execve(file, words, words);
        usleep(500);
    }
    over = 1;
    pthread_join(thread, 0);
}

static char **tried;

/* Maps some pages in between, as many as the thread says. */
static void *try(void *pages) {
    for (int times = 0; times < 20; times++) {
        execve(tried[2], tried, tried);
        if (times == 10)
            mmap(0, (long)pages * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    return pages;
}

static void both(char **words) {
    pthread_t threads[2];
    tried = words;
    for (long n = 0; n < 2; n++)
        pthread_create(&threads[n], 0, try, (void *)(5 + n));
    for (long n = 0; n < 2; n++)
        pthread_join(threads[n], 0);
}

int main(int argc, char **argv) {
    int ends[2];
    char *words[] = {argv[0], 0};
    if (strcmp(argv[1], "both") == 0)
        both(argv);
    if (strcmp(argv[1], "torn") == 0)
        torn(argv[2], words);
    if (argc > 2)
        execve(argv[2], words, words);
    if (strcmp(argv[1], "close") == 0)
        for (int number = 3; number < 4096; number++)
            close(number);
    if (strcmp(argv[1], "fault") == 0)
        fault();
    if (strcmp(argv[1], "peek") == 0) {
        socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
        write(ends[0], message, sizeof message);
        if (recv(ends[1], memory(4096), 1, MSG_PEEK | MSG_TRUNC) != sizeof message)
            return 1;
    }
    char *all = memory(4 << 20);
    for (long at = 0; at < 4 << 20; at += 4096)
        all[at] = 1;
    return 256 + 7;
}
