/* test_verify.c: the verifier finds damage of each kind. A Program is compiled, one field of it
 * spoiled, and utask_verify must die, in a process of its own, with the message for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/compile.h"
#include "utask/level.h"
#include "utask/walk.h"

/* ---- which statement is spoiled ---- */
static bool any(const Stmt *s) { return s->kind != S_COUNT; }
static bool op(const Stmt *s) { return s->kind == S_OP; }
static bool shared(const Stmt *s) { return op(s) && s->op.split; }
static bool alone(const Stmt *s) { return op(s) && !s->op.split; }
static bool check(const Stmt *s) { return s->kind == S_CHECK; }
static bool barrier(const Stmt *s) { return s->kind == S_BARRIER; }
static bool loop(const Stmt *s) { return s->kind == S_LOOP && s->loop.carry.n && s->loop.trips; }
static bool grown(const Stmt *s) { return loop(s) && s->loop.carry.p[0].phi->grow; }
static bool scan(const Stmt *s) { return s->kind == S_LOOP && s->loop.scan.n; }
static bool branch(const Stmt *s) { return s->kind == S_BRANCH && s->br.joins.n; }
static bool start(const Stmt *s) { return s->kind == S_CALL && s->call.nfunc; }

/* ---- how ---- */
#define CARRY s->loop.carry.p[0]
#define GROW s->loop.carry.p[0].phi->grow
#define FUNC s->call.func[0]
#define LEAD s->op.t[0]
/* X(model, statement, its damage, what the verifier says of it) */
#define DAMAGES(X)                                                                                 \
    X(lstm, any, s->path = NULL, "no path")                                                        \
    X(lstm, any, s->kind = S_COUNT, "unknown kind")                                                \
    X(lstm, op, s->level = 0, "of level 0")                                                        \
    X(lstm, op, s->level = LEVEL_COUNT, "of level 5")                                              \
    X(lstm, op, s->unit = 3, "by unit 3")                                                          \
    X(lstm, op, s->beside = true, "beside nothing")                                                \
    X(lstm, op, s->meet = MEET_GATHER, "in no way")                                                \
    X(reuse, check, s->each = true, "is no tensor")                                                \
    X(reuse, check, s->check.site = -1, "has no message")                                          \
    X(lstm, barrier, s->level = LEVEL_HOST, "of level 4")                                          \
    X(lstm, op, s->op.n = 0, "has 0 tensors")                                                      \
    X(lstm, shared, s->each = true, "no axis of its own")                                          \
    X(lstm, shared, s->op.grain = 0, "no axis of its own")                                         \
    X(lstm, shared, s->op.split = axis_new(p->cx, e_int(p->cx, 4)), "no axis of its own")          \
    X(lstm, shared, s->op.edge = 1, "edge of nothing")                                             \
    X(lstm, shared, s->op.inner = e_num(p->cx, DT_F32, 1), "has type float32")                     \
    X(lstm, op, s->op.kernel = NULL, "no kernel")                                                  \
    X(lstm, op, LEAD->dtype = (DType)99, "no dtype")                                               \
    X(lstm, op, LEAD->rank = 99, "has rank 99")                                                    \
    X(lstm, op, LEAD->dim[0] = NULL, "no dim 0")                                                   \
    X(lstm, alone, LEAD->axis[0] = NULL, "no axis 0")                                              \
    X(lstm, alone, LEAD->axis[0] = axis_new(p->cx, e_int(p->cx, 77)), "not as long")               \
    X(lstm, op, LEAD->body = NULL, "no fitting body")                                              \
    X(lstm, op, LEAD->kind = TK_VIEW, "has the wrong kind")                                        \
    X(lstm, op, LEAD->seq = NULL, "defined elsewhere")                                             \
    X(lstm, op, LEAD->fused = true, "fused, yet defined")                                          \
    X(lstm, op, LEAD->ret = -1, "is no result")                                                    \
    X(lstm, op, LEAD->plan = NULL, "has no place")                                                 \
    X(lstm, op, LEAD->base = LEAD, "behind another, but whole")                                    \
    X(lstm, loop, s->loop.trips = e_num(p->cx, DT_F32, 1), "has type float32")                     \
    X(lstm, loop, s->loop.iter = NULL, "no counter")                                               \
    X(lstm, loop, s->loop.iter->scope = NULL, "another scope")                                     \
    X(lstm, loop, s->loop.iter->hi = -1, "no possible value")                                      \
    X(lstm, loop, s->loop.cap_site = -1, "has no message")                                         \
    X(lstm, loop, s->loop.body->owner = NULL, "in the wrong place")                                \
    X(lstm, loop, s->loop.body->depth = 7, "at the wrong depth")                                   \
    X(lstm, loop, s->loop.copies = !s->loop.copies, "changes in place")                            \
    X(lstm, loop, s->loop.barrier = s->loop.block_barrier = true, "where all units do")            \
    X(lstm, loop, CARRY.init = NULL, "no beginning")                                               \
    X(lstm, loop, CARRY.next = CARRY.init, "made elsewhere")                                       \
    X(lstm, loop, CARRY.next->owned = false, "is not owned")                                       \
    X(lstm, loop, CARRY.inplace = true, "computed whole")                                          \
    X(lstm, loop, CARRY.push = true, "is no sequence")                                             \
    X(scan, scan, s->loop.scan.p[0].elem = NULL, "has no elements")                                \
    X(scan, scan, s->loop.scan.p[0].more = true, "before it is defined")                           \
    X(grow, grown, GROW->axis = 9, "another one's buffer")                                         \
    X(grow, grown, GROW->phi = NULL, "another one's buffer")                                       \
    X(grow, grown, GROW->first = NULL, "without room")                                             \
    X(grow, grown, GROW->spaced = !GROW->spaced, "without an extent")                              \
    X(grow, grown, CARRY.next->grow = NULL, "another one's buffer")                                \
    X(tree, branch, s->br.cond = NULL, "no condition")                                             \
    X(tree, branch, s->br.joins.p[0].arm[0] = NULL, "gives nothing")                               \
    X(grow, branch, s->br.joins.p[0].out->dtype = DT_BOOL, "changes its dtype")                    \
    X(tree, start, FUNC->start = NULL, "a call of nothing")                                        \
    X(tree, start, FUNC->id = 99, "out of range")                                                  \
    X(tree, start, FUNC->rows = NEW(p->cx->a, Sym), "not its first parameter")                     \
    X(tree, start, FUNC->inside = -1, "-1 levels")                                                 \
    X(tree, start, FUNC->frame = -1, "frame of -1 bytes")                                          \
    X(tree, start, FUNC->room[0] = !FUNC->room[0], "goes elsewhere")                               \
    X(tree, start, FUNC->site = -1, "has no message")                                              \
    X(lstm, any, p->stage = STAGE_PLACED, "too early")                                             \
    X(lstm, any, p->stage = STAGE_CHOSEN, "memory is planned")                                     \
    X(lstm, any, p->stage = STAGE_COUNT, "without a schedule")                                     \
    X(lstm, any, p->schedule = NULL, "without a schedule")                                         \
    X(lstm, any, p->mem = NULL, "memory is planned")                                               \
    X(lstm, any, p->out[0].t = NULL, NULL)

static int bad;

static const char *const fields[] = {
#define X(model, is, damage, says) #damage,
    DAMAGES(X)
#undef X
};
typedef struct Row {
    const char *model;
    bool (*is)(const Stmt *s);
    const char *says; /* NULL: nothing is wrong */
} Row;
static const Row rows[] = {
#define X(model, is, damage, says) {#model, is, says},
    DAMAGES(X)
#undef X
};

static void spoil(Program *p, Stmt *s, int row) {
    int i = 0;
#define X(model, is, damage, says)                                                                 \
    if (i++ == row) damage;
    DAMAGES(X)
#undef X
}

typedef struct Find {
    bool (*is)(const Stmt *s);
    Stmt *s;
} Find;

static bool found(void *user, const Stmt *s) {
    Find *f = user;
    if (f->is(s)) f->s = (Stmt *)(uintptr_t)s;
    return f->s != NULL;
}

/* What the verifier says of p, in a process that it may end. */
static void verify_apart(const Program *p, const char *says, const char *field) {
    int pipes[2], status;
    char text[1024];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        utask_verify(p);
        _exit(0);
    }
    close(pipes[1]);
    size_t n = 0;
    for (ssize_t k; n < sizeof text - 1 && (k = read(pipes[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)k;
    text[n] = 0;
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    const bool good = says
                          ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, says)
                          : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!good)
        print_error("%s: not '%s' but: %s\n", field, says ? says : "", n ? text : "nothing\n");
    bad += !good;
}

static void damage_one(const Row *row) {
    const CompileOptions o = {.target = "cpu", .units = 4, .schedule = "linearize=off,batch=off"};
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.onnx", BRAID_GOLDEN, row->model);
    Diag d = {0};
    jmp_buf jb;
    d.top = &jb;
    Arena *volatile a = NULL;
    if (setjmp(jb)) fail_msg("%s: %s", row->model, d.message);
    a = arena_new(&d);
    Program *p = compile_program(a, &d, path, &o);
    Find f = {row->is, NULL};
    const char *field = fields[row - rows];
    seq_any(p->top, found, &f);
    if (!f.s) fail_msg("%s: there is no statement for it in %s", field, row->model);
    spoil(p, f.s, (int)(row - rows));
    verify_apart(p, row->says, field);
    arena_free(a);
}

static void test_damage(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) damage_one(&rows[i]);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
