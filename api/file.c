/* file.c: reads and writes whole files and values in files; makes temporary folders. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "api/runtime.h"

braid_status rt_read_file(const char *path, void **bytes, size_t *n, braid_error *e) {
    struct stat sb;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return rt_fail(e, BRAID_IO, "%s", strerror(errno));
    size_t have = 0, room = 65536;
    if (fstat(fd, &sb) == 0) {
        if (S_ISDIR(sb.st_mode)) {
            close(fd);
            return rt_fail(e, BRAID_IO, "%s", strerror(EISDIR));
        }
        if (sb.st_size > 0) room = (size_t)sb.st_size + 1;
    }
    char *p = malloc(room);
    while (p) {
        ssize_t got = read(fd, p + have, room - have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            int why = errno;
            free(p);
            close(fd);
            return rt_fail(e, BRAID_IO, "%s", strerror(why));
        }
        if (got == 0) break;
        have += (size_t)got;
        if (have < room) continue;
        char *q = room > SIZE_MAX / 4 ? NULL : realloc(p, room *= 2);
        if (!q) free(p);
        p = q;
    }
    close(fd);
    if (!p) return rt_fail(e, BRAID_MEMORY, "out of memory for the file");
    *bytes = p;
    *n = have;
    return BRAID_OK;
}

braid_status rt_output_path(const char *path, char **real, braid_error *e) {
    struct stat st;
    *real = NULL;
    if (lstat(path, &st) != 0 && errno == ENOENT) { /* a new file: its folder must exist */
        const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
        char *folder =
            slash ? rt_text("%.*s", (int)(slash - path + (slash == path)), path) : rt_text(".");
        bool there = folder && stat(folder, &st) == 0 && S_ISDIR(st.st_mode);
        braid_status bad = BRAID_OK;
        if (!folder)
            bad = rt_fail(e, BRAID_MEMORY, "out of memory");
        else if (!there)
            bad = rt_fail(e, BRAID_IO, "cannot write '%s': there is no folder '%s'", path, folder);
        else if (!*file)
            bad = rt_fail(e, BRAID_USAGE, "'%s' names no file", path);
        free(folder);
        if (bad) return bad;
        *real = rt_text("%s", path);
        return *real ? BRAID_OK : rt_fail(e, BRAID_MEMORY, "out of memory");
    }
    *real = realpath(path, NULL);
    if (!*real) return rt_fail(e, BRAID_IO, "cannot write '%s': %s", path, strerror(errno));
    if (stat(*real, &st) == 0 && S_ISREG(st.st_mode)) return BRAID_OK;
    braid_status bad = rt_fail(e, BRAID_IO, "cannot write '%s': it is %s, not a file", path,
                               S_ISDIR(st.st_mode) ? "a folder" : "a device, pipe or socket");
    free(*real);
    *real = NULL;
    return bad;
}

braid_status rt_write_file(const char *path, const void *bytes, size_t n, braid_error *e) {
    char *real, *temp;
    braid_status st = rt_output_path(path, &real, e);
    if (st) return st;
    if (!(temp = rt_text("%s.XXXXXX", real))) {
        free(real);
        return rt_fail(e, BRAID_MEMORY, "out of memory");
    }
    int fd = mkstemp(temp);
    bool good = fd >= 0;
    if (good) cleanup_add(temp);
    const char *p = bytes;
    while (good && n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        good = put > 0;
        if (good) {
            p += put;
            n -= (size_t)put;
        }
    }
    int why = errno;
    if (fd >= 0) {
        /* mkstemp makes files with mode 0600. Give it the mode of an ordinary new file. */
        mode_t mask = umask(0);
        umask(mask);
        if (good && fchmod(fd, 0666 & ~mask) != 0) good = false, why = errno;
        if (close(fd) != 0 && good) good = false, why = errno;
        if (good && rename(temp, real) != 0) good = false, why = errno;
        if (!good) unlink(temp);
        cleanup_drop(temp);
    }
    free(temp);
    free(real);
    return good ? BRAID_OK : rt_fail(e, BRAID_IO, "cannot write '%s': %s", path, strerror(why));
}

braid_status rt_temp_folder(const char *prefix, char **folder, braid_error *e) {
    char *name = rt_text("%s.XXXXXX", prefix);
    if (!name) return rt_fail(e, BRAID_MEMORY, "out of memory");
    if (!mkdtemp(name)) {
        braid_status st =
            rt_fail(e, BRAID_IO, "cannot make a folder '%s': %s", name, strerror(errno));
        free(name);
        return st;
    }
    cleanup_add(name);
    *folder = name;
    return BRAID_OK;
}

void rt_remove_folder(const char *folder) {
    cleanup_folder(folder);
    cleanup_drop(folder);
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

braid_status braid_value_read(const char *path, const braid_io *io, braid_value **value,
                              braid_error *e) {
    if (!path || !io || !value) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    void *bytes;
    size_t n;
    braid_value *v = NULL;
    bool pb = ends_with(path, ".pb");
    if (!pb && !ends_with(path, ".npy"))
        return rt_fail(e, BRAID_INPUT, "neither a .npy nor a .pb file");
    if (!pb && (io->element == BRAID_SEQUENCE))
        return rt_fail(e, BRAID_INPUT, "input '%s' is a sequence: it needs a .pb file", io->name);
    braid_status st = rt_read_file(path, &bytes, &n, e);
    if (st) return st;
    if (pb)
        st = proto_parse(bytes, n, io, &v, e);
    else
        st = npy_parse(bytes, n, io->dtype, &v, e);
    free(bytes);
    if (st == BRAID_OK) *value = v;
    return st;
}

braid_status braid_value_write(const braid_value *v, const char *path, braid_error *e) {
    if (!v || !path) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    Sb s = {0};
    if (ends_with(path, ".pb"))
        proto_print(&s, v);
    else if (!ends_with(path, ".npy"))
        return rt_fail(e, BRAID_USAGE, "neither a .npy nor a .pb file");
    else if (v->kind != BRAID_TENSOR)
        return rt_fail(e, BRAID_USAGE, "only a tensor can be a .npy file");
    else
        npy_print(&s, v);
    braid_status st = s.failed ? rt_fail(e, BRAID_MEMORY, "out of memory for the file")
                               : rt_write_file(path, s.p, s.n, e);
    sb_free(&s);
    return st;
}
