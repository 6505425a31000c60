/* cmd_test.c: braid test: runs ONNX backend tests, each in a process of its own.
 *
 * A folder is a test if it has model.onnx, or a library compiled from it as model.so, and
 * test_data_set_* folders with input_N.pb and output_N.pb. A child process runs the test and writes
 * its result to a file. The parent reads the file when the child has ended. Crashes and time-outs
 * are failures.
 */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#define watch_leaks(on) ((on) ? __lsan_enable() : __lsan_disable())
#define has_leaks() __lsan_do_recoverable_leak_check()
#else
#define watch_leaks(on) ((void)0)
#define has_leaks() false
#endif

#include "cli/compare.h"
#include "api/runtime.h"
#include "scheduler/cost/device.h"

#define TIMEOUT_SECONDS 60
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define MAX_DEPTH 40
#define CHILD_EXIT 40 /* a child exits with this + its Outcome; other exit codes are crashes */

typedef enum { PASSED, FAILED, SKIPPED } Outcome;

typedef struct Test {
    char *folder;
    bool ended; /* the following fields are known */
    Outcome outcome;
    char *message;
} Test;

typedef struct Tests {
    Test *p;
    int n, room;
} Tests;

static void *need(void *p) {
    if (!p) die("out of memory");
    return p;
}
static char *join(const char *a, const char *b) {
    size_t n = strlen(a);
    while (n > 1 && a[n - 1] == '/') n--;
    Sb s = {0};
    sb_write(&s, a, n);
    sb_puts(&s, "/");
    sb_puts(&s, b);
    return s.p;
}
static bool exists(const char *dir, const char *name) {
    char *path = join(dir, name);
    bool yes = access(path, F_OK) == 0;
    free(path);
    return yes;
}

/* ---- finding tests ---- */
static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}
static int by_folder(const void *a, const void *b) {
    return strcmp(((const Test *)a)->folder, ((const Test *)b)->folder);
}

/* The names in a folder that begin with `prefix`, sorted. */
static char **list(const char *dir, const char *prefix, int *n) {
    char **name = NULL;
    DIR *d = opendir(dir);
    *n = 0;
    if (!d) return NULL;
    for (struct dirent *f; (f = readdir(d));) {
        if (f->d_name[0] == '.' || strncmp(f->d_name, prefix, strlen(prefix)) != 0) continue;
        name = need(realloc(name, ((size_t)*n + 1) * sizeof *name));
        name[(*n)++] = need(strdup(f->d_name));
    }
    closedir(d);
    if (*n) qsort(name, (size_t)*n, sizeof *name, by_text);
    return name;
}
static void free_names(char **name, int n) {
    for (int i = 0; i < n; i++) free(name[i]);
    free(name);
}

static void find_tests(const char *dir, int depth, Tests *t) {
    int n;
    if (exists(dir, "model.onnx") || exists(dir, "model.so")) {
        char **set = list(dir, "test_data_set_", &n);
        free_names(set, n);
        if (n) {
            if (t->n == t->room) {
                t->room = t->room ? 2 * t->room : 64;
                t->p = need(realloc(t->p, (size_t)t->room * sizeof *t->p));
            }
            t->p[t->n++] = (Test){.folder = need(strdup(dir))};
            return;
        }
    }
    if (depth == MAX_DEPTH) return;
    char **name = list(dir, "", &n);
    for (int i = 0; i < n; i++) {
        struct stat s;
        char *sub = join(dir, name[i]);
        if (stat(sub, &s) == 0 && S_ISDIR(s.st_mode)) find_tests(sub, depth + 1, t);
        free(sub);
    }
    free_names(name, n);
}

/* ---- one test, in the child ---- */
static Outcome failed(Sb *why, const char *what, const braid_error *e) {
    sb_puts(why, what);
    sb_puts(why, e->message);
    return e->status == BRAID_UNSUPPORTED ? SKIPPED : FAILED;
}

/* Reads DIR/NAME_N.pb for each io that has one; an input without one stays NULL. */
static Outcome read_values(const char *dir, const char *name, int n, const struct braid_model *m,
                           const braid_io *(*io)(const struct braid_model *, int32_t),
                           braid_value **value, Sb *why) {
    for (int i = 0; i < n; i++) {
        braid_error e;
        char file[64];
        snprintf(file, sizeof file, "%s_%d.pb", name, i);
        if (!exists(dir, file)) {
            if (io(m, i)->kind == BRAID_OPTIONAL) continue;
            sb_printf(why, "%s is missing", file);
            return FAILED;
        }
        char *path = join(dir, file);
        braid_status st = braid_value_read(path, io(m, i), &value[i], &e);
        free(path);
        if (!st) continue;
        sb_printf(why, "%s: ", file);
        return failed(why, "", &e);
    }
    return PASSED;
}

static Outcome run_set(const Cli *c, const struct braid_model *m, braid_session *s, const char *dir,
                       Sb *why) {
    braid_error e;
    int nin = braid_model_input_count(m), nout = braid_model_output_count(m);
    braid_value **in = need(calloc((size_t)(nin + 2 * nout) + 1, sizeof *in));
    braid_value **out = in + nin, **want = out + nout;
    Outcome o = read_values(dir, "input", nin, m, braid_model_input, in, why);
    if (o == PASSED) o = read_values(dir, "output", nout, m, braid_model_output, want, why);
    if (o == PASSED && braid_session_run(s, (const braid_value *const *)in, out, &e))
        o = failed(why, "", &e);
    /* Random elements cannot be compared. */
    const double rtol = braid_model_draws(m) ? INFINITY : c->rtol;
    for (int i = 0; o == PASSED && i < nout; i++) {
        size_t n = why->n;
        sb_printf(why, "output %d '%s' ", i, braid_model_output(m, i)->name);
        if (want[i] ? cli_same_value(out[i], want[i], rtol, c->atol, why)
                    : braid_value_item(out[i], 0) == NULL)
            why->n = n;
        else {
            if (!want[i]) sb_puts(why, "is present, expected an empty optional");
            o = FAILED;
        }
    }
    for (int i = 0; i < nin + 2 * nout; i++) braid_value_free(in[i]);
    free(in);
    return o;
}

/* Several tests run at a time, so each has one thread by default; but on a GPU it has all units. */
static int threads_of(const Cli *c, const char *target) {
    const Device *d = target ? device_find(target) : NULL;
    bool gpu = d && (d->backend == BACKEND_CUDA || d->backend == BACKEND_HIP);
    return c->threads || gpu ? c->threads : 1;
}

/* `cache`: the folder for object files that all tests share. */
static Outcome run_test(const Cli *c, const char *folder, const char *cache, Sb *why) {
    braid_error e;
    braid_fold fold;
    braid_options o = cli_options(c, &fold);
    o.threads = threads_of(c, c->target);
    o.progress = NULL; /* nobody watches a single test */
    braid_session_options so = {.struct_size = sizeof so,
                                .max_iterations = c->max_iterations,
                                .stack_depth = c->stack_depth,
                                .max_memory = c->max_memory};
    struct braid_model *m;
    braid_session *s;
    o.no_cache = true;
    o.cache_dir = cache;
    char *path = join(folder, exists(folder, "model.onnx") ? "model.onnx" : "model.so");
    braid_status st = braid_load(path, &o, &m, &e);
    free(path);
    if (st) return failed(why, "", &e);
    so.threads = threads_of(c, braid_model_target(m));
    if (braid_session_new(m, &so, &s, &e)) {
        braid_model_free(m);
        return failed(why, "", &e);
    }
    if (c->seeded) braid_session_set_seed(s, (uint64_t)c->seed, &e);
    int n;
    Outcome outcome = PASSED;
    char **set = list(folder, "test_data_set_", &n);
    for (int i = 0; outcome == PASSED && i < n; i++) {
        char *dir = join(folder, set[i]);
        if (n > 1) sb_printf(why, "%s: ", set[i]);
        outcome = run_set(c, m, s, dir, why);
        if (outcome == PASSED) why->n = 0;
        free(dir);
    }
    free_names(set, n);
    braid_session_free(s);
    braid_model_free(m);
    return outcome;
}

/* ---- all tests, in the parent ---- */
typedef struct Job {
    pid_t pid; /* 0: free */
    int test;
    double deadline;
    FILE *result, *errors; /* temporary files, without names, that the child writes */
} Job;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void child(const Cli *c, const Job *j, const char *folder, const char *temp,
                            const sigset_t *mask) {
    Sb why = {0};
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, mask, NULL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    setenv("TMPDIR", temp, 1);
    dup2(fileno(j->errors), STDERR_FILENO);
    watch_leaks(true);
    char *cache = join(temp, "../cache");
    Outcome o = run_test(c, folder, cache, &why);
    free(cache);
    if (why.n) fwrite(why.p, 1, why.n, j->result);
    fflush(j->result);
    sb_free(&why);
    if (has_leaks()) abort(); /* _exit does not check for leaks */
    _exit(CHILD_EXIT + (int)o);
}

static bool start(const Cli *c, Job *j, int test, const char *folder, const char *temp,
                  const sigset_t *mask) {
    j->result = tmpfile();
    j->errors = tmpfile();
    if (j->result && j->errors && mkdir(temp, 0700) == 0) {
        j->test = test;
        j->deadline = now() + TIMEOUT_SECONDS;
        fflush(stdout);
        j->pid = fork();
        if (j->pid == 0) child(c, j, folder, temp, mask);
        if (j->pid > 0) return true;
    }
    j->pid = 0;
    return false;
}

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *f) {
    (void)s, (void)type, (void)f;
    remove(path);
    return 0;
}
static void remove_tree(const char *path) { nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

/* The text in f, or only its last line; malloc'd. */
static char *text_of(FILE *f, bool last_line) {
    Sb s = {0};
    char part[4096];
    rewind(f);
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) sb_write(&s, part, n);
    sb_puts(&s, "");
    while (s.n && s.p[s.n - 1] == '\n') s.p[--s.n] = 0;
    char *line = last_line ? strrchr(s.p, '\n') : NULL;
    if (line) memmove(s.p, line + 1, strlen(line + 1) + 1);
    for (char *p = s.p; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    return s.p;
}

/* Fills t's outcome when its child has ended. `killed`: why it was killed, or NULL. */
static void finish(Job *j, Test *t, int status, const char *killed) {
    Sb s = {0};
    char *text = text_of(j->result, false);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) - CHILD_EXIT : -1;
    t->ended = true;
    if (!killed && code >= PASSED && code <= SKIPPED) {
        t->outcome = (Outcome)code;
        sb_puts(&s, text);
    } else {
        char *last = text_of(j->errors, true);
        t->outcome = FAILED;
        if (killed)
            sb_puts(&s, killed);
        else if (WIFSIGNALED(status))
            sb_printf(&s, "crashed: %s", strsignal(WTERMSIG(status)));
        else
            sb_printf(&s, "ended with exit code %d", WEXITSTATUS(status));
        if (*last) sb_printf(&s, " (%s)", last);
        free(last);
    }
    t->message = s.p;
    free(text);
    fclose(j->result);
    fclose(j->errors);
    *j = (Job){0};
}

/* Runs all tests. False: a signal asked to stop, and some tests have not ended. This function waits
 * for signals synchronously: for SIGCHLD to go on at once, and for the signals that would otherwise
 * end the process and leave children and files behind. */
static bool run_all(const Cli *c, Tests *t, const char *temp) {
    sigset_t wait, mask;
    int got = 0;
    sigemptyset(&wait);
    sigaddset(&wait, SIGCHLD);
    sigaddset(&wait, SIGINT);
    sigaddset(&wait, SIGTERM);
    sigaddset(&wait, SIGHUP);
    sigprocmask(SIG_BLOCK, &wait, &mask);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int njob = c->jobs ? c->jobs : cpus > 0 ? (int)cpus : 1, next = 0, done = 0;
    bool show = isatty(STDERR_FILENO);
    Job *job = need(calloc((size_t)njob, sizeof *job));
    while (done < t->n && (got <= 0 || got == SIGCHLD)) {
        bool idle = true;
        for (int i = 0; i < njob; i++) {
            Job *j = &job[i];
            char own[16];
            snprintf(own, sizeof own, "%d", i);
            char *dir = join(temp, own);
            if (j->pid) {
                int status = 0;
                bool late = now() > j->deadline;
                if (late) kill(-j->pid, SIGKILL);
                pid_t ended;
                do ended = waitpid(j->pid, &status, late ? 0 : WNOHANG);
                while (ended < 0 && errno == EINTR);
                if (ended != 0) {
                    kill(-j->pid, SIGKILL); /* ends processes that the child left running */
                    finish(j, &t->p[j->test], status,
                           late ? "not done after " TEXT(TIMEOUT_SECONDS) " seconds" : NULL);
                    remove_tree(dir);
                    done++;
                    idle = false;
                }
            }
            if (!j->pid && next < t->n) {
                Test *test = &t->p[next];
                idle = false;
                if (!start(c, j, next++, test->folder, dir, &mask)) {
                    if (j->result) fclose(j->result);
                    if (j->errors) fclose(j->errors);
                    *j = (Job){0};
                    test->outcome = FAILED;
                    test->ended = true;
                    test->message =
                        need(strdup("cannot start a process or make a file for this test"));
                    done++;
                }
            }
            free(dir);
        }
        if (show) fprintf(stderr, "\r%d of %d", done, t->n);
        if (idle) got = sigtimedwait(&wait, NULL, &(struct timespec){.tv_nsec = 50000000});
    }
    if (show) fprintf(stderr, "\r%*s\r", 30, "");
    for (int i = 0; i < njob; i++) {
        if (!job[i].pid) continue;
        int status = 0;
        kill(-job[i].pid, SIGKILL);
        waitpid(job[i].pid, &status, 0);
        finish(&job[i], &t->p[job[i].test], status, "not done when the tests were stopped");
    }
    free(job);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return done == t->n;
}

int cmd_test(const Cli *c) {
    watch_leaks(false); /* a child does not free what it inherits */
    Tests t = {0};
    int count[3] = {0}, code = EXIT_DONE;
    /* A wrong target is wrong usage, not a failure of every test. */
    braid_error e;
    if (c->target && rt_target(c->target, &e)) return cli_usage("%s", e.message);
    for (int i = 0; i < c->narg; i++) {
        int before = t.n;
        struct stat s;
        if (stat(c->arg[i], &s) != 0)
            code = cli_fail(c->arg[i], "%s", strerror(errno));
        else {
            find_tests(c->arg[i], 0, &t);
            if (t.n == before) code = cli_fail(c->arg[i], "there is no test in this folder");
        }
    }
    if (code == EXIT_DONE) {
        const char *base = getenv("TMPDIR");
        char *temp = join(base && *base ? base : "/tmp", "braid-test.XXXXXX");
        if (!mkdtemp(temp))
            code = cli_fail(temp, "%s", strerror(errno));
        else {
            if (!run_all(c, &t, temp)) code = cli_fail(NULL, "stopped by a signal");
            remove_tree(temp);
            qsort(t.p, (size_t)t.n, sizeof *t.p, by_folder);
            for (int i = 0; i < t.n; i++) {
                Outcome o = t.p[i].outcome;
                if (!t.p[i].ended) continue;
                count[o]++;
                if (o == FAILED || (o == SKIPPED && c->verbose))
                    printf("%s %s: %s\n", o == FAILED ? "FAIL" : "SKIP", t.p[i].folder,
                           t.p[i].message ? t.p[i].message : "");
            }
            printf("%d passed, %d failed, %d skipped\n", count[PASSED], count[FAILED],
                   count[SKIPPED]);
            if (count[FAILED]) code = EXIT_FAULT;
        }
        free(temp);
    }
    for (int i = 0; i < t.n; i++) {
        free(t.p[i].folder);
        free(t.p[i].message);
    }
    free(t.p);
    return code;
}
