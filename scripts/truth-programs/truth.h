/* What the programs of scripts/truth share: memory in the pages that TRUTH_PAGES asks for, random
 * numbers, and sizes. TRUTH_SMALL makes every program small: for a test that it runs at all. */
#ifndef TRUTH_H
#define TRUTH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)
#define HUGE_PAGE (2 * MIB)
#define PAGE ((size_t)4096)

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

/* A count or a size, and what is left of it in a small run. */
static inline size_t sized(size_t full) {
    return getenv("TRUTH_SMALL") ? full / 64 : full;
}

/* What is done with new memory before its first use: nothing, where the variable is not set. */
static inline void choose_pages(void *at, size_t bytes) {
    const char *pages = getenv("TRUTH_PAGES");
    if (!pages)
        return;
    int advice = !strcmp(pages, "always") ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    if (madvise(at, bytes, advice))
        fail("madvise");
}

/* New memory that begins at a multiple of 2 MiB. Each mapping has addresses of its own, so that
 * nothing has to be cut off and none grows into its neighbour. */
static inline void *new_memory(size_t bytes) {
    static uintptr_t next = (uintptr_t)1 << 45;
    void *hint = (void *)next;
    next += (bytes + 2 * HUGE_PAGE) & ~(HUGE_PAGE - 1);
    void *at = mmap(hint, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        fail("mmap");
    if ((uintptr_t)at % HUGE_PAGE) {
        fputs("the system gave memory that does not begin at a multiple of 2 MiB\n", stderr);
        exit(1);
    }
    choose_pages(at, bytes);
    return at;
}

/* xorshift64*: the same numbers in every run. */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545f4914f6cdd1du;
}

/* Takes the result of a program: without a use of it the compiler would leave the work out. */
static inline int done(uint64_t result) {
    __asm__ volatile("" : : "r"(result));
    return 0;
}

#endif
