/* A child holds what memory was, as a database does for a snapshot; the parent writes every page
 * of it. */
#include "truth.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    size_t bytes = sized(128 * MIB);
    char *memory = new_memory(bytes);
    memset(memory, 1, bytes);
    for (int turn = 0; turn < 2; turn++) {
        int end[2];
        char none;
        if (pipe(end))
            fail("pipe");
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (child == 0) {
            /* Until the parent closes its end. */
            close(end[1]);
            _exit(read(end[0], &none, 1) != 0);
        }
        close(end[0]);
        for (size_t at = 0; at < bytes; at += PAGE)
            memory[at + 64 * (at / PAGE % 64)] += turn;
        close(end[1]);
        if (waitpid(child, NULL, 0) != child)
            fail("waitpid");
    }
    return done(memory[bytes / 2]);
}
