/* kept.c: object files that are kept, because many programs have the same.
 *
 * A file's name is a key, a hash of all that the object depends on. It holds a check sum and the
 * object. It is made under another name and then renamed, so that it is complete or absent; one
 * that is damaged is made again. If it cannot be written, nothing is kept. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "codegen/build/build.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool kept_path(char *path, size_t size, const char *kept, uint64_t key) {
    return kept && snprintf(path, size, "%s/%016llx.o", kept, (unsigned long long)key) < (int)size;
}

/* The bytes of a file of this user's, malloc'd; NULL: there is none. */
static char *read_own(const char *path, size_t *size) {
    struct stat s;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return NULL;
    char *p = NULL;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() && s.st_size > 0 &&
        (p = malloc((size_t)s.st_size)) && read(fd, p, (size_t)s.st_size) != s.st_size) {
        free(p);
        p = NULL;
    }
    close(fd);
    *size = p ? (size_t)s.st_size : 0;
    return p;
}

static bool write_all(int fd, const void *p, size_t n) {
    return fd >= 0 && write(fd, p, n) == (ssize_t)n;
}

bool kept_take(const char *kept, uint64_t key, const char *object) {
    char path[4096];
    size_t n;
    uint64_t sum;
    char *p = kept_path(path, sizeof path, kept, key) ? read_own(path, &n) : NULL;
    if (!p) return false;
    bool good = n > sizeof sum;
    if (good) {
        memcpy(&sum, p, sizeof sum);
        good = sum == hash_bytes(p + sizeof sum, n - sizeof sum, key);
    }
    if (good) {
        const int fd = open(object, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        good = write_all(fd, p + sizeof sum, n - sizeof sum);
        if (fd >= 0 && close(fd)) good = false;
    }
    free(p);
    return good;
}

void kept_add(const char *kept, uint64_t key, const char *object) {
    char path[4096], fresh[4096 + 8];
    size_t n;
    if (!kept_path(path, sizeof path, kept, key)) return;
    char *p = read_own(object, &n);
    if (!p) return;
    const uint64_t sum = hash_bytes(p, n, key);
    snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
    const int fd = mkstemp(fresh);
    bool good = write_all(fd, &sum, sizeof sum) && write_all(fd, p, n);
    if (fd >= 0 && close(fd)) good = false;
    if (fd >= 0 && (!good || rename(fresh, path))) unlink(fresh);
    free(p);
}
