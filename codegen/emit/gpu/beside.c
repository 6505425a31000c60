/* beside.c: prints groups that run side by side on the warps of a block (scheduler/plan/beside.h).
 *
 * A warp takes one group after the other; each group's function is called where a warp has it, so
 * that nothing diverges within a warp. */
#include "codegen/emit/emit_tree.h"
#include "scheduler/plan/beside.h"

void emit_beside(Tree *x, const Seq *q, int *at) {
    Fn *f = &x->f;
    Emit *em = x->em;
    const Device *d = em->p->schedule->device;
    const int first = *at;
    const int n = beside_run(q, first), teams = d->threads / q->s.p[first]->op.team;
    for (int i = first; i < first + n; i++) {
        const Stmt *s = q->s.p[i];
        for (int k = 0; k < s->op.n; k++) tree_place(x, s->op.t[k], tree_bytes(x, s->op.t[k]));
    }
    /* A profile's events follow each other: the first group has the time of all. */
    for (int i = first + 1; i < first + n; i++) {
        probe_begin(x, q->s.p[i]);
        probe_end(x, q->s.p[i]);
    }
    probe_begin(x, q->s.p[first]);
    const Scope out = fn_here(f);
    const char *member = "(int)bk_warp()";
    if (n > teams) {
        fn_open(f, "for (int member = %s; member < %d; member += %d) {", member, n, teams);
        member = "member";
    }
    fn_open(f, "switch (%s) { /* side by side */", member);
    for (int i = 0; i < n; i++) {
        fn_line(f, "case %d:", i);
        f->indent++;
        emit_group(em, f, &x->decl, q->s.p[first + i], false);
        fn_line(f, "break;");
        f->indent--;
    }
    fn_close(f, out);
    probe_end(x, q->s.p[first]);
    *at = first + n - 1;
}
