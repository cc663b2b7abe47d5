/* One thread makes children; the other uses descriptors by numbers that it chooses. With an argument
 * the other executes, in vain, a file that is no program. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int done;

static void *make_children(void *none) {
    for (int i = 0; i < 200; i++) {
        int child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, 0, 0);
    }
    done = 1;
    return none;
}

int main(int argc, char **argv) {
    pthread_t other;
    int lost = 0;
    char *words[] = {argv[0], 0};
    pthread_create(&other, 0, make_children, 0);
    while (!done) {
        if (argc > 1) {
            execve(argv[1], words, words);
            usleep(500);
            continue;
        }
        for (int number = 3; number < 8; number++)
            lost += dup2(1, number) != number || fcntl(number, F_GETFD) < 0 || close(number);
    }
    pthread_join(other, 0);
    return lost > 0;
}
