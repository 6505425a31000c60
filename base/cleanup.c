/* cleanup.c: what is left to do when a signal ends the process (see cleanup.h). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/cleanup.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool armed;
static struct Path {
    struct Path *next;
    char text[];
} * paths;
static struct Child {
    pid_t pid;
    struct Child *next;
} * children;

void cleanup_arm(void) { atomic_store(&armed, true); }

void cleanup_add(const char *path) {
    if (!atomic_load(&armed)) return;
    struct Path *p = malloc(sizeof *p + strlen(path) + 1);
    if (!p) return;
    strcpy(p->text, path);
    pthread_mutex_lock(&lock);
    p->next = paths;
    paths = p;
    pthread_mutex_unlock(&lock);
}

void cleanup_drop(const char *path) {
    if (!atomic_load(&armed)) return;
    pthread_mutex_lock(&lock);
    for (struct Path **p = &paths; *p; p = &(*p)->next)
        if (strcmp((*p)->text, path) == 0) {
            struct Path *gone = *p;
            *p = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
}

int cleanup_spawn(pid_t *pid, const posix_spawn_file_actions_t *fa, char *const *argv,
                  char *const *env, bool apart) {
    struct Child *c = malloc(sizeof *c);
    posix_spawnattr_t at;
    sigset_t none, usual;
    short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    if (!c) return ENOMEM;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGXFSZ);
    posix_spawnattr_init(&at);
    posix_spawnattr_setsigmask(&at, &none);
    posix_spawnattr_setsigdefault(&at, &usual);
    posix_spawnattr_setpgroup(&at, 0);
    if (apart || atomic_load(&armed)) flags |= POSIX_SPAWN_SETPGROUP;
    posix_spawnattr_setflags(&at, flags);
    pthread_mutex_lock(&lock);
    int e = posix_spawnp(pid, argv[0], fa, &at, argv, env);
    if (e)
        free(c);
    else {
        *c = (struct Child){*pid, children};
        children = c;
    }
    pthread_mutex_unlock(&lock);
    posix_spawnattr_destroy(&at);
    return e;
}

int cleanup_wait(pid_t pid) {
    siginfo_t info;
    int status = -1, n;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {}
    /* The pid stays the child's until waitpid, which happens under the lock: so cleanup_now cannot
     * kill another process that got the same pid. */
    pthread_mutex_lock(&lock);
    while ((n = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {}
    for (struct Child **c = &children; *c; c = &(*c)->next)
        if ((*c)->pid == pid) {
            struct Child *gone = *c;
            *c = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
    return n < 0 ? -1 : status;
}

void cleanup_kill(pid_t pid) { kill(-pid, SIGKILL); }

void cleanup_folder(const char *folder) {
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *f; (f = readdir(d));)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0)
            unlinkat(dirfd(d), f->d_name, 0);
    closedir(d);
    rmdir(folder);
}

void cleanup_now(void) {
    pthread_mutex_lock(&lock);
    for (struct Child *c = children; c; c = c->next) kill(-c->pid, SIGKILL);
    /* Wait for their end: until then they may still create files. */
    for (struct Child *c = children; c; c = c->next)
        for (siginfo_t info;
             waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR;) {}
    for (struct Path *p = paths; p; p = p->next)
        if (unlink(p->text) != 0) cleanup_folder(p->text);
    /* The lock stays taken, so a thread that waits for a child in cleanup_wait goes no further. */
}
