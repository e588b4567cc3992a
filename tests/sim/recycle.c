/*
 * Mappings that are used again: an array that is opened takes some 16 MiB of pages, and a seed opens several. Clearing
 * and counting them would be most of what a run costs. What is handed out again holds old bytes, as any pool does; a
 * run that depended on them would not be the same twice. Linked with --wrap=mmap,--wrap=munmap; not where a sanitizer
 * looks after the memory.
 */
#include <sys/mman.h>
#include <sys/types.h>

void *__real_mmap(void *at, size_t len, int protection, int flags, int fd, off_t off);
int __real_munmap(void *at, size_t len);
void *__wrap_mmap(void *at, size_t len, int protection, int flags, int fd, off_t off);
int __wrap_munmap(void *at, size_t len);

static struct {
    void *at;
    size_t len;
} kept[16];

void *__wrap_mmap(void *at, size_t len, int protection, int flags, int fd, off_t off)
{
    for (unsigned i = 0; at == 0 && (flags & MAP_PRIVATE) && fd < 0 && i < sizeof kept / sizeof *kept; i++)
        if (kept[i].at != 0 && kept[i].len == len) {
            at = kept[i].at;
            kept[i].at = 0;
            return at;
        }
    return __real_mmap(at, len, protection, flags, fd, off);
}

int __wrap_munmap(void *at, size_t len)
{
    for (unsigned i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i].at == 0) {
            kept[i].at = at;
            kept[i].len = len;
            return 0;
        }
    return __real_munmap(at, len);
}
