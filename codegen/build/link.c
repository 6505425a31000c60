/* link.c: compiles a program's translation units side by side, and links them to a library. */
#include "codegen/build/build.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define LOG_BYTES 2048
#define OPTIONS_MAX 40

/* One translation unit while the library is built. */
typedef struct Part {
    char *argv[OPTIONS_MAX];
    char log[LOG_BYTES];
    char text[4200], object[4200];
    uint64_t key; /* of the object file that is kept; 0: it is not */
    bool taken;   /* it is there already */
} Part;

typedef struct Library {
    Diag *d;
    const CompileOptions *o;
    const char *text_path, *so_path;
    int n;
    const Unit *unit;
    Part *part;
    char arch[128], weights[4200];
} Library;

static bool write_text(const char *path, const Sb *text) {
    FILE *f = fopen(path, "we");
    bool good = f && fwrite(text->p, 1, text->n, f) == text->n;
    if (f && fclose(f)) good = false;
    return good;
}

/* All that the object file of a unit depends on. */
static uint64_t key_of(const Library *l, const Unit *u) {
    uint64_t h = hash_bytes(u->text.p, u->text.n, 1);
    for (const char *const *flag = compile_flags; *flag; flag++)
        h = hash_bytes(*flag, strlen(*flag) + 1, h);
    h = compile_hash_command(build_cc(l->o), hash_bytes(l->arch, strlen(l->arch) + 1, h));
    if (!l->o->cpu) h ^= compile_machine(NULL, 0);
    return h ? h : 1;
}

/* The command that compiles unit i. */
static void prepare(Library *l, int i) {
    Part *p = &l->part[i];
    if (l->n) {
        snprintf(p->text, sizeof p->text, "%s.%d.c", l->text_path, i);
        if (!write_text(p->text, &l->unit[i].text))
            err(l->d, ST_IO, NULL, "cannot write '%s': %s", p->text, strerror(errno));
    } else
        snprintf(p->text, sizeof p->text, "%s", l->text_path);
    snprintf(p->object, sizeof p->object, "%s.%d.o", l->text_path, i);
    const bool brief = l->n && l->unit[i].brief;
    const char *own[] = {
        brief ? "-O1" : "-O2", l->arch, l->weights, "-c", "-o", p->object, p->text};
    size_t n = 0;
    p->argv[n++] = ARG(build_cc(l->o));
    for (const char *const *flag = compile_flags; *flag; flag++) p->argv[n++] = ARG(*flag);
    for (size_t k = 0; k < COUNT(own); k++) p->argv[n++] = ARG(own[k]);
    if (l->n && l->unit[i].same && l->o->kept) {
        p->key = key_of(l, &l->unit[i]);
        p->taken = kept_take(l->o->kept, p->key, p->object);
    }
}

static void fail(const Library *l, const char *log) {
    err(l->d, ST_IO, NULL, "the C compiler %s failed: %s", build_cc(l->o), log);
}

static void compile_parts(Library *l, int n) {
    BuildRun run[UNITS_MAX];
    int todo = 0, status = 0;
    for (int i = 0; i < n; i++)
        if (!l->part[i].taken)
            run[todo++] = (BuildRun){l->part[i].argv, l->part[i].log, LOG_BYTES, 0};
    const bool done = build_run_all(l->d, l->so_path, run, todo, compile_cpus());
    const char *log = NULL;
    for (int i = 0; i < todo && !status; i++) {
        status = run[i].status;
        log = run[i].out;
    }
    if (!done) progress_tick(l->d); /* raises */
    if (status < 0) build_no_cc(l->d, l->o);
    if (status) fail(l, log);
    for (int i = 0; i < n; i++)
        if (l->part[i].key && !l->part[i].taken)
            kept_add(l->o->kept, l->part[i].key, l->part[i].object);
}

static void link_parts(Library *l, int n) {
    char *argv[UNITS_MAX + 10], log[LOG_BYTES];
    int k = 0;
    argv[k++] = ARG(build_cc(l->o));
    argv[k++] = ARG("-shared");
    argv[k++] = ARG("-o");
    argv[k++] = ARG(l->so_path);
    for (int i = 0; i < n; i++) argv[k++] = l->part[i].object;
    argv[k++] = ARG("-lm");
    argv[k++] = ARG("-ldl");
    argv[k++] = ARG("-lpthread");
    argv[k] = NULL;
    const int status = build_run(l->d, l->so_path, argv, log, sizeof log);
    if (status < 0) build_no_cc(l->d, l->o);
    if (status) fail(l, log);
}

static void build(Library *l, int n) {
    char weights[4100];
    build_path(l->d, weights, sizeof weights, l->text_path, ".weights");
    snprintf(l->weights, sizeof l->weights, "-DBK_WEIGHTS_FILE=\"%s\"", weights);
    build_arch(l->d, l->o, l->arch, sizeof l->arch);
    for (int i = 0; i < n; i++) prepare(l, i);
    compile_parts(l, n);
    link_parts(l, n);
    build_weights(l->d, l->text_path, l->so_path);
}

/* False: it failed, with a message; temporary files may be left. */
static bool try_build(Library *l, int n) {
    Diag *const d = l->d;
    jmp_buf jb, *const up = d->top;
    d->top = &jb;
    if (setjmp(jb)) {
        l->d->top = up;
        return false;
    }
    build(l, n);
    d->top = up;
    return true;
}

void compile_build_cpu(Diag *d, int n, const Unit *unit, const char *text_path, const char *so_path,
                       const CompileOptions *o) {
    const int parts = n ? n : 1;
    Library l = {.d = d, .o = o, .text_path = text_path, .so_path = so_path, .n = n, .unit = unit};
    ASSERT(parts <= UNITS_MAX);
    if (!(l.part = calloc((size_t)parts, sizeof *l.part))) err(d, ST_MEMORY, NULL, "out of memory");
    const bool ok = try_build(&l, parts);
    for (int i = 0; i < parts; i++) {
        if (n && *l.part[i].text) unlink(l.part[i].text);
        if (*l.part[i].object) unlink(l.part[i].object);
    }
    free(l.part);
    if (!ok) err_again(d);
}
