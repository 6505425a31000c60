/* test_oom.c: every allocation fails once: importing, compiling, interpreting and emitting then end
 * with the status for it, and nothing leaks (the sanitizers of the debug build look).
 *
 * The linker sends this program's allocations through the functions below (CMakeLists.txt); what
 * shared libraries allocate for themselves is not counted. In a build with tiny limits each step
 * allocates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codegen/compile.h"
#include "include/braid.h"
#include "include/braid_trees.h"

static _Thread_local long countdown; /* allocations until one fails; 0: none does */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static bool fails(void) { return countdown > 0 && --countdown == 0; }

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }
void *__wrap_aligned_alloc(size_t align, size_t n) {
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

/* ---- what is tried ---- */
/* Loads the model for the interpreter and runs it once on small inputs. */
static braid_status interpret(const char *path, braid_error *e) {
    braid_options o = {.struct_size = sizeof o, .target = "interp"};
    struct braid_model *m;
    braid_session *s = NULL;
    braid_value *in[8] = {0}, *out[8] = {0};
    braid_status st = braid_load(path, &o, &m, e);
    if (st) return st;
    int nin = braid_model_input_count(m), nout = braid_model_output_count(m);
    assert_true(nin <= 8 && nout <= 8);
    st = braid_session_new(m, NULL, &s, e);
    for (int i = 0; !st && i < nin; i++) {
        const braid_io *io = braid_model_input(m, i);
        int64_t dim[BRAID_RANK_LIMIT];
        int rank = io->rank < 0 ? 2 : io->rank;
        for (int d = 0; d < rank; d++)
            dim[d] = io->rank < 0 ? 3 - d : io->dim[d] < 0 ? 3 : io->dim[d];
        st = braid_value_new_tensor(io->dtype, rank, dim, NULL, &in[i], e);
        if (!st && io->dtype == BRAID_INT64 && io->rank == 0)
            *(int64_t *)braid_value_data(in[i]) = 3;
    }
    if (!st) st = braid_session_run(s, (const braid_value *const *)in, out, e);
    for (int i = 0; i < 8; i++) {
        braid_value_free(in[i]);
        braid_value_free(out[i]);
    }
    braid_session_free(s);
    braid_model_free(m);
    return st;
}

typedef struct Work {
    Diag d;
    Arena *arena;
    Texts texts;
} Work;

/* Compiles to C text. */
static void emit_caught(Work *w, const char *path, const CompileOptions *o) {
    jmp_buf jb;
    w->d.top = &jb;
    if (setjmp(jb) == 0) {
        w->arena = arena_new(&w->d);
        compile_emit(compile_program(w->arena, &w->d, path, o), &w->texts);
    }
    w->d.top = NULL;
}
static braid_status emit(const char *path, braid_error *e) {
    CompileOptions o = {.target = "cpu"};
    Work w = {0};
    emit_caught(&w, path, &o);
    snprintf(e->message, sizeof e->message, "%s", w.d.message);
    texts_free(&w.texts);
    arena_free(w.arena);
    return (braid_status)w.d.status;
}

/* Fails the k-th allocation for each k up to 500, beyond for ever fewer of them. */
static void fail_each(const char *model, braid_status (*what)(const char *, braid_error *)) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.onnx", BRAID_GOLDEN, model);
    braid_error e = {0};
    countdown = 0;
    if (what(path, &e)) fail_msg("%s: %s", model, e.message);
    for (long k = 1; k < 1000000; k += 1 + k / 500) {
        memset(&e, 0, sizeof e);
        countdown = k;
        braid_status st = what(path, &e);
        bool reached = countdown == 0;
        countdown = 0;
        if (!reached) {
            if (st) fail_msg("%s: %s", model, e.message);
            return;
        }
        /* What may be left out, a check of our own, is: then all goes well. */
        if (st != BRAID_OK && st != BRAID_MEMORY)
            fail_msg("%s: allocation %ld fails: status %d: %s", model, k, (int)st, e.message);
        if (st && !e.message[0]) fail_msg("%s: allocation %ld fails: no message", model, k);
    }
    fail_msg("%s: it never succeeds", model);
}

static const char *const models[] = {"elementwise", "conv",     "if_ranks",  "loop",
                                     "lstm",        "sequence", "attention", "open"};

static void test_interpret(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(models); i++) fail_each(models[i], interpret);
}
static void test_emit(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(models); i++) fail_each(models[i], emit);
}

/* Values and files. */
static braid_status round_trip(const char *path, braid_error *e) {
    const int64_t dim[] = {2, 3};
    braid_value *v = NULL, *s = NULL, *r = NULL;
    const char *const pb = path;
    braid_io io = {.name = "x",
                   .kind = BRAID_SEQUENCE,
                   .element = BRAID_SEQUENCE,
                   .dtype = BRAID_FLOAT32,
                   .rank = -1};
    braid_status st = braid_value_new_sequence(BRAID_FLOAT32, &s, e);
    for (int i = 0; !st && i < 3; i++) {
        st = braid_value_new_tensor(BRAID_FLOAT32, 2, dim, NULL, &v, e);
        if (!st && (st = braid_value_append(s, v, e))) braid_value_free(v);
    }
    if (!st) st = braid_value_write(s, pb, e);
    if (!st) st = braid_value_read(pb, &io, &r, e);
    braid_value_free(s);
    braid_value_free(r);
    return st;
}
static void test_values(void **state) {
    (void)state;
    char path[] = "/tmp/braid-oom-XXXXXX.pb";
    int fd = mkstemps(path, 3);
    assert_true(fd >= 0);
    braid_error e = {0};
    assert_int_equal(round_trip(path, &e), BRAID_OK);
    for (long k = 1;; k++) {
        memset(&e, 0, sizeof e);
        countdown = k;
        braid_status st = round_trip(path, &e);
        bool reached = countdown == 0;
        countdown = 0;
        if (!reached) break;
        if (st != BRAID_MEMORY)
            fail_msg("allocation %ld fails: status %d: %s", k, (int)st, e.message);
    }
    remove(path);
}

/* Forests. */
static braid_status forests(const char *text, braid_error *e) {
    const int64_t edge[] = {0, 1, 2, 1}; /* not by rising numbers: cycles are looked for */
    int64_t a[8], b[8], levels;
    braid_forest *f[3] = {0};
    braid_status st = braid_forest_from_edges(edge, 2, 3, &f[0], e);
    if (!st) st = braid_forest_from_text(text, strlen(text), true, &f[1], e);
    if (!st) st = braid_forest_concatenate((const braid_forest *const *)f, 2, &f[2], e);
    if (!st) st = braid_forest_parents(f[2], a, e);
    if (!st) st = braid_forest_levels(f[2], a, b, &levels, e);
    if (!st) assert_int_equal(levels, 2);
    for (int i = 0; i < 3; i++) braid_forest_free(f[i]);
    return st;
}
static void test_forests(void **state) {
    (void)state;
    braid_error e = {0};
    long k = 1;
    for (;; k++) {
        countdown = k;
        braid_status st = forests("(1 (2 a) (3 b))", &e);
        bool reached = countdown == 0;
        countdown = 0;
        assert_int_equal(st, reached ? BRAID_MEMORY : BRAID_OK);
        if (!reached) break;
        assert_string_equal(e.message, "out of memory for a forest");
    }
    assert_true(k > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forests),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_interpret),
        cmocka_unit_test(test_emit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
