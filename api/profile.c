/* profile.c: what a program that measures itself counted, as JSON (README.md describes it). */
#include <stdlib.h>

#include "api/runtime.h"

static const char *const kinds[] = {[BRAID_PART_PROGRAM] = "program",
                                    [BRAID_PART_LOOP] = "loop",
                                    [BRAID_PART_BRANCH] = "branch",
                                    [BRAID_PART_ARM] = "arm",
                                    [BRAID_PART_CALL] = "call",
                                    [BRAID_PART_FUNCTION] = "function",
                                    [BRAID_PART_ACTIVATION] = "activation",
                                    [BRAID_PART_GROUP] = "group",
                                    [BRAID_PART_BODY] = "body",
                                    [BRAID_PART_PRODUCT] = "product",
                                    [BRAID_PART_BARRIER] = "barrier"};

static void put_text(Sb *s, const char *key, const char *text) {
    sb_printf(s, ", \"%s\": ", key);
    if (text)
        sb_json(s, text);
    else
        sb_puts(s, "null");
}

/* The counts of one part, by unit. */
typedef struct Counts {
    const braid_part_count_v1 *first;
    int nunit, npart;
} Counts;

static void put_counts(Sb *s, const char *key, const Counts *c, size_t field) {
    sb_printf(s, ", \"%s\": [", key);
    for (int u = 0; u < c->nunit; u++) {
        const char *count = (const char *)(c->first + (ptrdiff_t)u * c->npart);
        int64_t v;
        memcpy(&v, count + field, sizeof v);
        sb_printf(s, "%s%lld", u ? ", " : "", (long long)v);
    }
    sb_puts(s, "]");
}
#define COUNT_FIELD(field) offsetof(braid_part_count_v1, field)

/* Times, scaled from the timed executions to all. */
static void put_times(Sb *s, const braid_part_v1 *p, const Counts *c) {
    if (!p->every) {
        sb_puts(s, ", \"ns\": null");
        return;
    }
    sb_puts(s, ", \"ns\": [");
    for (int u = 0; u < c->nunit; u++) {
        const braid_part_count_v1 *n = c->first + (ptrdiff_t)u * c->npart;
        if (u) sb_puts(s, ", ");
        if (n->executions && !n->timed)
            sb_puts(s, "null");
        else
            sb_printf(s, "%.1f", n->timed ? n->ns * (double)n->executions / (double)n->timed : 0.0);
    }
    sb_puts(s, "]");
}

static void put_part(Sb *s, const braid_profile_v1 *f, int i) {
    const braid_part_v1 *p = &f->part[i];
    const Counts c = {f->count + i, f->nunit, f->npart};
    const bool known = p->kind >= 0 && p->kind < (int)COUNT(kinds);
    sb_printf(s, "%s\n  {\"id\": %d, \"parent\": ", i ? "," : "", i);
    if (p->parent < 0)
        sb_puts(s, "null");
    else
        sb_printf(s, "%d", (int)p->parent);
    put_text(s, "kind", known ? kinds[p->kind] : "other");
    put_text(s, "path", p->path ? p->path : "");
    put_text(s, "name", p->name);
    put_text(s, "level", p->level);
    if (p->statement < 0)
        sb_puts(s, ", \"statement\": null");
    else
        sb_printf(s, ", \"statement\": %d", (int)p->statement);
    sb_printf(s, ", \"every\": %d", (int)p->every);
    put_counts(s, "executions", &c, COUNT_FIELD(executions));
    put_counts(s, "timed", &c, COUNT_FIELD(timed));
    put_times(s, p, &c);
    if (p->kind == BRAID_PART_LOOP) {
        sb_printf(s, ", \"step\": %d", (int)p->step);
        put_counts(s, "trips", &c, COUNT_FIELD(trips));
        put_counts(s, "trips_min", &c, COUNT_FIELD(least));
        put_counts(s, "trips_max", &c, COUNT_FIELD(most));
    }
    if (p->kind == BRAID_PART_FUNCTION || p->kind == BRAID_PART_ACTIVATION)
        put_counts(s, "deepest", &c, COUNT_FIELD(most));
    sb_puts(s, "}");
}

/* By begin; of two that begin at once the one around the other first. */
static int by_begin(const void *a, const void *b) {
    const braid_event_v1 *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
    return x->part - y->part;
}

static bool put_timeline(Sb *s, const braid_profile_v1 *f) {
    int64_t n = 0, at = 0;
    for (int u = 0; u < f->nunit; u++) n += f->nevent[u];
    braid_event_v1 *e = malloc(((size_t)n + 1) * sizeof *e);
    if (!e) return false;
    if (n) memcpy(e, f->event, (size_t)n * sizeof *e);
    sb_puts(s, "\n ],\n \"timeline\": {\"dropped\": [");
    for (int u = 0; u < f->nunit; u++)
        sb_printf(s, "%s%lld", u ? ", " : "", (long long)f->dropped[u]);
    sb_puts(s, "], \"events\": [");
    for (int u = 0; u < f->nunit; at += f->nevent[u], u++) {
        if (f->nevent[u]) qsort(e + at, (size_t)f->nevent[u], sizeof *e, by_begin);
        for (int64_t i = at; i < at + f->nevent[u]; i++)
            sb_printf(s, "%s\n  [%d, %d, %.1f, %.1f, %u]", i ? "," : "", u, (int)e[i].part,
                      e[i].begin_ns, e[i].end_ns, (unsigned)e[i].trips);
    }
    sb_puts(s, "\n ]}}\n");
    free(e);
    return true;
}

braid_status braid_session_profile(braid_session *s, char **json, braid_error *e) {
    if (!s || !json) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    braid_session *last = rt_last_session(s);
    if (last) return braid_session_profile(last, json, e);
    const braid_model_v1 *lib = s->model->lib;
    if (s->model->open) return rt_fail(e, BRAID_USAGE, "there was no run to profile");
    if (!lib || !lib->profile)
        return rt_fail(e, BRAID_USAGE, "%s",
                       lib ? "the library was compiled without a profile"
                           : "the interpreter does not measure itself");
    Sb text = {0};
    pthread_mutex_lock(&s->lock);
    const braid_profile_v1 *f = lib->profile(s->lib_session);
    const bool ran = f && f->runs;
    bool good = ran;
    if (ran) {
        sb_puts(&text, "{\"format\": 1, \"model\": ");
        sb_json(&text, s->model->name ? s->model->name : "");
        put_text(&text, "target", s->model->target);
        sb_printf(&text, ", \"units\": %d, \"runs\": %lld, \"run_ns\": %.1f", (int)f->nunit,
                  (long long)f->runs, f->run_ns);
        put_text(&text, "clock", f->clock);
        sb_puts(&text, ",\n \"parts\": [");
        for (int i = 0; i < f->npart; i++) put_part(&text, f, i);
        good = put_timeline(&text, f) && !text.failed;
    }
    pthread_mutex_unlock(&s->lock);
    if (good) {
        *json = text.p;
        return BRAID_OK;
    }
    sb_free(&text);
    return f && !ran ? rt_fail(e, BRAID_USAGE, "there was no run to profile")
                     : rt_fail(e, BRAID_MEMORY, "out of memory for the profile");
}

void braid_text_free(char *text) { free(text); }
