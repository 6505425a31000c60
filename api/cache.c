/* cache.c: the store of compiled libraries, and braid_compile.
 *
 * The store is a folder with one folder per entry. An entry's name is a hash of everything that the
 * library depends on: the model's bytes, its external data files (path, size, time), this build of
 * Braid, the compilers, the machine's instruction set, the options, and what decides the schedule
 * (the number of units, the device's measured numbers, the results of tuning).
 *
 * An entry is made under another name and then renamed, so it is either complete or absent. If two
 * processes make the same entry, the first one stays. Before a library is opened, its files are
 * compared with the check sums of the entry, because mapping a truncated file would crash the
 * process. If a folder is not the user's own, the store is not used.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/build/calibrate.h"
#include "api/runtime.h"
#include "scheduler/cost/decide.h"

/* Moves all files of `folder` to the folder `to`: `last` at the end, after the files it needs. */
static braid_status move_files(const char *folder, const char *to, const char *last,
                               braid_error *e) {
    braid_status st = BRAID_OK;
    for (int pass = 0; pass < 2 && !st; pass++) {
        DIR *d = opendir(folder);
        if (!d) return rt_fail(e, BRAID_IO, "%s", strerror(errno));
        for (struct dirent *f; !st && (f = readdir(d));) {
            if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0) continue;
            if ((strcmp(f->d_name, last) == 0) != (pass == 1)) continue;
            char *a = rt_text("%s/%s", folder, f->d_name), *b = rt_text("%s/%s", to, f->d_name);
            if (!a || !b)
                st = rt_fail(e, BRAID_MEMORY, "out of memory");
            else if (rename(a, b) != 0)
                st = rt_fail(e, BRAID_IO, "cannot write '%s': %s", b, strerror(errno));
            free(a);
            free(b);
        }
        closedir(d);
    }
    return st;
}

braid_status braid_compile(const char *model_path, const braid_options *options,
                           const char *library_path, braid_error *e) {
    braid_options o;
    Progress progress;
    char *folder = NULL, *to = NULL;
    braid_status st = rt_options(options, &o, &progress, e);
    if (st) return st;
    if (!model_path && !o.model_data) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    if (!library_path != !!o.emit_folder)
        return rt_fail(e, BRAID_USAGE,
                       "either a library is made or C files in a folder: one of both is given");
    if (strcmp(o.target, "interp") == 0)
        return rt_fail(e, BRAID_USAGE, "target '%s' makes no library", o.target);
    char *real;
    if (!o.model_data && rt_is_library(model_path))
        return rt_fail(e, BRAID_INPUT, "it is a compiled library already, not a model");
    if (o.emit_folder) return rt_build(model_path, &o, false, NULL, NULL, e);
    if ((st = rt_output_path(library_path, &real, e))) return st;
    struct stat a, b;
    if (!o.model_data && stat(model_path, &a) == 0 && stat(real, &b) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino) {
        free(real);
        return rt_fail(e, BRAID_USAGE, "the library would be written over the model");
    }
    const char *slash = strrchr(real, '/');
    const char *file = slash ? slash + 1 : real;
    to = slash ? rt_text("%.*s", (int)(slash - real + 1), real) : rt_text(".");
    st = to ? rt_temp_folder(real, &folder, e) : rt_fail(e, BRAID_MEMORY, "out of memory");
    if (!st) st = rt_build(model_path, &o, false, folder, file, e);
    if (!st && !progress_ask(rt_progress(&o))) st = rt_fail(e, BRAID_CANCELLED, "cancelled");
    if (!st) st = move_files(folder, to, file, e);
    if (folder) rt_remove_folder(folder);
    free(folder);
    free(to);
    free(real);
    return st;
}

/* ---- the key --------------------------------------------------------------------------------- */
static uint64_t hash_text(const char *s, uint64_t h) {
    return s ? hash_bytes(s, strlen(s) + 1, h) : hash_bytes("", 0, h + 1);
}
static uint64_t hash_int(int64_t v, uint64_t h) { return hash_bytes(&v, sizeof v, h); }
/* Identifies this build of Braid: the build id of the object that contains this code, or else the
 * size and time of its file. */
typedef struct Build {
    uintptr_t here;
    uint64_t hash;
    bool found;
} Build;
static int find_build(struct dl_phdr_info *info, size_t size, void *user) {
    Build *b = user;
    bool mine = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && b->here >= start && b->here - start < p->p_memsz) mine = true;
    }
    for (int i = 0; mine && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_NOTE) continue;
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr), *end = at + p->p_memsz;
        while (end - at > (ptrdiff_t)sizeof(ElfW(Nhdr))) {
            const ElfW(Nhdr) *n = (const void *)at;
            const char *name = at + sizeof *n, *desc = name + ((n->n_namesz + 3) & ~3u);
            if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
                b->hash = hash_bytes(desc, n->n_descsz, b->hash);
                b->found = true;
            }
            at = desc + ((n->n_descsz + 3) & ~3u);
        }
    }
    return mine;
}
static uint64_t hash_build(uint64_t h) {
    Build b = {(uintptr_t)&find_build, hash_text(BRAID_VERSION, h), false};
    dl_iterate_phdr(find_build, &b);
    if (b.found) return b.hash;
    Dl_info info;
    bool known = dladdr((void *)b.here, &info) && info.dli_fname && strchr(info.dli_fname, '/');
    return compile_hash_file(known ? info.dli_fname : "/proc/self/exe", b.hash);
}

/* Hashes the command $NAME, or else `otherwise`. */
static uint64_t hash_tool(const char *name, const char *otherwise, uint64_t h) {
    const char *tool = getenv(name);
    return compile_hash_command(tool && *tool ? tool : otherwise, h);
}

/* Hashes the compilers that build the text (codegen/build/cc.c, gpu.c). */
static uint64_t hash_tools(const braid_options *o, uint64_t h) {
    const Backend to = device_find(o->target)->backend;
    h = o->cc && *o->cc ? compile_hash_command(o->cc, h) : hash_tool("CC", "cc", h);
    if (to == BACKEND_CUDA) {
        h = compile_hash_file("/usr/local/cuda/bin/nvcc", hash_tool("NVCC", "nvcc", h));
    } else if (to == BACKEND_HIP) {
        h = hash_tool("HIPIFY", "hipify-perl", hash_tool("HIPCC", "hipcc", h));
    } else if (to == BACKEND_EMULATED) {
        char *self = realpath("/proc/self/exe", NULL), *slash = self ? strrchr(self, '/') : NULL;
        char *emulator =
            slash ? rt_text("%.*s/libbraid_emulate.a", (int)(slash - self), self) : NULL;
        const char *given = getenv("BRAID_EMULATE");
        h = hash_tool("HIPIFY", "hipify-perl", hash_tool("CXX", "c++", h));
        h = compile_hash_file(given && *given ? given : emulator ? emulator : "", h);
        free(emulator);
        free(self);
    }
    return h;
}

/* Hashes the external data files that the model's bytes name, in protobuf entries {1: "location",
 * 2: PATH}. An accidental match elsewhere only adds to the key. False: an entry has an unexpected
 * form. */
static bool hash_external(const char *model_path, const char *p, size_t n, uint64_t *h) {
    static const char mark[] = "\x0a\x08location";
    const char *slash = strrchr(model_path, '/'), *end = p + n;
    int dir = slash ? (int)(slash - model_path + 1) : 0;
    while (p < end && (p = memmem(p, (size_t)(end - p), mark, sizeof mark - 1))) {
        p += sizeof mark - 1;
        if (end - p < 2 || p[0] != 0x12 || (p[1] & 0x80)) return false;
        int length = p[1];
        if (end - p - 2 < length) return false;
        char *file = rt_text("%.*s%.*s", dir, model_path, length, p + 2);
        char *real = file ? realpath(file, NULL) : NULL;
        *h = compile_hash_file(real ? real : file ? file : "", *h);
        free(real);
        free(file);
    }
    return true;
}

static uint64_t hash_double(double v, uint64_t h) { return hash_bytes(&v, sizeof v, h); }

static uint64_t hash_device(const Device *d, uint64_t h) {
    for (int i = 0; i < LEVEL_COUNT; i++) {
        const DeviceLevel *l = &d->level[i];
        h = hash_int(l->units, hash_text(l->name, h));
    }
    const DeviceNumber *n;
    for (int i = 0; (n = device_number(i)); i++) h = hash_double(device_get(d, n), h);
    return hash_text(d->name, h);
}

/* Hashes what decides the schedule in rt_build. `measure`: like rt_build, measure a machine that is
 * not known yet. With tuning the stored choices do not count: it finds its own. */
static uint64_t hash_schedule(const braid_options *o, bool measure, uint64_t h) {
    CompileOptions c;
    FoldSpec fold;
    Device device;
    int n = 0, units = o->threads ? o->threads : compile_cpus();
    rt_compile_options(o, &fold, &c);
    Store *s = rt_store(o, true);
    char *key = device_key(&c);
    if (device_calibrated(&c, s, measure, &device)) h = hash_device(&device, h);
    Measured *m = key && !o->tune ? store_measured(s, key, units, &n) : NULL;
    for (int i = 0; i < n; i++) h = hash_int(m[i].value, hash_int((int64_t)m[i].key, h));
    store_close(s);
    free(key);
    free(m);
    return hash_int(units, h);
}

static bool cache_key(const char *model_path, const braid_options *o, bool measure, char key[40]) {
    void *file = NULL;
    size_t n = o->model_size;
    if (!o->model_data && rt_read_file(model_path, &file, &n, NULL)) return false;
    const void *bytes = o->model_data ? o->model_data : file;
    uint64_t h = hash_bytes(bytes, n, 1), content = h;
    bool good = !model_path || hash_external(model_path, bytes, n, &h);
    free(file);
    h = hash_tools(o, hash_build(hash_text(o->target, h)));
    h = hash_text(o->weights, h);
    h = hash_text(o->torch_name, hash_int(o->profile, hash_text(o->cpu, h)));
    if (!o->cpu) h = hash_int((int64_t)compile_machine(NULL, 0), h);
    h = hash_schedule(o, measure, hash_text(o->schedule, hash_int(o->tune, h)));
    if (o->fold) {
        h = hash_int(o->fold->scan_count, h);
        for (int i = 0; i < o->fold->scan_count; i++)
            h = hash_int(o->fold->scan_axis[i], hash_text(o->fold->scan_input[i], h));
        h = hash_int(o->fold->carry_count, h);
        for (int i = 0; i < o->fold->carry_count; i++)
            h = hash_text(o->fold->carry_output[i], hash_text(o->fold->carry_input[i], h));
    }
    h = hash_int(o->shape_count, hash_int(o->ignore_dim_names, h));
    for (int i = 0; i < o->shape_count; i++) {
        const braid_shape *s = &o->shape[i];
        h = hash_int(s->rank, hash_text(s->input, h));
        for (int k = 0; k < s->rank; k++) h = hash_int(s->dim[k], h);
    }
    snprintf(key, 40, "%016llx%016llx", (unsigned long long)content, (unsigned long long)h);
    return good;
}

/* ---- entries: model.so, its weights if any, and `sums` with size and check sum of each ------- */
static const char *const entry_files[] = {"model.so", "model.so.weights"};

/* A line with the size and check sum of a file, malloc'd; NULL: it cannot be read. */
static char *sum_line(const char *folder, const char *name) {
    char *path = rt_text("%s/%s", folder, name), *line = NULL;
    void *bytes;
    size_t n;
    if (path && rt_is_own(path) && rt_read_file(path, &bytes, &n, NULL) == BRAID_OK) {
        uint64_t h = n, w;
        for (size_t i = 0; i < n; i += sizeof w) {
            w = 0;
            memcpy(&w, (const char *)bytes + i, n - i < sizeof w ? n - i : sizeof w);
            h = (h ^ w) * 0xd6e8feb86659fd93u;
            h ^= h >> 32;
        }
        line = rt_text("%zu %016llx %s\n", n, (unsigned long long)h, name);
        free(bytes);
    }
    free(path);
    return line;
}

/* The text of `sums` for the files in `folder`, malloc'd, or NULL. */
static char *sums_of(const char *folder) {
    char *first = sum_line(folder, entry_files[0]), *second = sum_line(folder, entry_files[1]);
    char *text = first ? rt_text("%s%s", first, second ? second : "") : NULL;
    free(first);
    free(second);
    return text;
}

static braid_status write_sums(const char *folder, braid_error *e) {
    char *path = rt_text("%s/sums", folder), *text = sums_of(folder);
    braid_status st = path && text ? rt_write_file(path, text, strlen(text), e)
                                   : rt_fail(e, BRAID_MEMORY, "out of memory");
    free(path);
    free(text);
    return st;
}

/* Whether all files of the entry are as they were made, so that it is safe to open the library. */
static bool entry_is_whole(const char *entry) {
    char *path = rt_text("%s/sums", entry), *now = NULL;
    void *was = NULL;
    size_t n = 0;
    bool whole = path && rt_is_own(entry) && rt_is_own(path) &&
                 rt_read_file(path, &was, &n, NULL) == BRAID_OK && (now = sums_of(entry)) &&
                 strlen(now) == n && memcmp(now, was, n) == 0;
    free(path);
    free(now);
    free(was);
    return whole;
}

/* Builds in the new folder PREFIX.XXXXXX, which stays on success. */
static braid_status build_beside(const char *prefix, const char *model_path, const braid_options *o,
                                 char **folder, braid_error *e) {
    braid_status st = rt_temp_folder(prefix, folder, e);
    if (!st && (st = rt_build(model_path, o, true, *folder, "model.so", e))) {
        rt_remove_folder(*folder);
        free(*folder);
        *folder = NULL;
    }
    return st;
}

/* Removes an entry that is not whole. A process that has it open can go on using it. */
static void drop_entry(const char *entry) {
    char *away;
    if (access(entry, F_OK) != 0 || rt_temp_folder(entry, &away, NULL)) return;
    if (rename(entry, away) != 0) unlink(entry); /* it was a file */
    rt_remove_folder(away);
    free(away);
}

/* *path: the library of the entry, which is made if it is missing. */
static braid_status take_entry(const char *entry, bool fresh, const char *model_path,
                               const braid_options *o, char **path, braid_error *e) {
    char *built = NULL;
    if (!(*path = rt_text("%s/model.so", entry))) return rt_fail(e, BRAID_MEMORY, "out of memory");
    if (!fresh && entry_is_whole(entry)) return BRAID_OK;
    braid_status st = build_beside(entry, model_path, o, &built, e);
    if (!st) st = write_sums(built, e);
    if (!st && (fresh || !entry_is_whole(entry))) {
        drop_entry(entry);
        /* It fails if another process was faster. Then that entry is used. */
        if (rename(built, entry) != 0 && !entry_is_whole(entry))
            st =
                rt_fail(e, BRAID_IO, "cannot write to the cache: '%s': %s", entry, strerror(errno));
    }
    if (built) rt_remove_folder(built);
    free(built);
    return st;
}

braid_status rt_cached_library(const char *model_path, const braid_options *o, bool fresh,
                               char **path, char **folder, braid_error *e) {
    char key[40], *entry = NULL;
    bool use = !o->no_cache && !o->emit_path;
    char *store = use ? rt_cache_folder(o) : NULL;
    braid_status st = BRAID_OK;
    *path = *folder = NULL;
    use = store && rt_make_folders(store) && cache_key(model_path, o, false, key);
    if (use) entry = rt_text("%s/%s", store, key);
    if (entry && access(entry, F_OK) != 0 && (use = cache_key(model_path, o, true, key))) {
        free(entry);
        entry = rt_text("%s/%s", store, key);
    }
    if (use) {
        st = entry ? take_entry(entry, fresh, model_path, o, path, e)
                   : rt_fail(e, BRAID_MEMORY, "out of memory");
    } else {
        const char *tmp = getenv("TMPDIR");
        char *prefix = rt_text("%s/braid", tmp && *tmp ? tmp : "/tmp");
        if (!prefix)
            st = rt_fail(e, BRAID_MEMORY, "out of memory");
        else
            st = build_beside(prefix, model_path, o, folder, e);
        if (!st && !(*path = rt_text("%s/model.so", *folder)))
            st = rt_fail(e, BRAID_MEMORY, "out of memory");
        free(prefix);
    }
    if (st && *folder) {
        rt_remove_folder(*folder);
        free(*folder);
        *folder = NULL;
    }
    if (st) {
        free(*path);
        *path = NULL;
    }
    free(entry);
    free(store);
    return st;
}
