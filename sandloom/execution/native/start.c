/* Starts one command from the spawner: what spawner/child.py does between fork and exec, without copying Python.
 *
 * The new process shares the memory of the caller, who waits, until it executes or exits. So it allocates nothing,
 * touches nothing of the caller's but *fault, and runs none of its signal handlers. One caller at a time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CLOSE_RANGE_AT_EXEC (1u << 2)
#define JOIN_SESSION_KEYRING 1
#define SIGNALS 64
#define SIGNAL_SET_BYTES (SIGNALS / 8)
#define STACK_BYTES (64 * 1024)

struct fault {
    int32_t number; /* errno, 0: none */
    int32_t step;   /* what failed, see enum step */
};

enum step { JOIN = 1, FDS, SIGNALS_RESET, DIRECTORY, KEYRING, OOM_SCORE, AFFINITY, LIMIT, OPEN, GROUPS, GID, UID, PARENT, EXEC };

/* Strings that lie one after the other. */
struct strings {
    const char *block;
    size_t count;
};

struct command {
    char **argv, **env;
    const int32_t *fds;       /* what becomes 0, 1, 2 …; -1: closed */
    size_t fd_count;
    struct strings joins;     /* files that take the writer in when it writes "0", such as cgroup.procs */
    struct strings opens;     /* files to open for reading, as the numbers in open_fds; none below fd_count */
    const int32_t *open_fds;
    const uint64_t *limits;   /* triples: number, soft, hard */
    size_t limit_count;
    const void *cpus;         /* set of processors, as the kernel has it */
    size_t cpus_bytes;        /* 0: all */
    int64_t uid, gid;         /* -1: stay */
    pid_t parent;
    struct fault *fault;
};

static char stack[STACK_BYTES] __attribute__((aligned(16)));

/* As the kernel has it; all zero is SIG_DFL on every architecture. */
static const char default_action[64];

static int install_fds(const struct command *c)
{
    for (size_t i = 0; i < c->fd_count; i++) {
        if (c->fds[i] < 0)
            close((int)i);
        else if (dup2(c->fds[i], (int)i) < 0)
            return -1;
    }
    /* Whatever a library in the spawner opened without close-on-exec must not reach a command. Not before the exec: the
     * worker takes the end of the spawner's socket for a sign that no process is left on its way to one. */
    return (int)syscall(SYS_close_range, (unsigned)c->fd_count, ~0u, CLOSE_RANGE_AT_EXEC);
}

static int reset_signals(void)
{
    static const char nothing[SIGNAL_SET_BYTES];
    for (int number = 1; number <= SIGNALS; number++)
        if (number != SIGKILL && number != SIGSTOP
            && syscall(SYS_rt_sigaction, number, default_action, NULL, SIGNAL_SET_BYTES) != 0)
            return -1;
    return (int)syscall(SYS_rt_sigprocmask, SIG_SETMASK, nothing, NULL, SIGNAL_SET_BYTES);
}

static int enter_directory(void)
{
    umask(022);
    return chdir("/");
}

static int leave_keyring(void)
{
    /* A kernel without keyrings has nothing to leak. */
    return syscall(SYS_keyctl, JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS ? -1 : 0;
}

static int set_limits(const struct command *c)
{
    for (size_t i = 0; i < c->limit_count; i++) {
        const uint64_t *triple = c->limits + 3 * i;
        const struct rlimit limit = { .rlim_cur = triple[1], .rlim_max = triple[2] };
        if (setrlimit((int)triple[0], &limit) != 0)
            return -1;
    }
    return 0;
}

static int write_once(const char *path, const char *text, ssize_t length)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t written = write(fd, text, (size_t)length);
    int number = errno;
    close(fd);
    errno = number;
    return written == length ? 0 : -1;
}

static int join_groups(const struct command *c)
{
    const char *path = c->joins.block;
    for (size_t i = 0; i < c->joins.count; i++, path += strlen(path) + 1)
        if (write_once(path, "0", 1) != 0)
            return -1;
    return 0;
}

static int open_files(const struct command *c)
{
    /* Each command reads from a description, and so from an offset, of its own. */
    const char *path = c->opens.block;
    for (size_t i = 0; i < c->opens.count; i++, path += strlen(path) + 1) {
        int fd = open(path, O_RDONLY);
        if (fd < 0)
            return -1;
        if (fd != c->open_fds[i]) {
            if (dup2(fd, c->open_fds[i]) < 0)
                return -1;
            close(fd);
        }
    }
    return 0;
}

static void fail(const struct command *c, enum step step)
{
    c->fault->number = errno;
    c->fault->step = step;
    _exit(1);
}

static int child(void *argument)
{
    const struct command *c = argument;

    /* First: a path may lead through a descriptor of the spawner. */
    if (join_groups(c) != 0)
        fail(c, JOIN);
    if (install_fds(c) != 0)
        fail(c, FDS);
    if (reset_signals() != 0)
        fail(c, SIGNALS_RESET);
    if (enter_directory() != 0)
        fail(c, DIRECTORY);
    if (leave_keyring() != 0)
        fail(c, KEYRING);
    if (write_once("/proc/self/oom_score_adj", "500", 3) != 0)
        fail(c, OOM_SCORE);
    /* Before the limits: the spawner's descriptors, closed by the exec only, may be more than a command may have. */
    if (open_files(c) != 0)
        fail(c, OPEN);
    if (c->cpus_bytes > 0 && syscall(SYS_sched_setaffinity, 0, c->cpus_bytes, c->cpus) != 0)
        fail(c, AFFINITY);
    if (set_limits(c) != 0)
        fail(c, LIMIT);
    if (c->uid >= 0) {
        /* The system calls themselves: libc's functions would change every thread it knows of, the caller's too. */
        if (syscall(SYS_setgroups, 0, NULL) != 0)
            fail(c, GROUPS);
        if (syscall(SYS_setresgid, c->gid, c->gid, c->gid) != 0)
            fail(c, GID);
        if (syscall(SYS_setresuid, c->uid, c->uid, c->uid) != 0)
            fail(c, UID);
    }
    /* After the change of credentials, which would clear it. It covers the time until bwrap asks for the same. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
        fail(c, PARENT);
    if (syscall(SYS_getppid) != c->parent)
        _exit(1);
    execve(c->argv[0], c->argv, c->env);
    fail(c, EXEC);
    return 1;
}

/* Pointers to the strings, and NULL. */
static char **pointers(struct strings strings)
{
    char **found = malloc((strings.count + 1) * sizeof *found);
    if (found == NULL)
        return NULL;
    for (size_t i = 0; i < strings.count; i++) {
        found[i] = (char *)strings.block;
        strings.block += strlen(strings.block) + 1;
    }
    found[strings.count] = NULL;
    return found;
}

/* Whether the kernel has what is needed here. */
int sandloom_usable(void)
{
    return syscall(SYS_close_range, ~0u, ~0u, CLOSE_RANGE_AT_EXEC) == 0;
}

/* The pid of the new process, to be reaped in any case, or -errno. With fault->step set the program did not start. */
int64_t sandloom_start(struct strings argv, struct strings env, const int32_t *fds, size_t fd_count,
                       struct strings joins, struct strings opens, const int32_t *open_fds, const uint64_t *limits,
                       size_t limit_count, const void *cpus, size_t cpus_bytes, int64_t uid, int64_t gid,
                       struct fault *fault)
{
    struct command c = {
        .argv = pointers(argv), .env = pointers(env), .fds = fds, .fd_count = fd_count, .joins = joins, .opens = opens,
        .open_fds = open_fds, .limits = limits, .limit_count = limit_count, .cpus = cpus,
        .cpus_bytes = cpus_bytes, .uid = uid, .gid = gid,
        .parent = getpid(), .fault = fault,
    };
    char all[SIGNAL_SET_BYTES], old[SIGNAL_SET_BYTES];
    int64_t result = -ENOMEM;

    fault->number = fault->step = 0;
    if (c.argv != NULL && c.env != NULL) {
        memset(all, 0xff, sizeof all);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, all, old, SIGNAL_SET_BYTES);
        result = clone(child, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, &c);
        if (result < 0)
            result = -errno;
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, old, NULL, SIGNAL_SET_BYTES);
    }
    free(c.argv);
    free(c.env);
    return result;
}
