# 900,000 lines that begin with a random key: a linear congruential generator, so that everyone gets the same lines.
BEGIN {
    x = 1
    for (i = 0; i < 900000; i++) {
        x = (x * 1103515245 + 12345) % 2147483648
        printf "%08x%08x customer %d region %d amount %d note %060d\n", x, i, i % 50021, i % 97, x % 9973, i
    }
}
