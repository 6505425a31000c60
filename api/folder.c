/* folder.c: the folder of the cache, and its store of measurements of this machine. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/runtime.h"

char *rt_cache_folder(const braid_options *o) {
    const char *own = o->cache_dir ? o->cache_dir : getenv("BRAID_CACHE");
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own) return rt_text("%s", own);
    if (xdg && *xdg == '/') return rt_text("%s/braid", xdg);
    return home && *home == '/' ? rt_text("%s/.cache/braid", home) : NULL;
}

char *rt_kept_folder(const braid_options *o) {
    char *folder = o->no_cache && !o->cache_dir ? NULL : rt_cache_folder(o);
    char *kept = folder && rt_make_folders(folder) ? rt_text("%s/objects", folder) : NULL;
    free(folder);
    if (kept && rt_make_folders(kept)) return kept;
    free(kept);
    return NULL;
}

bool rt_is_own(const char *path) {
    struct stat s;
    return lstat(path, &s) == 0 && s.st_uid == geteuid() && !(s.st_mode & (S_IWGRP | S_IWOTH)) &&
           (S_ISDIR(s.st_mode) || S_ISREG(s.st_mode));
}

bool rt_make_folders(char *path) {
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(path, 0777);
        *p = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
    char *real = realpath(path, NULL); /* it may be a link of the user */
    bool good = real && rt_is_own(real) && access(real, W_OK | X_OK) == 0;
    free(real);
    return good;
}

Store *rt_store(const braid_options *o, bool write) {
    char *folder = o->no_cache ? NULL : rt_cache_folder(o), *path = NULL;
    Store *s = NULL;
    if (folder && (!write || rt_make_folders(folder)) && (path = rt_text("%s/tuning.db", folder)))
        s = write ? store_open(path) : store_open_to_read(path);
    free(folder);
    free(path);
    return s;
}
