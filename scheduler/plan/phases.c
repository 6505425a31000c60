/* phases.c: see phases.h. */
#include "scheduler/plan/phases.h"
#include "scheduler/cost/device.h"
#include "scheduler/plan/library.h"

bool phase_is_idle(const Program *p, int at) {
    const Seq *q = p->top;
    while (--at >= 0 && q->s.p[at]->level != LEVEL_HOST)
        if (q->s.p[at]->kind != S_LET || !library_host_value(p, q->s.p[at]->let.e)) return false;
    return true;
}

void phases_count(const Program *p, int *launches, int *products) {
    *launches = *products = 0;
    for (int i = 0; i < p->top->s.n; i++) {
        if (p->top->s.p[i]->level != LEVEL_HOST) continue;
        ++*products;
        *launches += !phase_is_idle(p, i);
    }
    if (*products) ++*launches;
}
