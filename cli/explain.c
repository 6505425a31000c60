/* explain.c: braid explain. */
#include "cli/cli.h"
#include "codegen/compile.h"

static const char *const stmt_names[S_COUNT] = {
    [S_LET] = "uniform", [S_OP] = "op",     [S_EXTERN] = "extern",
    [S_CHECK] = "check", [S_LOOP] = "loop", [S_BRANCH] = "branch"};

static void count_stmts(const Seq *q, int64_t *n) {
    for (int i = 0; q && i < q->s.n; i++) {
        const Stmt *s = q->s.p[i];
        n[s->kind]++;
        if (s->kind == S_LOOP) count_stmts(s->loop.body, n);
        if (s->kind == S_BRANCH) {
            count_stmts(s->br.arm[0], n);
            count_stmts(s->br.arm[1], n);
        }
    }
}

static void print_io(Sb *s, bool json, const char *what, int n, const Io *io) {
    if (json) sb_printf(s, "\"%s\": [", what);
    for (int i = 0; i < n; i++) {
        const Tensor *t = io[i].t;
        bool sequence = io[i].opt_seq || io[i].kind == VT_SEQUENCE;
        if (json) {
            sb_puts(s, i ? ", {\"name\": " : "{\"name\": ");
            cli_print_json(s, io[i].name);
            sb_puts(s, ", \"type\": \"");
        } else
            sb_printf(s, "%s %s ", what, io[i].name);
        if (io[i].has) sb_puts(s, "optional ");
        if (sequence) {
            const VType *v = io[i].type;
            while (v && v->kind != VT_TENSOR) v = v->elem;
            sb_printf(s, "sequence of %s", v ? dtype_name(v->dtype) : "any type");
        } else {
            sb_puts(s, dtype_name(t->dtype));
            sb_puts(s, t->rank < 0 ? "[...]" : "[");
            for (int d = 0; d < t->rank; d++) {
                int64_t k;
                if (d) sb_puts(s, ",");
                if (e_is_int(t->dim[d], &k))
                    sb_printf(s, "%lld", (long long)k);
                else
                    e_print(s, t->dim[d]);
            }
            if (t->rank >= 0) sb_puts(s, "]");
        }
        sb_puts(s, json ? "\"}" : "\n");
    }
    if (json) sb_puts(s, "]");
}

typedef struct Work {
    Diag d;
    Arena *arena;
    Sb text;
    FoldSpec fold;
    CompileOptions o;
} Work;

/* All that changes is behind `w`, so that an error can unwind to here. */
static bool explain(Work *w, const Cli *c) {
    jmp_buf jb;
    w->d.top = &jb;
    if (setjmp(jb) == 0) {
        w->arena = arena_new(&w->d);
        Program *p = compile_program(w->arena, &w->d, c->arg[0], &w->o);
        int64_t n[S_COUNT] = {0};
        count_stmts(p->top, n);
        if (c->json) {
            sb_puts(&w->text, "{\"model\": ");
            cli_print_json(&w->text, c->arg[0]);
            sb_puts(&w->text, ", ");
            print_io(&w->text, true, "inputs", p->nin, p->in);
            sb_puts(&w->text, ", ");
            print_io(&w->text, true, "outputs", p->nout, p->out);
            sb_puts(&w->text, ", \"statements\": {");
            for (int i = 0; i < S_COUNT; i++)
                sb_printf(&w->text, "%s\"%s\": %lld", i ? ", " : "", stmt_names[i],
                          (long long)n[i]);
            sb_puts(&w->text, "}}\n");
        } else {
            print_io(&w->text, false, "input", p->nin, p->in);
            print_io(&w->text, false, "output", p->nout, p->out);
            for (int i = 0; i < S_COUNT; i++)
                sb_printf(&w->text, "%s%lld %s", i ? ", " : "statements: ", (long long)n[i],
                          stmt_names[i]);
            sb_puts(&w->text, "\n\n");
            utask_print(&w->text, p);
        }
    }
    w->d.top = NULL;
    return w->d.status == ST_OK;
}

int cmd_explain(const Cli *c) {
    Work w = {0};
    w.o = (CompileOptions){.target = c->target ? c->target : "cpu", .cpu = c->cpu};
    if (strcmp(w.o.target, "cpu") != 0 && strcmp(w.o.target, "interp") != 0)
        return cli_usage("target '%s' is not available in this build", w.o.target);
    if (c->nscan || c->ncarry) {
        w.fold = (FoldSpec){c->nscan,     c->ncarry,      c->scan_input,
                            c->scan_axis, c->carry_input, c->carry_output};
        w.o.fold = &w.fold;
    }
    int code = EXIT_DONE;
    if (explain(&w, c))
        fwrite(w.text.p, 1, w.text.n, stdout);
    else {
        braid_error e = {.status = (braid_status)w.d.status};
        snprintf(e.message, sizeof e.message, "%s", w.d.message);
        code = cli_error(c->arg[0], &e);
    }
    sb_free(&w.text);
    arena_free(w.arena);
    return code;
}
