/* process.c: runs programs, several at a time, and collects what they print. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/cleanup.h"
#include "codegen/build/build.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A copy of argv whose first entry, such as "ccache gcc -m64", is split into words, unless it is a
 * path with spaces. The caller frees the array and its [0], which holds the text of all words.
 * NULL: no memory. */
static char **with_words(char *const *argv) {
    size_t n = 1, words = 1;
    while (argv[n]) n++;
    for (const char *p = argv[0]; *p; p++) words += *p == ' ';
    char **v = calloc(n + words + 1, sizeof *v), *text = v ? strdup(argv[0]) : NULL;
    if (!text) {
        free((void *)v);
        return NULL;
    }
    size_t k = 0;
    bool whole = access(argv[0], X_OK) == 0; /* a path with spaces */
    char *from = text;
    for (char *p = text; !whole && *p == ' '; p++) from = p + 1;
    memmove(text, from, strlen(from) + 1);
    v[k++] = text;
    for (char *p = text; !whole && *p; p++) {
        if (*p != ' ') continue;
        *p = 0;
        if (p[1] && p[1] != ' ') v[k++] = p + 1;
    }
    for (size_t i = 1; i < n; i++) v[k++] = argv[i];
    return v;
}

/* Waits, but not for long, until no process has the other end of the pipe: what was killed makes no
 * file after that. */
static void wait_end(int fd) {
    struct pollfd to_read = {fd, POLLIN, 0};
    char drop[4096];
    while (poll(&to_read, 1, 1000) > 0 && read(fd, drop, sizeof drop) > 0) {}
}

/* A copy of the environment where TMPDIR is the folder of the file `beside`. The caller frees the
 * array and its [0], the new entry. NULL: no memory. */
static char **with_tmpdir(const char *beside) {
    size_t n = 0, k = 1;
    while (environ[n]) n++;
    char **env = calloc(n + 2, sizeof *env);
    const char *slash = strrchr(beside, '/');
    if (!env || asprintf(&env[0], "TMPDIR=%.*s", slash ? (int)(slash - beside + 1) : 1,
                         slash ? beside : ".") < 0) {
        free((void *)env);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0) env[k++] = environ[i];
    return env;
}

/* A program that runs. */
typedef struct Child {
    BuildRun *run; /* NULL: none */
    pid_t pid;
    int fd; /* what it prints */
    size_t n;
} Child;

/* Starts r. False: it could not be started. */
static bool start(const Diag *d, const char *beside, BuildRun *r, Child *c) {
    int fd[2];
    posix_spawn_file_actions_t fa;
    r->out[0] = 0;
    r->status = -1;
    if (pipe2(fd, O_CLOEXEC)) return false;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, fd[1], 1);
    posix_spawn_file_actions_adddup2(&fa, fd[1], 2);
    char **split = with_words(r->argv);
    char **env = beside ? with_tmpdir(beside) : environ;
    int e = split && env ? cleanup_spawn(&c->pid, &fa, split, env, d->progress != NULL) : ENOMEM;
    if (beside && env) free(env[0]);
    if (beside) free((void *)env);
    if (split) free(split[0]);
    free((void *)split);
    posix_spawn_file_actions_destroy(&fa);
    close(fd[1]);
    if (e)
        close(fd[0]);
    else
        *c = (Child){.run = r, .pid = c->pid, .fd = fd[0]};
    return !e;
}

/* Reads what c printed. At the end of it: the program's status; c is free again. */
static void read_some(Child *c) {
    BuildRun *r = c->run;
    char drop[4096];
    const bool room = c->n + 1 < r->size;
    const ssize_t n =
        read(c->fd, room ? r->out + c->n : drop, room ? r->size - c->n - 1 : sizeof drop);
    if (n < 0 && errno == EINTR) return;
    if (n > 0 && room) c->n += (size_t)n;
    if (n > 0) return;
    r->out[c->n] = 0;
    close(c->fd);
    const int status = cleanup_wait(c->pid);
    r->status = status == -1 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 127;
    c->run = NULL;
}

static void kill_all(Child *child, int n) {
    for (int i = 0; i < n; i++)
        if (child[i].run) cleanup_kill(child[i].pid);
    for (int i = 0; i < n; i++) {
        if (!child[i].run) continue;
        wait_end(child[i].fd);
        close(child[i].fd);
        cleanup_wait(child[i].pid);
    }
}

bool build_run_all(Diag *d, const char *beside, BuildRun *run, int n, int most) {
    Child child[BUILD_PROCESSES] = {{0}};
    struct pollfd fd[BUILD_PROCESSES];
    if (most > BUILD_PROCESSES) most = BUILD_PROCESSES;
    for (int next = 0;;) {
        int active = 0;
        for (int i = 0; i < most; i++) {
            while (!child[i].run && next < n) start(d, beside, &run[next++], &child[i]);
            fd[i] = (struct pollfd){child[i].run ? child[i].fd : -1, POLLIN, 0};
            active += child[i].run != NULL;
        }
        if (!active) return true;
        poll(fd, (nfds_t)most, d->progress ? 100 : -1);
        for (int i = 0; i < most; i++)
            if (child[i].run && fd[i].revents) read_some(&child[i]);
        if (!progress_ask(d->progress)) {
            kill_all(child, most);
            return false;
        }
    }
}

int build_run(Diag *d, const char *beside, char *const *argv, char *out, size_t size) {
    BuildRun r = {argv, out, size, -1};
    if (!build_run_all(d, beside, &r, 1, 1)) progress_tick(d); /* raises */
    return r.status;
}
