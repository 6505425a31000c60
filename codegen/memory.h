/* memory.h: how much memory a session may take, and what is said when a run needs more.
 *
 * Pasted into emitted programs before entry.h, and included by the interpreter. C11. */
#ifndef BK_MEMORY_H
#define BK_MEMORY_H
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The number behind `key` in a file of "KEY NUMBER" lines (key "": its first word); -1: none. */
static inline int64_t bk_number_in(const char *path, const char *key) {
    char line[256], format[64];
    long long n = -1;
    FILE *f = fopen(path, "re");
    snprintf(format, sizeof format, "%s%%lld", key);
    while (f && n < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, format, &n) != 1) n = -1;
    if (f) fclose(f);
    return n;
}

/* A session's limit when it is not told one: so much of what this process can still take, of the
 * machine's memory and of its control group's share. INT64_MAX: that is not known. */
#define BK_MEMORY_SHARE 4
static inline int64_t bk_memory_share(void) {
    static const char group[] = "/sys/fs/cgroup/memory.";
    char path[3][64];
    int64_t kb = bk_number_in("/proc/meminfo", "MemAvailable: ");
    int64_t left = kb > 0 ? kb * 1024 : INT64_MAX;
    snprintf(path[0], sizeof path[0], "%smax", group);
    snprintf(path[1], sizeof path[1], "%scurrent", group);
    snprintf(path[2], sizeof path[2], "%sstat", group);
    int64_t most = bk_number_in(path[0], ""), now = bk_number_in(path[1], "");
    int64_t cached = bk_number_in(path[2], "inactive_file "); /* given back when it is wanted */
    if (most < 0 || now < 0) return left < INT64_MAX ? left / BK_MEMORY_SHARE : left;
    now -= cached > 0 && cached < now ? cached : 0;
    most = most > now ? most - now : 0;
    return (most < left ? most : left) / BK_MEMORY_SHARE;
}

/* "1.5 GiB" */
static inline void bk_bytes_text(char *text, size_t size, int64_t bytes) {
    static const char unit[] = "KMGT";
    double n = (double)bytes;
    int u = -1;
    for (; n >= 1024 && u < 3; u++) n /= 1024;
    if (u < 0)
        snprintf(text, size, "%lld bytes", (long long)bytes);
    else if (n < 10)
        snprintf(text, size, "%.1f %ciB", n, unit[u]);
    else
        snprintf(text, size, "%.0f %ciB", n, unit[u]);
}

/* `who`: "NODE: the run needs". */
static inline void bk_limit_text(char *text, size_t size, const char *who, int64_t need,
                                 int64_t most) {
    char a[32], b[32];
    bk_bytes_text(a, sizeof a, need);
    bk_bytes_text(b, sizeof b, most);
    if (!strcmp(a, b)) {
        snprintf(a, sizeof a, "%lld bytes", (long long)need);
        snprintf(b, sizeof b, "%lld bytes", (long long)most);
    }
    snprintf(text, size,
             "%s %s of memory; the limit is %s (--max-memory; --max-iterations ends loops earlier)",
             who, a, b);
}
#endif
