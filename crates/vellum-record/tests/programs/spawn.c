/* Starts a program by posix_spawn, and then one by fork, and writes its memory after each. */
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(void) {
    size_t bytes = 4 << 20;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *words[] = {"/bin/true", 0};
    pid_t child;
    memset(memory, 1, bytes);
    if (posix_spawn(&child, words[0], 0, 0, words, environ) || waitpid(child, 0, 0) != child)
        return 1;
    memset(memory, 2, bytes);
    child = fork();
    if (child == 0)
        execve(words[0], words, environ);
    if (waitpid(child, 0, 0) != child)
        return 2;
    memset(memory, 3, bytes);
    return memory[bytes / 2] != 3;
}
