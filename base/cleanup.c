/* cleanup.c: see cleanup.h. */
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
static _Atomic(const char *) stage;
static struct Path {
    struct Path *next;
    char text[];
} * paths;
static struct Child {
    pid_t pid;
    struct Child *next;
} * children;

void stage_set(const char *what) { atomic_store(&stage, what); }
const char *stage_get(void) { return atomic_load(&stage); }

void cleanup_arm(void) { atomic_store(&armed, true); }
bool cleanup_armed(void) { return atomic_load(&armed); }

void cleanup_add(const char *path) {
    if (!cleanup_armed()) return;
    struct Path *p = malloc(sizeof *p + strlen(path) + 1);
    if (!p) return;
    strcpy(p->text, path);
    pthread_mutex_lock(&lock);
    p->next = paths;
    paths = p;
    pthread_mutex_unlock(&lock);
}

void cleanup_drop(const char *path) {
    if (!cleanup_armed()) return;
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

int cleanup_wait(pid_t pid) {
    struct Child own = {pid, NULL};
    siginfo_t info;
    int status = -1, n;
    pthread_mutex_lock(&lock);
    own.next = children;
    children = &own;
    pthread_mutex_unlock(&lock);
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {}
    /* The number is the child's until it is waited for, which is under the lock. */
    pthread_mutex_lock(&lock);
    while ((n = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {}
    for (struct Child **c = &children; *c; c = &(*c)->next)
        if (*c == &own) {
            *c = own.next;
            break;
        }
    pthread_mutex_unlock(&lock);
    return n < 0 ? -1 : status;
}

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
    /* They may still be about to write. */
    for (struct Child *c = children; c; c = c->next)
        for (siginfo_t info;
             waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR;) {}
    for (struct Path *p = paths; p; p = p->next)
        if (unlink(p->text) != 0) cleanup_folder(p->text);
    pthread_mutex_unlock(&lock);
}
