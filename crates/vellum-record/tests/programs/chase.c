/* The same memory by strides, through its pointers, through an index array, and behind branches by chance. Each phase ends with a store to its own
   page of `marks`, so that a trace can be cut where phases meet. */
#include <sys/mman.h>

enum { NODES = 1 << 14, PAGE = 4096 };
struct node { struct node *next; long value; };

__attribute__((noinline)) static long stride(const struct node *n)
{
    long sum = 0;
    for (int i = 0; i < NODES; i++)
        sum += n[i].value;
    return sum;
}

__attribute__((noinline)) static long chase(const struct node *n)
{
    long sum = 0;
    for (; n; n = n->next)
        sum += n->value;
    return sum;
}

__attribute__((noinline)) static long gather(const struct node *n, const int *at)
{
    long sum = 0;
    for (int i = 0; i < NODES; i++)
        sum += n[at[i]].value;
    return sum;
}

__attribute__((noinline)) static long choose(const volatile struct node *n, const int *at)
{
    long sum = 0;
    for (int i = 0; i < NODES; i++) {
        unsigned mixed = at[i] * 2654435761u;
        if ((mixed ^ mixed >> 15) * 2246822519u >> 31)
            sum += n[i].value;
    }
    return sum;
}

static void *fresh(size_t length)
{
    return mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(void)
{
    volatile long *marks = fresh(4 * PAGE);
    struct node *n = fresh(NODES * sizeof *n);
    int *at = fresh(NODES * sizeof *at);
    for (int i = 0; i < NODES; i++) {
        at[i] = i * 7919 % NODES;
        n[i].value = i;
    }
    for (int i = 0; i + 1 < NODES; i++)
        n[at[i]].next = &n[at[i + 1]];
    marks[0] = stride(n);
    marks[PAGE / sizeof *marks] = chase(n + at[0]);
    marks[2 * PAGE / sizeof *marks] = gather(n, at);
    marks[3 * PAGE / sizeof *marks] = choose(n, at);
    return marks[0] != marks[PAGE / sizeof *marks];
}
