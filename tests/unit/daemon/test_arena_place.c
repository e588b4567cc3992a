/* Where the memory of arenas comes from: files that are new, found again, somebody else's, or no arenas at all. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "daemon/arena_place.h"

enum { CACHE_BYTES = 256 * 1024 };

static char folder[] = "/tmp/corbel-place-XXXXXX", path[64];

static void begin(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/arena", folder);
}

static void end(void)
{
    unlink(path);
    cr_expect_eq(rmdir(folder), 0);
}

static off_t size_of(const char *of)
{
    struct stat st;
    return stat(of, &st) == 0 ? st.st_size : -1;
}

static void put(const char *text, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, text, len) == (ssize_t)len);
    close(fd);
}

TestSuite(arena_place, .init = begin, .fini = end);

Test(arena_place, a_file_is_made_whole_and_found_again)
{
    char why[256];
    struct arena_identity identity = {.arena.bytes = {7}, .name = "r/v"};
    uint64_t bytes = arena_bytes(CACHE_BYTES);
    cr_expect_not(arena_place_exists(path));
    cr_expect_null(arena_place_file(path, 0, false, why, sizeof why), "it must be there");
    struct arena_place *place = arena_place_file(path, bytes, false, why, sizeof why);
    cr_assert_not_null(place, "%s", why);
    cr_expect_eq(place->verdict, ARENA_NONE);
    cr_expect_str_eq(arena_place_outlives(place), "a restart of corbeld");
    cr_expect_str_eq(arena_place_where(place), path);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_expect(st.st_size == (off_t)bytes && (uint64_t)st.st_blocks * 512 >= bytes, "not sparse");
    cr_expect_eq(st.st_mode & 0777, 0600);
    struct arena *arena = arena_create(&place->memory, &identity, CACHE_BYTES);
    arena_close(arena);
    arena_place_free(place, false);

    cr_expect(arena_place_exists(path));
    place = arena_place_file(path, 0, false, why, sizeof why);
    cr_assert_not_null(place, "%s", why);
    cr_expect_eq(place->verdict, ARENA_CLEAN);
    cr_expect(uuid_equal(&place->report.identity.arena, &identity.arena));
    cr_expect_str_eq(place->report.identity.name, "r/v");
    cr_expect(arena_place_clear(place, 2 * bytes, why, sizeof why), "%s", why);
    arena_place_look(place);
    cr_expect(place->verdict == ARENA_NONE && place->memory.bytes == 2 * bytes && size_of(path) == (off_t)(2 * bytes));
    arena_place_free(place, true);
}

Test(arena_place, what_is_no_arena_is_left_as_it_is)
{
    char why[256], zeroes[16384] = {0};
    put("a letter", 8);
    cr_expect_null(arena_place_file(path, arena_bytes(CACHE_BYTES), false, why, sizeof why));
    cr_expect_not_null(strstr(why, "holds something that is no arena"), "%s", why);
    cr_expect_eq(size_of(path), 8);
    put(zeroes, sizeof zeroes); /* that a start left, which was cut off */
    struct arena_place *place = arena_place_file(path, arena_bytes(CACHE_BYTES), false, why, sizeof why);
    cr_assert_not_null(place, "%s", why);
    arena_place_free(place, false);
    cr_expect_null(arena_place_file(folder, 4096, false, why, sizeof why), "a folder");
    unlink(path);
    cr_assert_eq(symlink("/dev/zero", path), 0);
    cr_expect_null(arena_place_file(path, 4096, false, why, sizeof why), "a link");
}

Test(arena_place, a_file_in_use_and_room_that_is_not_there_are_told)
{
    char why[256];
    put("", 0);
    int other = open(path, O_RDWR);
    cr_assert(other >= 0 && flock(other, LOCK_EX) == 0);
    cr_expect_null(arena_place_file(path, 4096, false, why, sizeof why));
    cr_expect_not_null(strstr(why, "in use by another process"), "%s", why);
    close(other);
    cr_expect_null(arena_place_file(path, 1ull << 50, false, why, sizeof why));
    cr_expect_not_null(strstr(why, "for the arena cannot be had"), "%s", why);
    cr_expect_eq(size_of(path), 0);
}

Test(arena_place, persistent_memory_is_not_believed_in_where_there_is_none)
{
    char why[256];
    cr_expect_null(arena_place_file(path, arena_bytes(CACHE_BYTES), true, why, sizeof why));
    cr_expect_not_null(strstr(why, "is not on persistent memory"), "%s", why);
    cr_expect_eq(size_of(path), 0);
}

Test(arena_place, memory_that_nobody_keeps_outlives_nothing)
{
    char why[256];
    unsetenv("NOTIFY_SOCKET");
    struct arena_place *place = arena_place_memory(arena_bytes(CACHE_BYTES), why, sizeof why);
    cr_assert_not_null(place, "%s", why);
    cr_expect_str_eq(arena_place_outlives(place), "nothing");
    cr_expect_str_eq(arena_place_where(place), "memory");
    cr_expect_eq(((const char *)place->memory.base)[place->memory.bytes - 1], 0);
    arena_place_free(place, true);
}
