/* Writes a tree as a tar archive into the caller's buffer: what ``archive_out.py`` does, many files in one call.
 *
 * Commands may change the tree meanwhile: everything is opened below the descriptor of its own directory, never through
 * a link, never waiting, and looked at again once it is open. Headers that the old fields cannot hold are left to the
 * caller. Memory: the path, and a descriptor and a piece of each directory on the way down.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 512
#define SHORT_NAME 100
#define MAX_OCTAL ((UINT64_C(1) << 33) - 1)
#define ENTRIES_BYTES (16 * 1024)
#define TARGET_BYTES 4096
#define SAFE (O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

enum status { MORE, END, HEADER, TOO_MANY, TOO_DEEP, TOO_LATE, TOO_LARGE, FAILED };

struct record { /* linux_dirent64 */
    uint64_t inode, position;
    uint16_t length;
    uint8_t type;
    char name[];
};

struct level {
    int fd;
    size_t path_length; /* of this directory, with the slash behind it */
    size_t at, filled;
    char entries[ENTRIES_BYTES] __attribute__((aligned(8)));
};

/* The caller reads these. With HEADER: the entry whose header the caller writes before it calls again. */
struct entry {
    uint64_t skipped, size_bytes;
    int64_t modified_seconds;
    const char *path, *target;
    uint64_t path_length, target_length;
    int32_t type, mode, status, number;
};

struct archive {
    struct entry entry;
    uint64_t entries_left, bytes_left, seen;
    int64_t until_ns; /* CLOCK_MONOTONIC */
    size_t max_depth, depth;
    struct level **levels;
    char *path;
    size_t path_capacity;
    int file; /* -1: none */
    uint64_t content_left, zeros_left;
    char target[TARGET_BYTES];
};

static bool is_late(const struct archive *a)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec > a->until_ns;
}

static void octal(unsigned char *field, size_t digits, uint64_t value)
{
    for (field[digits] = 0; digits--; value >>= 3)
        field[digits] = (unsigned char)('0' + (value & 7));
}

/* False: the fields are too small. */
static bool write_header(unsigned char *block, const struct entry *e)
{
    if (e->path_length > SHORT_NAME || e->target_length > SHORT_NAME || e->size_bytes > MAX_OCTAL)
        return false;
    uint64_t modified = e->modified_seconds < 0 ? 0 : (uint64_t)e->modified_seconds;
    memset(block, 0, BLOCK);
    memcpy(block, e->path, e->path_length);
    octal(block + 100, 7, (uint64_t)e->mode);
    octal(block + 108, 7, 0);
    octal(block + 116, 7, 0);
    octal(block + 124, 11, e->size_bytes);
    octal(block + 136, 11, modified > MAX_OCTAL ? MAX_OCTAL : modified);
    memset(block + 148, ' ', 8);
    block[156] = (unsigned char)e->type;
    memcpy(block + 157, e->target, e->target_length);
    memcpy(block + 257, "ustar\0" "00", 8);
    octal(block + 329, 7, 0);
    octal(block + 337, 7, 0);
    uint32_t sum = 0;
    for (size_t i = 0; i < BLOCK; i++)
        sum += block[i];
    octal(block + 148, 6, sum);
    return true;
}

static bool descend(struct archive *a, int fd, size_t path_length)
{
    struct level *level = malloc(sizeof *level);
    if (level == NULL) {
        close(fd);
        return false;
    }
    level->fd = fd;
    level->path_length = path_length;
    level->at = level->filled = 0;
    a->levels[a->depth++] = level;
    return true;
}

static void ascend(struct archive *a)
{
    struct level *level = a->levels[--a->depth];
    close(level->fd);
    free(level);
}

/* What ``errno`` says of an entry: one that vanished counts for nothing, what this machine lacks or breaks ends the walk,
 * the rest is closed to this user, leased, or of another kind by now. Always false. */
static bool left_out(struct archive *a, enum status *status)
{
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO)
        *status = FAILED;
    else
        a->entry.skipped += errno != ENOENT;
    return false;
}

/* The next entry of the innermost directory, NULL when there is none. */
static const struct record *next_record(struct archive *a, struct level *level, enum status *status)
{
    for (;;) {
        if (level->at == level->filled) {
            long filled = syscall(SYS_getdents64, level->fd, level->entries, ENTRIES_BYTES);
            if (filled < 0)
                left_out(a, status);
            if (filled <= 0)
                return NULL;
            level->at = 0;
            level->filled = (size_t)filled;
        }
        const struct record *record = (const struct record *)(level->entries + level->at);
        level->at += record->length;
        if (strcmp(record->name, ".") != 0 && strcmp(record->name, "..") != 0)
            return record;
    }
}

/* The path of an entry, with room for a slash behind it. */
static bool set_path(struct archive *a, const struct level *level, const char *name, size_t length)
{
    size_t wanted = level->path_length + length + 1;
    if (wanted > a->path_capacity) {
        char *path = realloc(a->path, 2 * wanted);
        if (path == NULL)
            return false;
        a->path = path;
        a->path_capacity = 2 * wanted;
    }
    memcpy(a->path + level->path_length, name, length);
    a->entry.path = a->path;
    a->entry.path_length = level->path_length + length;
    return true;
}

static void describe(struct entry *e, char type, const struct stat *found)
{
    e->type = type;
    e->mode = (int32_t)(found->st_mode & 0777);
    e->modified_seconds = found->st_mtim.tv_sec;
    e->size_bytes = type == '0' ? (uint64_t)found->st_size : 0;
    e->target_length = 0;
}

/* These describe the entry and return whether it belongs into the archive; ``status`` changes when the walk ends. */

static bool take_file(struct archive *a, int parent, const char *name, enum status *status)
{
    struct stat found;
    int fd = openat(parent, name, SAFE);
    if (fd < 0)
        return left_out(a, status);
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
        close(fd);
        a->entry.skipped++;
        return false;
    }
    describe(&a->entry, '0', &found);
    a->file = fd;
    if (a->entry.size_bytes > a->bytes_left) {
        *status = TOO_LARGE;
        return false;
    }
    a->bytes_left -= a->entry.size_bytes;
    a->content_left = a->entry.size_bytes;
    a->zeros_left = -a->entry.size_bytes % BLOCK;
    return true;
}

static bool take_link(struct archive *a, int parent, const char *name, enum status *status)
{
    struct stat found;
    ssize_t length = readlinkat(parent, name, a->target, TARGET_BYTES);
    if (length < 0 || fstatat(parent, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return left_out(a, status);
    describe(&a->entry, '2', &found);
    a->entry.target_length = (uint64_t)length;
    return true;
}

static bool take_directory(struct archive *a, int parent, const char *name, enum status *status)
{
    struct stat found;
    if (fstatat(parent, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return left_out(a, status);
    describe(&a->entry, '5', &found);
    a->path[a->entry.path_length++] = '/';
    if (a->depth > a->max_depth) {
        *status = TOO_DEEP;
        return false;
    }
    int fd = openat(parent, name, SAFE | O_DIRECTORY);
    if (fd < 0)
        left_out(a, status); /* the directory alone */
    else if (!descend(a, fd, a->entry.path_length))
        *status = FAILED;
    return *status == HEADER;
}

/* The next entry of the tree that belongs into the archive, HEADER; or why there is none. */
static enum status next_entry(struct archive *a)
{
    while (a->depth > 0) {
        struct level *level = a->levels[a->depth - 1];
        enum status status = HEADER;
        const struct record *record = next_record(a, level, &status);
        if (status != HEADER)
            return status;
        if (record == NULL) {
            ascend(a);
            continue;
        }
        if (a->entries_left-- == 0)
            return TOO_MANY;
        if (++a->seen % 64 == 0 && is_late(a))
            return TOO_LATE;
        if (!set_path(a, level, record->name, strlen(record->name)))
            return FAILED;
        mode_t kind = DTTOIF(record->type);
        struct stat found;
        if (record->type == DT_UNKNOWN) {
            if (fstatat(level->fd, record->name, &found, AT_SYMLINK_NOFOLLOW) != 0)
                continue;
            kind = found.st_mode & S_IFMT;
        }
        bool taken = false;
        if (S_ISREG(kind))
            taken = take_file(a, level->fd, record->name, &status);
        else if (S_ISLNK(kind))
            taken = take_link(a, level->fd, record->name, &status);
        else if (S_ISDIR(kind))
            taken = take_directory(a, level->fd, record->name, &status);
        else
            a->entry.skipped++;
        if (taken || status != HEADER)
            return status;
    }
    return END;
}

/* As much of the content, and of the zeros behind it, as there is room for. A file that shrank is filled up. */
static bool copy_content(struct archive *a, unsigned char *buffer, size_t size, size_t *used)
{
    while (a->content_left > 0 && *used < size) {
        size_t wanted = size - *used < a->content_left ? size - *used : (size_t)a->content_left;
        ssize_t got = read(a->file, buffer + *used, wanted);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return false;
        if (got == 0) {
            a->zeros_left += a->content_left;
            a->content_left = 0;
        }
        a->content_left -= (size_t)got;
        *used += (size_t)got;
    }
    if (a->content_left == 0 && a->file >= 0) {
        close(a->file);
        a->file = -1;
    }
    if (a->content_left == 0) {
        size_t zeros = size - *used < a->zeros_left ? size - *used : (size_t)a->zeros_left;
        memset(buffer + *used, 0, zeros);
        a->zeros_left -= zeros;
        *used += zeros;
    }
    return true;
}

static enum status fill(struct archive *a, unsigned char *buffer, size_t size, size_t *used)
{
    if (is_late(a))
        return TOO_LATE;
    for (;;) {
        if (!copy_content(a, buffer, size, used))
            return FAILED;
        if (a->content_left > 0 || a->zeros_left > 0 || size - *used < BLOCK)
            return MORE;
        enum status status = next_entry(a);
        if (status != HEADER || !write_header(buffer + *used, &a->entry))
            return status;
        *used += BLOCK;
    }
}

void sandloom_archive_close(struct archive *a)
{
    while (a->depth > 0)
        ascend(a);
    if (a->file >= 0)
        close(a->file);
    free(a->levels);
    free(a->path);
    free(a);
}

/* NULL: ``errno`` says why. */
struct archive *sandloom_archive_open(int fd, uint64_t max_entries, uint64_t max_depth, int64_t until_ns, uint64_t max_bytes)
{
    struct archive *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->entries_left = max_entries;
    a->bytes_left = max_bytes;
    a->until_ns = until_ns;
    a->max_depth = max_depth;
    a->file = -1;
    a->entry.target = a->target;
    a->levels = calloc(max_depth + 1, sizeof *a->levels);
    int own = a->levels == NULL ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own >= 0 && descend(a, own, 0) && lseek(own, 0, SEEK_SET) == 0)
        return a;
    int number = errno;
    sandloom_archive_close(a);
    errno = number;
    return NULL;
}

/* Fills the buffer, and returns how much of it. ``status`` of the entry says how to go on; ``number`` is errno. */
size_t sandloom_archive_read(struct archive *a, unsigned char *buffer, size_t size)
{
    size_t used = 0;
    a->entry.status = (int32_t)fill(a, buffer, size, &used);
    a->entry.number = a->entry.status == FAILED ? errno : 0;
    return used;
}

const struct entry *sandloom_archive_entry(const struct archive *a)
{
    return &a->entry;
}
