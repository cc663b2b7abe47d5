/* Breadth-first search through a random graph: edges in one array, vertices in three others. */
#include "truth.h"

enum { DEGREE = 8 };

int main(void) {
    size_t vertices = sized((size_t)2 << 20), edges = vertices * DEGREE;
    uint32_t *first = new_memory((vertices + 1) * sizeof *first);
    uint32_t *edge = new_memory(edges * sizeof *edge);
    uint32_t *level = new_memory(vertices * sizeof *level);
    uint32_t *queue = new_memory(vertices * sizeof *queue);
    uint64_t state = 7, sum = 0;
    for (size_t v = 0; v <= vertices; v++)
        first[v] = v * DEGREE;
    for (size_t e = 0; e < edges; e++)
        edge[e] = next_random(&state) % vertices;
    size_t head = 0, tail = 0;
    queue[tail++] = 0;
    level[0] = 1;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t e = first[v]; e < first[v + 1]; e++) {
            uint32_t to = edge[e];
            if (!level[to]) {
                level[to] = level[v] + 1;
                queue[tail++] = to;
            }
        }
        sum += level[v];
    }
    return done(sum);
}
