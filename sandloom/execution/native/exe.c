/*
 * Preloaded into Rust's programs where there is no /proc. They ask /proc/self/exe for their own path and end without an
 * answer; here it is the path that the kernel was given when it started them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) ssize_t readlink(const char *path, char *buffer, size_t size) {
    const char *own = (const char *)getauxval(AT_EXECFN);
    if (strcmp(path, "/proc/self/exe") == 0 && own != NULL && own[0] == '/') {
        size_t length = strnlen(own, size);
        memcpy(buffer, own, length);
        return (ssize_t)length;
    }
    return syscall(SYS_readlinkat, AT_FDCWD, path, buffer, size);
}
