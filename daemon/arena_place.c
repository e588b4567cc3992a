/* See daemon/arena_place.h. */
#include "daemon/arena_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/inherited.h"

#define STORE_PREFIX "corbel-arena-"
enum { STORE_WAIT_US = 5000000, LOCK_TRIES = 30, LOCK_WAIT_NS = 100000000 }; /* a killed daemon may still hold it */

/* --- mapping --- */

/* Until the bytes have left the processor's caches for memory that power does not take with it. */
static void persist(struct arena_memory *memory, uint64_t off, uint64_t len)
{
#if defined(__x86_64__)
    enum { LINE = 64 };
    const char *at = (const char *)memory->base + off / LINE * LINE, *end = (const char *)memory->base + off + len;
    for (; at < end; at += LINE)
        __builtin_ia32_clflush(at);
    __builtin_ia32_sfence();
#else
    uint64_t from = off / PAGE_BYTES * PAGE_BYTES;
    msync((char *)memory->base + from, off + len - from, MS_SYNC);
#endif
}

static bool place_map(struct arena_place *place, uint64_t bytes, char *why, size_t why_len)
{
    int flags = place->durable ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, place->fd, 0);
    if (base == MAP_FAILED && place->durable && errno == EOPNOTSUPP) {
        text_format(why, why_len, "%s is not on persistent memory: its file system cannot map it with MAP_SYNC",
                    place->path);
        return false;
    }
    if (base == MAP_FAILED) {
        text_format(why, why_len, "the arena cannot be mapped: %s", strerror(errno));
        return false;
    }
    place->memory.base = base;
    place->memory.bytes = bytes;
    place->memory.persist = place->durable ? persist : NULL;
    return true;
}

static bool place_fill(struct arena_place *place, uint64_t bytes, char *why, size_t why_len)
{
    int error = ftruncate(place->fd, 0) != 0 ? errno : posix_fallocate(place->fd, 0, (off_t)bytes);
    if (error == 0 && place_map(place, bytes, why, why_len))
        return true;
    if (error != 0)
        text_format(why, why_len, "%s: %llu MiB for the arena cannot be had: %s",
                    place->path[0] != '\0' ? place->path : "memory", (unsigned long long)(bytes >> 20),
                    strerror(error));
    if (ftruncate(place->fd, 0) != 0)
        log_warn("%s cannot be cut back: %s", place->path, strerror(errno));
    return false;
}

static struct arena_place *place_new(const char *path, int fd)
{
    struct arena_place *place = calloc(1, sizeof *place);
    ASSERT(place != NULL);
    place->fd = fd;
    text_format(place->path, sizeof place->path, "%s", path);
    return place;
}

/* --- memory --- */

/* Nothing may be promised before the service manager has it: what comes from a process that is gone is not taken. */
static void store(struct arena_place *place, unsigned long long number)
{
    char name[sizeof place->stored_as], message[128];
    text_format(name, sizeof name, STORE_PREFIX "%016llx", number);
    text_format(message, sizeof message, "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
    const char *room = getenv("FDSTORE");
    if (room != NULL && strcmp(room, "0") == 0)
        return;
    if (sd_pid_notify_with_fds(0, 0, message, &place->fd, 1) <= 0)
        return;
    int error = sd_notify_barrier(0, STORE_WAIT_US);
    if (error > 0)
        text_format(place->stored_as, sizeof place->stored_as, "%s", name);
    else
        log_warn("the service manager does not say whether it keeps an arena: %s", strerror(-error));
}

static void unstore(struct arena_place *place)
{
    char message[128];
    text_format(message, sizeof message, "FDSTOREREMOVE=1\nFDNAME=%s", place->stored_as);
    sd_notify(0, message);
}

struct arena_place *arena_place_memory(uint64_t bytes, char *why, size_t why_len)
{
    struct timespec now;
    int fd = memfd_create("corbel arena", MFD_CLOEXEC);
    if (fd < 0) {
        text_format(why, why_len, "there is no memory for the arena: %s", strerror(errno));
        return NULL;
    }
    struct arena_place *place = place_new("", fd);
    if (!place_fill(place, bytes, why, why_len)) {
        arena_place_free(place, true);
        return NULL;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    store(place, (unsigned long long)now.tv_sec << 30 | (unsigned long)now.tv_nsec);
    return place;
}

static void inherit(struct arena_places *list, int fd, const char *name)
{
    char why[256];
    struct stat st;
    struct arena_place *place = place_new("", fd);
    text_format(place->stored_as, sizeof place->stored_as, "%s", name);
    place->claimed = true; /* until somebody has looked */
    if (fstat(fd, &st) == 0 && st.st_size > 0 && place_map(place, (uint64_t)st.st_size, why, sizeof why)) {
        arena_place_look(place);
        TAILQ_INSERT_TAIL(list, place, link);
        return;
    }
    log_error("what the service manager kept as \"%s\" is no arena", name);
    arena_place_free(place, true);
}

void arena_places_inherit(struct arena_places *list)
{
    char name[sizeof((struct arena_place *)0)->stored_as];
    int fd;
    while ((fd = inherited_take(STORE_PREFIX, name, sizeof name)) >= 0)
        inherit(list, fd, name);
}

/* --- files --- */

static bool lock(int fd)
{
    for (unsigned tries = 0; tries < LOCK_TRIES; tries++) {
        struct timespec wait = {0, LOCK_WAIT_NS};
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        nanosleep(&wait, NULL);
    }
    return false;
}

static bool is_zero(const struct arena_memory *memory)
{
    const char *bytes = memory->base;
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, memory->bytes - 1) == 0;
}

/* A page that the file system has no room for would end us when it is touched. */
static bool place_back(struct arena_place *place, uint64_t bytes, char *why, size_t why_len)
{
    int error = posix_fallocate(place->fd, 0, (off_t)bytes);
    if (error != 0)
        text_format(why, why_len, "%s: there is no room for all of its %llu MiB: %s", place->path,
                    (unsigned long long)(bytes >> 20), strerror(error));
    return error == 0;
}

static bool place_open(struct arena_place *place, uint64_t bytes, char *why, size_t why_len)
{
    struct stat st;
    if (fstat(place->fd, &st) != 0 || !S_ISREG(st.st_mode))
        text_format(why, why_len, "%s is no regular file", place->path);
    else if (!lock(place->fd))
        text_format(why, why_len, "%s is in use by another process", place->path);
    else if (st.st_size == 0)
        return bytes > 0 && place_fill(place, bytes, why, why_len);
    else if (place_back(place, (uint64_t)st.st_size, why, why_len) &&
             place_map(place, (uint64_t)st.st_size, why, why_len)) {
        arena_place_look(place);
        if (place->verdict != ARENA_NONE || is_zero(&place->memory))
            return true;
        text_format(why, why_len, "%s holds something that is no arena: it is not overwritten", place->path);
    }
    return false;
}

struct arena_place *arena_place_file(const char *path, uint64_t bytes, bool durable, char *why, size_t why_len)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (bytes > 0 ? O_CREAT : 0), 0600);
    if (fd < 0) {
        text_format(why, why_len, "%s: %s", path, strerror(errno));
        return NULL;
    }
    struct arena_place *place = place_new(path, fd);
    place->durable = durable;
    text_format(why, why_len, "%s is empty", path);
    if (place_open(place, bytes, why, why_len))
        return place;
    arena_place_free(place, false);
    return NULL;
}

bool arena_place_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

/* --- all --- */

void arena_place_look(struct arena_place *place)
{
    place->verdict = arena_look(place->memory.base, place->memory.bytes, &place->report);
}

bool arena_place_clear(struct arena_place *place, uint64_t bytes, char *why, size_t why_len)
{
    if (place->memory.base != NULL)
        munmap(place->memory.base, place->memory.bytes);
    place->memory.base = NULL;
    place->verdict = ARENA_NONE;
    place->report = (struct arena_report){0};
    return place_fill(place, bytes, why, why_len);
}

void arena_place_free(struct arena_place *place, bool forget)
{
    if (forget && place->stored_as[0] != '\0')
        unstore(place);
    if (place->memory.base != NULL)
        munmap(place->memory.base, place->memory.bytes);
    close(place->fd);
    free(place);
}

const char *arena_place_where(const struct arena_place *place)
{
    return place->path[0] != '\0' ? place->path : place->stored_as[0] != '\0' ? place->stored_as : "memory";
}

const char *arena_place_outlives(const struct arena_place *place)
{
    if (place->durable)
        return "a power failure";
    return place->path[0] != '\0' || place->stored_as[0] != '\0' ? "a restart of corbeld" : "nothing";
}
