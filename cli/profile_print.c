/* profile_print.c: a profile as a table and as a trace, from its JSON. */
#include <math.h>
#include <stdlib.h>

#include "cli/profile.h"

/* ---- reading --------------------------------------------------------------------------------- */
typedef struct View {
    const json_t *parts;
    int n, units;
    double runs, run_ns;
    int *depth;
    double *waited; /* ns of all units at barriers in a part */
} View;

static const char *text_of(const json_t *part, const char *key) {
    const char *s = json_string_value(json_object_get(part, key));
    return s ? s : "";
}
static const json_t *part_at(const View *v, int i) { return json_array_get(v->parts, (size_t)i); }
static bool is_kind(const json_t *part, const char *kind) {
    return strcmp(text_of(part, "kind"), kind) == 0;
}
static double number_of(const json_t *part, const char *key) {
    return json_number_value(json_object_get(part, key));
}
/* Number of a unit; NAN where there is none. */
static double unit_of(const json_t *part, const char *key, int unit) {
    const json_t *x = json_array_get(json_object_get(part, key), (size_t)unit);
    return json_is_number(x) ? json_number_value(x) : NAN;
}
static double sum_of(const View *v, const json_t *part, const char *key) {
    double sum = 0;
    for (int u = 0; u < v->units; u++) {
        const double x = unit_of(part, key, u);
        sum += isnan(x) ? 0 : x;
    }
    return sum;
}
/* The least and the most of the units that executed it; both NAN if none did. */
static void range_of(const View *v, const json_t *part, const char *key, double *lo, double *hi) {
    *lo = *hi = NAN;
    for (int u = 0; u < v->units; u++) {
        const double x = unit_of(part, key, u);
        if (isnan(x) || !(unit_of(part, "executions", u) > 0)) continue;
        *lo = fmin(*lo, x); /* a NAN gives way */
        *hi = fmax(*hi, x);
    }
}

static View view_of(const json_t *profile) {
    View v = {.parts = json_object_get(profile, "parts"),
              .units = (int)number_of(profile, "units"),
              .runs = number_of(profile, "runs"),
              .run_ns = number_of(profile, "run_ns")};
    v.n = (int)json_array_size(v.parts);
    v.depth = calloc((size_t)v.n + 1, sizeof *v.depth);
    v.waited = calloc((size_t)v.n + 1, sizeof *v.waited);
    if (!v.depth || !v.waited) die("out of memory");
    for (int i = 1; i < v.n; i++)
        v.depth[i] = v.depth[(int)number_of(part_at(&v, i), "parent")] + 1;
    for (int i = v.n - 1; i > 0; i--) { /* inner parts first */
        const json_t *part = part_at(&v, i);
        if (is_kind(part, "barrier")) v.waited[i] = sum_of(&v, part, "ns");
        v.waited[(int)number_of(part, "parent")] += v.waited[i];
    }
    return v;
}
static void view_free(View *v) {
    free(v->depth);
    free(v->waited);
}

/* "loop /path", "barrier iteration", … */
static void put_label(Sb *s, const json_t *part) {
    const char *name = text_of(part, "name"), *path = text_of(part, "path");
    const bool barrier = is_kind(part, "barrier"), function = is_kind(part, "function");
    if (is_kind(part, "arm")) {
        sb_puts(s, name);
        return;
    }
    sb_puts(s, text_of(part, "kind"));
    if (barrier || function || is_kind(part, "body") || !*path)
        sb_printf(s, "%s%s", *name ? " " : "", name);
    if (!barrier && !function && *path) sb_printf(s, " %s", path);
}

/* ---- the table ------------------------------------------------------------------------------- */
#define LABEL_WIDTH 60

/* The part, indented by its depth. Of a path that is too long the end is printed. */
static void put_indented(Sb *s, const json_t *part, int depth) {
    Sb label = {0};
    const int room = LABEL_WIDTH - (depth < 16 ? depth : 16);
    put_label(&label, part);
    const char *tail = strrchr(label.p, ' ') ? label.p + strcspn(label.p, " ") + 1 : label.p;
    const int head = (int)(tail - label.p), over = (int)label.n - room;
    sb_printf(s, "%*s", LABEL_WIDTH - room, "");
    if (over > 0 && head + 2 < room)
        sb_printf(s, "%.*s..%s", head, label.p, tail + over + 2);
    else
        sb_printf(s, "%-*s", room, label.p);
    sb_free(&label);
}

static void put_cell(Sb *s, int width, int digits, double x) {
    if (isnan(x))
        sb_printf(s, " %*s", width, "-");
    else
        sb_printf(s, " %*.*f", width, digits, x);
}

/* Executions and trips are those of the unit that has most. */
static void put_row(Sb *s, const View *v, int i) {
    const json_t *part = part_at(v, i);
    const bool loop = is_kind(part, "loop");
    const int every = (int)number_of(part, "every");
    double lo, hi, all, least, trips = NAN, sum = sum_of(v, part, "ns");
    put_indented(s, part, v->depth[i]);
    range_of(v, part, "executions", &least, &all);
    range_of(v, part, "ns", &lo, &hi);
    if (loop) range_of(v, part, "trips", &least, &trips);
    sb_printf(s, " %-7s", text_of(part, "level"));
    put_cell(s, 11, 2, hi / v->runs / 1e3);
    sb_puts(s, every > 1 ? "~" : " ");
    put_cell(s, 6, 1, 100 * hi / v->run_ns);
    put_cell(s, 10, 2, isnan(all) ? 0 : all / v->runs);
    put_cell(s, 10, 2, loop ? trips / v->runs : NAN);
    put_cell(s, 6, 1, v->units > 1 && sum > 0 ? fmin(100, 100 * v->waited[i] / sum) : NAN);
    put_cell(s, 11, 2, v->units > 1 ? lo / v->runs / 1e3 : NAN);
    sb_puts(s, "\n");
}

/* What the table leaves out: depths, and barriers. */
static void put_totals(Sb *s, const View *v) {
    double waits = 0, waited = v->waited[0], deepest = 0, activations = 0;
    for (int i = 0; i < v->n; i++) {
        const json_t *part = part_at(v, i);
        if (is_kind(part, "barrier")) waits += sum_of(v, part, "executions");
        if (!is_kind(part, "function") && !is_kind(part, "activation")) continue;
        for (int u = 0; u < v->units; u++) deepest = fmax(deepest, unit_of(part, "deepest", u));
        double least, most;
        range_of(v, part, "executions", &least, &most);
        if (!isnan(most)) activations += most;
    }
    if (v->units > 1)
        sb_printf(s, "barriers: %.1f per run and unit, %.2f us per run and unit spent waiting\n",
                  waits / v->units / v->runs, waited / v->units / v->runs / 1e3);
    if (deepest > 0)
        sb_printf(s, "recursion: %.1f activations per run, the deepest %.0f deep\n",
                  activations / v->runs, deepest);
}

void profile_print(Sb *s, const char *model, const json_t *profile) {
    View v = view_of(profile);
    sb_printf(s, "%s: %s, %d unit%s, %.0f run%s of %.2f us (clock: %s)\n", model,
              text_of(profile, "target"), v.units, v.units == 1 ? "" : "s", v.runs,
              v.runs == 1 ? "" : "s", v.run_ns / v.runs / 1e3, text_of(profile, "clock"));
    sb_printf(s, "%-*s %-7s %11s  %6s %10s %10s %6s %11s\n", LABEL_WIDTH, "part", "level", "us/run",
              "% run", "times/run", "trips/run", "wait %", "least us");
    bool sampled = false;
    for (int i = 0; i < v.n; i++) {
        put_row(s, &v, i);
        sampled |= number_of(part_at(&v, i), "every") > 1;
    }
    sb_puts(s, "us/run: of the unit that took longest, inner parts included; least us: of the one "
               "that took least; -: not measured\n");
    if (sampled) sb_puts(s, "~: sampled, and scaled to all executions\n");
    put_totals(s, &v);
    view_free(&v);
}

/* ---- the trace ------------------------------------------------------------------------------- */
typedef struct Open {
    double end;
    int part;
} Open;

static void put_head(Sb *s, const char *ph, int unit, double ns) {
    sb_printf(s, ",\n{\"ph\": \"%s\", \"pid\": 1, \"tid\": %d, \"ts\": %.4f", ph, unit, ns / 1e3);
}

static void put_end(Sb *s, int unit, const Open *o) {
    put_head(s, "E", unit, o->end);
    sb_puts(s, "}");
}

static void put_begin(Sb *s, const View *v, int unit, int i, double ns) {
    const json_t *part = part_at(v, i);
    Sb label = {0};
    put_label(&label, part);
    put_head(s, "B", unit, ns);
    sb_puts(s, ", \"name\": ");
    sb_json(s, label.p);
    sb_puts(s, ", \"cat\": ");
    sb_json(s, text_of(part, "kind"));
    sb_printf(s, ", \"args\": {\"part\": %d, \"path\": ", i);
    sb_json(s, text_of(part, "path"));
    sb_puts(s, ", \"level\": ");
    sb_json(s, text_of(part, "level"));
    sb_printf(s, ", \"timed one in\": %d}}", (int)number_of(part, "every"));
    sb_free(&label);
}

/* A loop's trips as a counter, which steps when the loop begins. */
static void put_trips(Sb *s, const View *v, int unit, int i, double ns, double trips) {
    sb_printf(s, ",\n{\"ph\": \"C\", \"pid\": 1, \"tid\": %d, \"ts\": %.4f, \"name\": ", unit,
              ns / 1e3);
    Sb label = {0};
    sb_printf(&label, "trips of loop %s, unit %d", text_of(part_at(v, i), "path"), unit);
    sb_json(s, label.p);
    sb_printf(s, ", \"args\": {\"trips\": %.0f}}", trips);
    sb_free(&label);
}

static void put_names(Sb *s, const View *v, const char *model, const json_t *profile) {
    Sb name = {0};
    sb_printf(&name, "%s (%s)", model, text_of(profile, "target"));
    sb_puts(s, "{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": {\"name\": ");
    sb_json(s, name.p);
    sb_puts(s, "}}");
    sb_free(&name);
    for (int u = 0; u < v->units; u++)
        sb_printf(s,
                  ",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %d, \"name\": \"thread_name\", "
                  "\"args\": {\"name\": \"unit %d\"}}",
                  u, u);
}

void profile_trace(Sb *s, const char *model, const json_t *profile) {
    View v = view_of(profile);
    const json_t *events = json_object_get(json_object_get(profile, "timeline"), "events");
    const size_t n = json_array_size(events);
    Open *open = calloc(n + 1, sizeof *open);
    if (!open) die("out of memory");
    size_t nopen = 0;
    int unit = 0;
    sb_puts(s, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
    put_names(s, &v, model, profile);
    for (size_t i = 0; i <= n; i++) {
        const json_t *e = json_array_get(events, i);
        const double begin = json_number_value(json_array_get(e, 2));
        const int of = i < n ? (int)json_number_value(json_array_get(e, 0)) : -1;
        while (nopen && (of != unit || open[nopen - 1].end <= begin))
            put_end(s, unit, &open[--nopen]);
        if (i == n) break;
        unit = of;
        const int part = (int)json_number_value(json_array_get(e, 1));
        const double end = json_number_value(json_array_get(e, 3));
        put_begin(s, &v, unit, part, begin);
        if (is_kind(part_at(&v, part), "loop"))
            put_trips(s, &v, unit, part, begin, json_number_value(json_array_get(e, 4)));
        open[nopen++] = (Open){end, part};
    }
    sb_puts(s, "\n]}\n");
    free(open);
    view_free(&v);
}
