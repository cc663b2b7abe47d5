/* Counts up one byte in each of 2,000 fresh pages, without having read them: one fault a page, as a write. */
#include <sys/mman.h>

int main(void) {
    unsigned char *p = mmap(0, 2000 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 1;
    for (long i = 0; i < 2000; i++) __asm__ volatile("addb $1, (%0)" : : "r"(p + i * 4096) : "memory");
    for (long i = 0; i < 2000; i++) __asm__ volatile("lock addb $1, (%0)" : : "r"(p + i * 4096 + 64) : "memory");
    return p[4096] != 1;
}
