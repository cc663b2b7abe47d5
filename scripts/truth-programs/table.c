/* A hash table with linear probing: inserted into, then asked for keys that it has and has not. */
#include "truth.h"

struct slot {
    uint64_t key, value;
};

static size_t mask;

static struct slot *find(struct slot *slots, uint64_t key) {
    size_t at = (key * 0x9e3779b97f4a7c15u) >> 20 & mask;
    while (slots[at].key && slots[at].key != key)
        at = (at + 1) & mask;
    return &slots[at];
}

int main(void) {
    size_t capacity = sized((size_t)8 << 20), keys = capacity * 2 / 5, lookups = sized(6000000);
    mask = capacity - 1;
    struct slot *slots = new_memory(capacity * sizeof *slots);
    uint64_t state = 88172645463325252u, sum = 0;
    for (size_t i = 0; i < keys; i++) {
        uint64_t key = 1 + next_random(&state) % (keys * 2);
        struct slot *slot = find(slots, key);
        slot->key = key;
        slot->value += i;
    }
    for (size_t i = 0; i < lookups; i++)
        sum += find(slots, 1 + next_random(&state) % (keys * 2))->value;
    return done(sum);
}
