/* Children have the memory while the program writes it: one that goes on for 200 ms by itself, one
 * that is killed, and one that makes a child of its own and ends before it. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

static char *memory;

static void fill(int from, int value) {
    for (int i = 0; i < 16; i++)
        memory[(from + i) * PAGE] = value;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(void) {
    memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, PAGES * PAGE);
    int end[2], late[2];
    char none;
    if (pipe(end) || pipe(late))
        return 1;
    int slow = fork();
    if (slow == 0) {
        usleep(200000);
        _exit(0);
    }
    int killed = fork();
    if (killed == 0) {
        pause();
        _exit(0);
    }
    int middle = fork();
    if (middle == 0) {
        if (fork() == 0) {
            close(late[1]);
            _exit(read(late[0], &none, 1) != 0);
        }
        _exit(0);
    }
    waitpid(middle, 0, 0);
    fill(0, 2);
    kill(killed, SIGKILL);
    waitpid(killed, 0, 0);
    fill(16, 3);
    /* No system call tells that the first one ended meanwhile. */
    double begin = now();
    while (now() - begin < 1)
        ;
    fill(32, 4);
    waitpid(slow, 0, 0);
    close(late[0]);
    close(late[1]);
    /* Until the last one has seen it. */
    usleep(100000);
    fill(48, 5);
    return memory[PAGE] != 2;
}
