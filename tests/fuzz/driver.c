/*
 * A fuzzing driver for any compiler: runs a fuzzer's corpus, then mutations of it until the time is up.
 *
 *     fuzz_NAME [-seconds N] [-seed S] [CORPUS_DIR | FILE]...
 *
 * A fuzzer is one function, LLVMFuzzerTestOneInput(), as libFuzzer has it; so the same file also links with that. Each
 * input of the corpus is run as it is; then, for N seconds, copies with a few random changes. The order of inputs
 * depends on the seed and the corpus only: the files are read in order of their names. When an input kills the process
 * its bytes are left in ./crash-NAME-HASH, which can be given as FILE. `make fuzz` runs what was left so first, until
 * it is mended; then the file belongs into the corpus, so that it is run for ever.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { INPUT_MAX = 512 * 1024, CORPUS_MAX = 4096, MUTATIONS_MAX = 6 };

struct input {
    uint8_t *bytes;
    size_t len;
};

static struct input corpus[CORPUS_MAX];
static size_t corpus_count;
static uint8_t current[INPUT_MAX]; /* what is being mutated and run */
static size_t current_len;
static uint64_t seed = 1;
static char crash_path[128]; /* without the hash; room for it is left, and for the end */

static uint64_t next_random(void) /* splitmix64 */
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static size_t below(size_t n) /* 0 .. n-1; 0 if n is 0 */
{
    return n == 0 ? 0 : (size_t)(next_random() % n);
}

/* --- mutations: each changes current[0..current_len) --- */

static void flip_bit(void)
{
    if (current_len > 0)
        current[below(current_len)] ^= (uint8_t)(1u << below(8));
}

static void set_byte(void)
{
    if (current_len > 0)
        current[below(current_len)] = (uint8_t)next_random();
}

/* Numbers at which parsers break, in any width and byte order. */
static void set_number(void)
{
    static const uint64_t numbers[] = {0,          1,           0x7f,           0x80,      0xff,       0x100,
                                       0x7fff,     0x8000,      0xffff,         0x10000,   0xffffff,   0x7fffffff,
                                       0x80000000, 0xffffffffu, 0x100000000ull, INT64_MAX, 1ull << 63, UINT64_MAX};
    size_t width = (size_t)1 << below(4);
    if (current_len < width)
        return;
    uint64_t value = numbers[below(sizeof numbers / sizeof numbers[0])];
    bool big_endian = next_random() & 1;
    uint8_t *at = current + below(current_len - width + 1);
    for (size_t i = 0; i < width; i++)
        at[big_endian ? width - 1 - i : i] = (uint8_t)(value >> (8 * i));
}

static void insert_bytes(const uint8_t *from, size_t len)
{
    size_t at = below(current_len + 1);
    if (len > INPUT_MAX - current_len)
        len = INPUT_MAX - current_len;
    memmove(current + at + len, current + at, current_len - at);
    memcpy(current + at, from, len);
    current_len += len;
}

static void insert_noise(void)
{
    uint8_t noise[16];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)next_random();
    insert_bytes(noise, 1 + below(sizeof noise));
}

static void delete_bytes(void)
{
    size_t at = below(current_len), len = 1 + below(32);
    if (len > current_len - at)
        len = current_len - at;
    memmove(current + at, current + at + len, current_len - at - len);
    current_len -= len;
}

static void truncate_input(void)
{
    current_len = below(current_len + 1);
}

/* A piece of this input repeated, or of another input brought in. */
static void insert_piece(const uint8_t *from, size_t from_len)
{
    uint8_t piece[256];
    size_t at = below(from_len), len = 1 + below(sizeof piece);
    if (len > from_len - at)
        len = from_len - at;
    memcpy(piece, from + at, len);
    insert_bytes(piece, len);
}

static void repeat_piece(void)
{
    insert_piece(current, current_len);
}

static void splice_piece(void)
{
    if (corpus_count > 0) {
        const struct input *other = &corpus[below(corpus_count)];
        insert_piece(other->bytes, other->len);
    }
}

/* Another digit in a number written as text. */
static void change_digit(void)
{
    size_t start = below(current_len);
    for (size_t i = start; i < current_len; i++) {
        if (current[i] >= '0' && current[i] <= '9') {
            current[i] = (uint8_t)('0' + below(10));
            return;
        }
    }
}

static void (*const mutations[])(void) = {flip_bit,       set_byte,     set_number,   insert_noise, delete_bytes,
                                          truncate_input, repeat_piece, splice_piece, change_digit};

static void mutate(void)
{
    current_len = 0;
    if (corpus_count > 0) {
        const struct input *base = &corpus[below(corpus_count)];
        memcpy(current, base->bytes, base->len);
        current_len = base->len;
    }
    for (size_t n = 1 + below(MUTATIONS_MAX); n > 0; n--)
        mutations[below(sizeof mutations / sizeof mutations[0])]();
}

/* --- running --- */

/* Another name for other bytes: FNV-1a. */
static void crash_path_end(void)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < current_len; i++)
        hash = (hash ^ current[i]) * 16777619u;
    char *end = crash_path + strlen(crash_path);
    for (int shift = 28; shift >= 0; shift -= 4)
        *end++ = "0123456789abcdef"[hash >> shift & 15];
}

static void on_death(int signal_number)
{
    crash_path_end();
    int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0 && write(fd, current, current_len) == (ssize_t)current_len) {
        static const char note[] = "fuzz: the input that did it was left in ";
        if (write(2, note, sizeof note - 1) < 0 || write(2, crash_path, strlen(crash_path)) < 0 ||
            write(2, "\n", 1) < 0)
            _exit(1);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* The fuzzer gets a heap copy of exactly this length, so that the address sanitizer sees a read past its end. */
static void run_current(void)
{
    uint8_t *copy = malloc(current_len > 0 ? current_len : 1);
    if (copy == NULL)
        exit(1);
    memcpy(copy, current, current_len);
    LLVMFuzzerTestOneInput(copy, current_len);
    free(copy);
}

static bool load_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return false;
    }
    size_t len = fread(current, 1, sizeof current, file);
    fclose(file);
    struct input *input = &corpus[corpus_count];
    input->bytes = malloc(len > 0 ? len : 1);
    if (input->bytes == NULL || corpus_count + 1 >= CORPUS_MAX)
        exit(1);
    memcpy(input->bytes, current, len);
    input->len = len;
    corpus_count++;
    return true;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool load(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        return false;
    }
    if (!S_ISDIR(st.st_mode))
        return load_file(path);
    struct dirent **entries;
    int count = scandir(path, &entries, is_visible, alphasort);
    bool ok = count >= 0;
    for (int i = 0; i < count; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        ok = load_file(name) && ok;
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return ok;
}

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int usage(const char *name)
{
    fprintf(stderr, "usage: %s [-seconds N] [-seed S] [CORPUS_DIR | FILE]...\n", name);
    return 2;
}

static uint64_t run_all(double seconds)
{
    uint64_t runs = 0;
    for (size_t i = 0; i < corpus_count; i++, runs++) {
        memcpy(current, corpus[i].bytes, corpus[i].len);
        current_len = corpus[i].len;
        run_current();
    }
    for (double end = now_s() + seconds; seconds > 0 && now_s() < end; runs++) {
        mutate();
        run_current();
    }
    return runs;
}

int main(int argc, char **argv)
{
    double seconds = 0;
    const char *slash = strrchr(argv[0], '/'), *name = slash != NULL ? slash + 1 : argv[0];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-seconds") == 0 && i + 1 < argc)
            seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "-seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 0);
        else if (argv[i][0] == '-')
            return usage(name);
        else if (!load(argv[i]))
            return 1;
    }
    snprintf(crash_path, sizeof crash_path - 9, "crash-%s-", name);
    signal(SIGABRT, on_death);
    signal(SIGSEGV, on_death);
    uint64_t first_seed = seed, runs = run_all(seconds);
    printf("%s: %llu inputs, %zu of them the corpus, seed %llu: nothing found\n", name, (unsigned long long)runs,
           corpus_count, (unsigned long long)first_seed);
    for (size_t i = 0; i < corpus_count; i++)
        free(corpus[i].bytes);
    return 0;
}
