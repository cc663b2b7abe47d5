/* Files by mapping and by call, in the directory given. tests/files.rs knows the numbers. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

static char buffer[16384];

static int again(const char *name, int flags)
{
    return open(name, flags, 0600);
}

int main(int argc, char **argv)
{
    if (argc < 2 || chdir(argv[1]))
        return 1;
    long ok = 0;
    struct iovec v[2] = {{buffer, 100}, {buffer + 4096, 50}};

    int a = again("data.bin", O_RDWR | O_CREAT | O_TRUNC);
    ok += write(a, buffer, 10000) == 10000;
    ok += pwrite(a, buffer, 100, 20000) == 100;
    int b = again("data.bin", O_RDONLY);
    char *shared = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, a, 4096);
    char *private = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, b, 0);
    shared[0] = private[0] + 1;
    ok += read(b, buffer, 300) == 300;
    ok += read(b, buffer, 400) == 400;
    ok += pread(b, buffer, 64, 9000) == 64;
    ok += readv(b, v, 2) == 150;
    ok += preadv(b, v, 2, 5000) == 150;
    ok += preadv2(b, v, 1, -1, 0) == 100;
    ok += writev(a, v, 2) == 150;
    ok += pwritev(a, v, 2, 12000) == 150;
    /* At the end: nothing is read. */
    ok += pread(b, buffer, 64, 1 << 20) == 0;
    msync(shared, 8192, MS_SYNC);
    msync(shared, 8192, MS_ASYNC);
    msync(private, 4096, MS_SYNC);
    fsync(a);
    fdatasync(b);
    sync_file_range(a, 4096, 100, SYNC_FILE_RANGE_WRITE);
    sync_file_range(a, 8192, 0, SYNC_FILE_RANGE_WRITE);
    posix_fadvise(a, 8192, 4096, POSIX_FADV_DONTNEED);
    posix_fadvise(b, 0, 0, POSIX_FADV_SEQUENTIAL);
    readahead(b, 100, 5000);
    shared = mremap(shared, 8192, 65536, MREMAP_MAYMOVE);
    ftruncate(a, 5000);
    truncate("data.bin", 6000);
    int end = again("data.bin", O_WRONLY | O_APPEND);
    ok += write(end, buffer, 10) == 10;
    ok += pwrite(end, buffer, 20, 0) == 20;

    int copy = again("copy.bin", O_RDWR | O_CREAT | O_TRUNC);
    off_t from = 1000, to = 4096;
    ok += sendfile(copy, b, &from, 500) == 500;
    ok += copy_file_range(b, &from, copy, &to, 200, 0) == 200;
    int ends[2];
    ok += pipe(ends) == 0;
    ok += splice(b, &from, ends[1], 0, 64, 0) == 64;
    ok += splice(ends[0], 0, copy, 0, 64, 0) == 64;
    ok += fallocate(copy, 0, 0, 9000) == 0;
    close(copy);
    unlink("copy.bin");
    /* Most file systems give the inode away again; the time of birth tells the two apart. */
    usleep(50000);
    copy = again("copy.bin", O_RDWR | O_CREAT | O_EXCL);
    ok += write(copy, buffer, 7) == 7;

    int memory = memfd_create("scratch", 0);
    ftruncate(memory, 12288);
    char *m = mmap(0, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    m[4096] = 1;
    ok += write(memory, buffer, 5) == 5;

    again("data.bin", O_RDWR | O_TRUNC);

    /* No files of a page cache. */
    ok += write(ends[1], buffer, 9) == 9;
    ok += read(ends[0], buffer, 9) == 9;
    ok += read(again("/dev/zero", O_RDONLY), buffer, 9) == 9;
    ok += read(again("/proc/self/status", O_RDONLY), buffer, 9) == 9;
    ok += read(again("/proc/self/maps", O_RDONLY), buffer, 9) == 9;
    return ok == 26 ? 0 : 2;
}
