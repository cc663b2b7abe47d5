# A key-value store in a dictionary: filled, then read and updated in an order that has nothing to do with memory.
N = 500_000
keys = ["user:%d" % (i * 2654435761 % 4294967296) for i in range(N)]
store = dict(zip(keys, range(N)))
order = [keys[i * 7919 % N] for i in range(N)]
found = 0
for _ in range(4):
    found += sum(map(store.__getitem__, order))
    store.update(zip(order, range(N)))
print(len(store), found)
