/* progress.c: tells the caller of a long call what is being done, and asks whether to go on. */
#include <time.h>

#include "base/base.h"

#if BRAID_TINY /* every tick asks, so that tests can give up anywhere */
#define PROGRESS_SECONDS 0.0
#else
#define PROGRESS_SECONDS 0.2
#endif

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_begin(Progress *p, ProgressFn *tell, void *user) {
    *p = (Progress){.tell = tell, .user = user, .begin = now()};
}

bool progress_step(Progress *p, const char *fmt, ...) {
    if (!p) return true;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->step, sizeof p->step, fmt, ap);
    va_end(ap);
    p->told = -1;
    return progress_ask(p);
}

bool progress_ask(Progress *p) {
    if (!p) return true;
    if (p->cancelled || !*p->step) return !p->cancelled;
    const double t = now() - p->begin;
    if (p->told >= 0 && t - p->told < PROGRESS_SECONDS) return true;
    p->told = t;
    p->cancelled = !p->tell(p->user, p->step, t);
    return !p->cancelled;
}

void progress_tick(Diag *d) {
    if (!progress_ask(d->progress)) err(d, ST_CANCELLED, NULL, "cancelled");
}
