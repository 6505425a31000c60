/* test_options.c: braid_options: the model in memory, progress and giving up, the C compiler,
 * state, shorter structures of older programs. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/braid.h"
#include "tests/unit/onnx_write.h"

static char folder[] = "/tmp/braid-options.XXXXXX";
static char cache[64], tmp[64], out[64]; /* folders in it */
static const char *const targets[] = {"interp", "cpu"};

/* ---- models ---------------------------------------------------------------------------------- */
/* y = x + w, z = y x; all of [N,3]. With rank -1 nothing is declared but the element type. */
static Sb step_model(int rank) {
    Sb g = {0};
    g_node(&g, node("add", "Add", "x,w", "y"));
    g_node(&g, node("mul", "Mul", "y,x", "z"));
    pb_msg(&g, 11, value_info("x", tensor_type(DT_F32, rank)));
    pb_msg(&g, 11, value_info("w", tensor_type(DT_F32, rank)));
    pb_msg(&g, 12, value_info("z", tensor_type(DT_F32, rank)));
    pb_msg(&g, 12, value_info("y", tensor_type(DT_F32, rank)));
    return model(g, 18);
}

/* z = x + w, where w = {1, 2, 3} is in the file w.bin. */
static Sb external_model(void) {
    static const char *const entry[][2] = {{"location", "w.bin"}, {"length", "12"}};
    Sb g = {0}, t = {0};
    pb_int(&t, 1, 3);
    pb_int(&t, 2, DT_F32);
    pb_str(&t, 8, "w");
    for (size_t i = 0; i < COUNT(entry); i++) {
        Sb e = {0};
        pb_str(&e, 1, entry[i][0]);
        pb_str(&e, 2, entry[i][1]);
        pb_msg(&t, 13, e);
    }
    pb_int(&t, 14, 1);
    g_init(&g, t);
    g_node(&g, node("add", "Add", "x,w", "z"));
    g_in(&g, "x");
    g_out(&g, "z");
    return model(g, 18);
}

static const char *in_folder(const char *name) {
    static char path[2][128];
    static int at;
    at = !at;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

static const char *save(const char *name, const void *p, size_t n) {
    const char *path = in_folder(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
    return path;
}

/* ---- helpers --------------------------------------------------------------------------------- */
static braid_options options_for(const char *target) {
    return (braid_options){
        .struct_size = sizeof(braid_options), .target = target, .cache_dir = cache};
}

static struct braid_model *load(const char *path, const braid_options *o) {
    struct braid_model *m = NULL;
    braid_error e = {0};
    if (braid_load(path, o, &m, &e)) fail_msg("%s: %s", path ? path : "-", e.message);
    return m;
}

static void refuse(const char *path, const braid_options *o, braid_status st, const char *message) {
    struct braid_model *m = NULL;
    braid_error e = {0};
    assert_int_equal(braid_load(path, o, &m, &e), st);
    assert_null(m);
    assert_int_equal(e.status, st);
    if (!strstr(e.message, message)) fail_msg("'%s' is not in '%s'", message, e.message);
}

/* Runs m, whose inputs are all {1, 2, 3}, and compares its first output; frees m. */
static void expect(struct braid_model *m, const float z[3]) {
    static float x[] = {1, 2, 3};
    const int nin = braid_model_input_count(m), nout = braid_model_output_count(m);
    braid_session *s = NULL;
    braid_error e = {0};
    braid_value *in[2], *to[2];
    if (braid_session_new(m, NULL, &s, &e)) fail_msg("%s", e.message);
    for (int i = 0; i < nin; i++)
        assert_int_equal(
            braid_value_borrow_tensor(BRAID_FLOAT32, 2, (int64_t[]){1, 3}, x, &in[i], NULL),
            BRAID_OK);
    if (braid_session_run(s, (const braid_value *const *)in, to, &e)) fail_msg("%s", e.message);
    assert_int_equal(braid_value_count(to[0]), 3);
    assert_memory_equal(braid_value_data(to[0]), z, 3 * sizeof *z);
    for (int i = 0; i < nin; i++) braid_value_free(in[i]);
    for (int i = 0; i < nout; i++) braid_value_free(to[i]);
    braid_session_free(s);
    braid_model_free(m);
}

static const float step_z[] = {2, 8, 18}, external_z[] = {2, 4, 6};

/* The number of files in a folder, without what is not of a model: measurements, object files. */
static int files_in(const char *path) {
    DIR *d = opendir(path);
    int n = 0;
    assert_non_null(d);
    for (const struct dirent *f; (f = readdir(d));)
        n += f->d_name[0] != '.' && strncmp(f->d_name, "tuning.db", 9) != 0 &&
             strcmp(f->d_name, "objects") != 0;
    closedir(d);
    return n;
}

static void empty_cache(void) {
    char command[160];
    snprintf(command, sizeof command, "cd %s && ls | grep -v tuning | xargs rm -rf", cache);
    assert_int_equal(system(command), 0);
}

/* Nothing is left of a call: no file, no child, no open file. */
static void expect_clean(int open_files) {
    assert_int_equal(files_in(cache), 0);
    assert_int_equal(files_in(tmp), 0);
    assert_int_equal(files_in(out), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(files_in("/proc/self/fd"), open_files);
}

/* ---- the model in memory --------------------------------------------------------------------- */
static void test_memory(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(targets); k++) {
        Sb bytes = step_model(2);
        braid_options o = options_for(targets[k]), file = o;
        o.model_data = bytes.p;
        o.model_size = bytes.n;
        expect(load(save("step.onnx", bytes.p, bytes.n), &file), step_z);
        expect(load(NULL, &o), step_z);
        expect(load("no such folder/step.onnx", &o), step_z);
        /* One key for equal bytes; other bytes are another model. */
        if (k) assert_int_equal(files_in(cache), 1);
        memcpy(memmem(bytes.p, bytes.n, "Mul", 3), "Sub", 3);
        expect(load(NULL, &o), (float[]){1, 2, 3});
        if (k) assert_int_equal(files_in(cache), 2);
        sb_free(&bytes);
    }
    empty_cache();
}

static void test_memory_compile(void **state) {
    (void)state;
    Sb bytes = step_model(2);
    braid_options o = options_for(NULL);
    braid_error e = {0};
    char so[128];
    o.model_data = bytes.p;
    o.model_size = bytes.n;
    snprintf(so, sizeof so, "%s/m.so", out);
    if (braid_compile(NULL, &o, so, &e)) fail_msg("%s", e.message);
    expect(load(so, NULL), step_z);
    o.tune = true;
    o.tune_seconds = 1;
    if (braid_compile("step.onnx", &o, so, &e)) fail_msg("%s", e.message);
    expect(load(so, NULL), step_z);
    /* A library's bytes are no model. */
    o.model_data = "\177ELF\2\1\1";
    o.model_size = 7;
    assert_int_equal(braid_compile(NULL, &o, so, &e), BRAID_MODEL);
    refuse(NULL, &o, BRAID_MODEL, "a compiled library");
    unlink(so);
    sb_free(&bytes);
}

/* The bytes are lent for the call: an open model compiles from its copy. */
static void test_memory_open(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(targets); k++) {
        Sb bytes = step_model(-1);
        braid_options o = options_for(targets[k]);
        o.no_cache = true;
        o.model_data = bytes.p;
        o.model_size = bytes.n;
        struct braid_model *m = load(NULL, &o);
        assert_int_equal(braid_model_input(m, 0)->rank, -1);
        memset(bytes.p, 0xff, bytes.n);
        sb_free(&bytes);
        expect(m, step_z);
    }
}

static void test_memory_external(void **state) {
    (void)state;
    save("w.bin", (float[]){1, 2, 3}, 12);
    for (size_t k = 0; k < COUNT(targets); k++) {
        Sb bytes = external_model();
        braid_options o = options_for(targets[k]);
        o.no_cache = true;
        o.model_data = bytes.p;
        o.model_size = bytes.n;
        expect(load(in_folder("not there.onnx"), &o), external_z);
        refuse(NULL, &o, BRAID_UNSUPPORTED, "the model in memory has no path");
        sb_free(&bytes);
    }
}

static void test_memory_errors(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(targets); k++) {
        braid_options o = options_for(targets[k]);
        refuse(NULL, &o, BRAID_USAGE, "null pointer");
        o.model_size = 4;
        refuse("a.onnx", &o, BRAID_USAGE, "model_data is NULL");
        o.model_data = "no model";
        refuse("a.onnx", &o, BRAID_MODEL, "a.onnx: ");
        o.model_size = 0;
        refuse(NULL, &o, BRAID_MODEL, "model: the model is empty");
    }
}

/* ---- progress -------------------------------------------------------------------------------- */
typedef struct Watch {
    int calls, until; /* the call with this number gives up; 0: none */
    const char *at;   /* or the first one of a step that begins so; NULL: none */
    const char *file; /* or the first one after this file was written; NULL: none */
    double seconds;
    Sb steps; /* without repetitions, each with a '|' */
    char last[120];
} Watch;

static bool watch(void *user, const char *step, double seconds) {
    Watch *w = user;
    struct stat st;
    assert_true(seconds >= w->seconds && seconds < 600);
    w->seconds = seconds;
    if (strcmp(step, w->last) != 0) sb_printf(&w->steps, "%s|", step);
    snprintf(w->last, sizeof w->last, "%s", step);
    if (w->at && strncmp(step, w->at, strlen(w->at)) == 0) return false;
    if (w->file && stat(w->file, &st) == 0 && st.st_size > 0) return false;
    return ++w->calls != w->until;
}

static void test_progress(void **state) {
    (void)state;
    static const char *const steps[] = {"reading the model|",
                                        "reading and scheduling the model|running the C compiler|"};
    char path[128];
    Sb bytes = step_model(2);
    snprintf(path, sizeof path, "%s", save("step.onnx", bytes.p, bytes.n));
    sb_free(&bytes);
    for (size_t k = 0; k < COUNT(targets); k++) {
        Watch w = {0};
        braid_options o = options_for(targets[k]);
        o.emit_path = in_folder("step.c"); /* do not take it from the cache */
        o.progress = watch;
        o.progress_user = &w;
        expect(load(path, &o), step_z);
        assert_string_equal(w.steps.p, steps[k]);
        sb_free(&w.steps);
    }
}

/* Gives up at ever later calls, until the call goes through. */
static void test_give_up(void **state) {
    (void)state;
    char so[128], path[128];
    Sb bytes = step_model(2);
    snprintf(path, sizeof path, "%s", save("step.onnx", bytes.p, bytes.n));
    sb_free(&bytes);
    snprintf(so, sizeof so, "%s/step.so", out);
    for (int way = 0; way < 3; way++) {
        const int open_files = files_in("/proc/self/fd");
        for (int n = 1;; n += 1 + n / 8) {
            Watch w = {.until = n};
            struct braid_model *m = NULL;
            braid_error e = {0};
            braid_options o = options_for(targets[way > 0]);
            o.progress = watch;
            o.progress_user = &w;
            braid_status st =
                way < 2 ? braid_load(path, &o, &m, &e) : braid_compile(path, &o, so, &e);
            sb_free(&w.steps);
            if (st == BRAID_OK) {
                assert_true(w.calls < n);
                assert_true(n > 1);
                braid_model_free(m);
                break;
            }
            assert_int_equal(w.calls, n); /* it is not asked again */
            assert_int_equal(st, BRAID_CANCELLED);
            assert_string_equal(e.message, "cancelled");
            assert_null(m);
            expect_clean(open_files);
        }
        unlink(so);
        empty_cache();
    }
    assert_string_equal(braid_status_text(BRAID_CANCELLED), "cancelled");
}

/* Whether the process is there and no zombie. */
static bool is_running(int pid) {
    char name[64], line[256] = "";
    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    FILE *f = fopen(name, "r");
    if (f && !fgets(line, sizeof line, f)) *line = 0;
    if (f) fclose(f);
    const char *state = strrchr(line, ')');
    return state && state[2] != 'Z';
}

/* A compiler that hangs is ended, with what it has started. */
static void test_give_up_compiler(void **state) {
    (void)state;
    char script[128], cc[160], pids[128];
    int pid[2] = {0};
    snprintf(pids, sizeof pids, "%s", in_folder("pids"));
    Sb text = {0};
    sb_printf(&text, "sleep 100 & echo $$ $! >%s; wait\n", pids);
    snprintf(script, sizeof script, "%s", save("cc.sh", text.p, text.n));
    snprintf(cc, sizeof cc, "sh %s", script);
    sb_free(&text);
    Sb bytes = step_model(2);
    Watch w = {.file = pids};
    braid_options o = options_for("cpu");
    o.no_cache = true;
    o.model_data = bytes.p;
    o.model_size = bytes.n;
    o.cc = cc;
    o.progress = watch;
    o.progress_user = &w;
    refuse(NULL, &o, BRAID_CANCELLED, "cancelled");
    FILE *f = fopen(pids, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d %d", &pid[0], &pid[1]), 2);
    fclose(f);
    for (int i = 0; i < 2; i++) assert_false(is_running(pid[i]));
    assert_true(w.seconds < 60); /* it would sleep for 100 */
    assert_non_null(strstr(w.steps.p, "running the C compiler|"));
    expect_clean(files_in("/proc/self/fd"));
    sb_free(&w.steps);
    sb_free(&bytes);
}

static void test_give_up_tuning(void **state) {
    (void)state;
    Sb bytes = step_model(2);
    char so[128];
    snprintf(so, sizeof so, "%s/step.so", out);
    Watch w = {.at = "tuning ["};
    braid_error e = {0};
    braid_options o = options_for("cpu");
    o.tune = true;
    o.model_data = bytes.p;
    o.model_size = bytes.n;
    o.progress = watch;
    o.progress_user = &w;
    assert_int_equal(braid_compile(NULL, &o, so, &e), BRAID_CANCELLED);
    assert_non_null(strstr(w.steps.p, "tuning|tuning ["));
    expect_clean(files_in("/proc/self/fd"));
    sb_free(&w.steps);
    sb_free(&bytes);
}

/* ---- others ---------------------------------------------------------------------------------- */
static void test_compiler(void **state) {
    (void)state;
    Sb bytes = step_model(2);
    braid_options o = options_for("cpu");
    o.model_data = bytes.p;
    o.model_size = bytes.n;
    o.no_cache = true;
    o.cc = "no-such-compiler";
    refuse(NULL, &o, BRAID_IO, "the C compiler no-such-compiler cannot be run: install one");
    o.cpu = "haswell";
    refuse(NULL, &o, BRAID_IO, "the C compiler no-such-compiler cannot be run: install one");
    o.cpu = NULL;
    o.cc = "cc -DANYTHING=1";
    expect(load(NULL, &o), step_z);
    o.no_cache = false; /* each command has its own entry */
    expect(load(NULL, &o), step_z);
    o.cc = "cc -DANYTHING=2";
    expect(load(NULL, &o), step_z);
    assert_int_equal(files_in(cache), 2);
    empty_cache();
    sb_free(&bytes);
}

static void expect_state(struct braid_model *m) {
    int32_t input = -1, output = -1;
    braid_error e = {0};
    assert_int_equal(braid_model_carry_count(m), 1);
    assert_int_equal(braid_model_carry(m, 0, &input, &output, &e), BRAID_OK);
    assert_string_equal(braid_model_input(m, input)->name, "w");
    assert_string_equal(braid_model_output(m, output)->name, "y");
    assert_int_equal(braid_model_carry(m, 1, &input, &output, &e), BRAID_USAGE);
    assert_int_equal(braid_model_carry(m, -1, &input, &output, &e), BRAID_USAGE);
    assert_int_equal(braid_model_carry(m, 0, NULL, &output, &e), BRAID_USAGE);
}

static void test_state(void **state) {
    (void)state;
    const braid_fold fold = {.carry_count = 1,
                             .carry_input = (const char *const[]){"w"},
                             .carry_output = (const char *const[]){"y"}};
    const braid_fold loop = {.scan_count = 1,
                             .scan_input = (const char *const[]){"x"},
                             .scan_axis = (const int32_t[]){0},
                             .carry_count = 1,
                             .carry_input = fold.carry_input,
                             .carry_output = fold.carry_output};
    braid_error e = {0};
    char so[128];
    snprintf(so, sizeof so, "%s/step.so", out);
    for (int rank = 2; rank >= -1; rank -= 3) {
        Sb bytes = step_model(rank);
        for (size_t k = 0; k < COUNT(targets); k++) {
            braid_options o = options_for(targets[k]);
            o.model_data = bytes.p;
            o.model_size = bytes.n;
            o.no_cache = true;
            struct braid_model *m = load(NULL, &o);
            assert_int_equal(braid_model_carry_count(m), 0);
            braid_model_free(m);
            o.fold = &fold;
            m = load(NULL, &o);
            expect_state(m);
            expect(m, step_z); /* the model is what it was */
            o.fold = &loop;
            m = load(NULL, &o);
            expect_state(m);
            braid_model_free(m);
            if (k && rank > 0) {
                if (braid_compile(NULL, &o, so, &e)) fail_msg("%s", e.message);
                m = load(so, NULL);
                expect_state(m);
                braid_model_free(m);
                unlink(so);
            }
        }
        sb_free(&bytes);
    }
}

static void test_names(void **state) {
    (void)state;
    static const char *const bad[] = {"", "add", "a::", "::b", "a:b", "a::b::c", "1a::b", "a::b c"};
    Sb bytes = step_model(2);
    braid_options o = options_for("interp");
    o.model_data = bytes.p;
    o.model_size = bytes.n;
    for (size_t i = 0; i < COUNT(bad); i++) {
        o.torch_name = bad[i];
        refuse(NULL, &o, BRAID_USAGE, "NAMESPACE::NAME");
    }
    o.torch_name = "my_ops::Step2";
    expect(load(NULL, &o), step_z);
    sb_free(&bytes);
}

/* A program that was built with an older header has a shorter structure. */
static void test_short(void **state) {
    (void)state;
    Sb bytes = step_model(2);
    const char *path = save("step.onnx", bytes.p, bytes.n);
    braid_options o = options_for("interp"), old;
    memset(&old, 0x5a, sizeof old);
    memcpy(&old, &o, offsetof(braid_options, model_data));
    old.struct_size = offsetof(braid_options, model_data);
    expect(load(path, &old), step_z);
    old.struct_size = offsetof(braid_options, cpu);
    expect(load(path, &old), step_z);
    old.struct_size = 3;
    refuse(path, &old, BRAID_USAGE, "struct_size");
    sb_free(&bytes);
}

static int set_up(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    snprintf(tmp, sizeof tmp, "%s/tmp", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    setenv("TMPDIR", tmp, 1);
    return mkdir(cache, 0700) || mkdir(tmp, 0700) || mkdir(out, 0700);
}
static int tear_down(void **state) {
    (void)state;
    Sb command = {0};
    sb_printf(&command, "rm -r %s", folder);
    int st = system(command.p);
    sb_free(&command);
    return st;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_give_up), /* first: it also measures the machine */
        cmocka_unit_test(test_give_up_compiler),
        cmocka_unit_test(test_give_up_tuning),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_compile),
        cmocka_unit_test(test_memory_open),
        cmocka_unit_test(test_memory_external),
        cmocka_unit_test(test_memory_errors),
        cmocka_unit_test(test_compiler),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_short)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
