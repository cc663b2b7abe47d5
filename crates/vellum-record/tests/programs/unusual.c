/* What few programs do: `close` all descriptors, `peek` at a message that is longer than the buffer,
 * go on after an `exec` of a file that is no program. Then 4 MiB are written. The code that it ends
 * with has more than a byte. */
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static char message[60000];

static char *memory(long bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(int argc, char **argv) {
    int ends[2];
    char *words[] = {argv[0], 0};
    if (argc > 2)
        execve(argv[2], words, words);
    if (strcmp(argv[1], "close") == 0)
        for (int number = 3; number < 4096; number++)
            close(number);
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
