/* costs.c: numbers of a device from a JSON file, as eval/gpu/machine.cu measures and `braid device
 * --json` prints them: {"target": "cuda:sm_90", "costs": {"team_barrier_ns": 1400, ...}, ...}. Of
 * all else in the file only the form matters. */
#include <stdlib.h>

#include "cli/costs.h"
#include "runtime/runtime.h"

#define DEPTH 32

typedef struct Json {
    const char *p; /* a text, and a 0 behind it */
    int depth;
    const char *path;
    char wrong[256]; /* the first fault: then nothing more is read */
    char target[64];
    double value[64]; /* by number of a device; 0: not there */
} Json;

static bool wrong(Json *j, const char *fmt, const char *what) {
    if (!*j->wrong) snprintf(j->wrong, sizeof j->wrong, fmt, what);
    return false;
}
static bool malformed(Json *j) { return wrong(j, "%s", "not a well-formed JSON text"); }

static char peek(Json *j) {
    j->p += strspn(j->p, " \t\r\n");
    return *j->p;
}
static bool take(Json *j, char c) {
    if (peek(j) != c) return false;
    j->p++;
    return true;
}

/* A string as it is written, without its quotes, cut to what `to` has room for. */
static bool take_string(Json *j, char *to, size_t size) {
    if (!take(j, '"')) return malformed(j);
    const char *from = j->p;
    while (*j->p && *j->p != '"') j->p += j->p[0] == '\\' && j->p[1] ? 2 : 1;
    if (!*j->p) return malformed(j);
    snprintf(to, size, "%.*s", (int)(j->p - from), from);
    j->p++;
    return true;
}

typedef bool Member(Json *j, const char *name);

/* An object, or an array, whose elements have no names. */
static bool take_members(Json *j, char open, char close, Member *member) {
    if (!take(j, open) || ++j->depth > DEPTH) return malformed(j);
    for (bool first = true; !take(j, close); first = false) {
        char name[64] = "";
        if (!first && !take(j, ',')) return malformed(j);
        if (open == '{' && (!take_string(j, name, sizeof name) || !take(j, ':')))
            return malformed(j);
        if (!member(j, name)) return false;
    }
    j->depth--;
    return true;
}

static bool take_any(Json *j, const char *name) {
    char text[64];
    (void)name;
    if (peek(j) == '"') return take_string(j, text, sizeof text);
    if (*j->p == '{') return take_members(j, '{', '}', take_any);
    if (*j->p == '[') return take_members(j, '[', ']', take_any);
    size_t n = strspn(j->p, "+-.0123456789aefilnrstuE"); /* a number, true, false or null */
    j->p += n;
    return n > 0 || malformed(j);
}

static bool take_cost(Json *j, const char *name) {
    const DeviceNumber *n = device_number_find(name);
    char *end;
    if (!n) return wrong(j, "there is no cost '%s'", name);
    peek(j);
    double v = strtod(j->p, &end);
    if (end == j->p || !(v > 0) || v > 1e15) return wrong(j, "%s is not a positive number", name);
    j->p = end;
    j->value[n - device_number(0)] = v;
    return true;
}

static bool take_part(Json *j, const char *name) {
    if (strcmp(name, "target") == 0) return take_string(j, j->target, sizeof j->target);
    if (strcmp(name, "costs") == 0) return take_members(j, '{', '}', take_cost);
    return take_any(j, name);
}

/* Puts what was read in place of the row's numbers. */
static int use(Json *j, Device *d) {
    const DeviceNumber *n;
    int count = 0;
    for (int i = 0; (n = device_number(i)); i++) {
        double row = device_get(d, n), v = j->value[i];
        if (v == 0) continue;
        if (row == 0) return cli_fail(j->path, "%s has no %s", d->name, n->name);
        if (v < row / DEVICE_FACTOR || v > row * DEVICE_FACTOR)
            return cli_fail(j->path, "%s is %g, too far from the published %g to be believed",
                            n->name, v, row);
        device_set(d, n, v);
        count++;
    }
    if (count == 0) return cli_fail(j->path, "there are no \"costs\"");
    d->measured = true;
    return EXIT_DONE;
}

int cli_costs(const char *path, const char *target, Device *d) {
    braid_error e;
    void *bytes;
    size_t n;
    Sb text = {0};
    Json j = {.path = path};
    if (rt_read_file(path, &bytes, &n, &e)) return cli_error(path, &e);
    sb_write(&text, bytes, n);
    sb_puts(&text, "");
    free(bytes);
    j.p = text.p;
    bool good = take_members(&j, '{', '}', take_part) && (peek(&j) == 0 || malformed(&j));
    sb_free(&text);
    if (!good) return cli_fail(path, "%s", j.wrong);
    if (!target) target = j.target;
    if (*j.target && strcmp(j.target, target) != 0)
        return cli_fail(path, "these are costs of %s, not of %s", j.target, target);
    const Device *row = device_find(target);
    if (!row) return cli_fail(path, "there is no device '%s' (braid device lists them)", target);
    *d = *row;
    return use(&j, d);
}
