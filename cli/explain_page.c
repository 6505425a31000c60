/* explain_page.c: writes the page of braid explain --html: page.html with style, scripts and data
 * in it. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/explain.h"
#include "api/runtime.h"

static const char *member(const json_t *object, const char *key) {
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

static bool is_positive(const json_t *x) { return json_number_value(x) > 0; }

/* A list of so many numbers; some may be null. */
static bool is_numbers(const json_t *list, size_t n, bool null) {
    const json_t *x;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) != n) return false;
    json_array_foreach(list, i,
                       x) if (!json_is_number(x) && !(null && json_is_null(x))) return false;
    return true;
}

/* Whether the members are there that the page looks at. */
static bool is_profile(const json_t *profile) {
    const json_t *parts = json_object_get(profile, "parts"), *part, *event;
    const json_t *timeline = json_object_get(profile, "timeline");
    const json_int_t units = json_integer_value(json_object_get(profile, "units"));
    size_t i;
    if (!json_is_array(parts) || units < 1 || !is_positive(json_object_get(profile, "runs")) ||
        !is_positive(json_object_get(profile, "run_ns")))
        return false;
    json_array_foreach(parts, i, part) {
        const json_t *ns = json_object_get(part, "ns"), *trips = json_object_get(part, "trips");
        if (!json_is_integer(json_object_get(part, "id")) ||
            !json_is_string(json_object_get(part, "kind")) ||
            !is_numbers(json_object_get(part, "executions"), (size_t)units, false) ||
            (!json_is_null(ns) && !is_numbers(ns, (size_t)units, true)) ||
            (trips && !is_numbers(trips, (size_t)units, false)))
            return false;
    }
    if (timeline && !json_is_array(json_object_get(timeline, "events"))) return false;
    json_array_foreach(json_object_get(timeline, "events"), i, event) {
        const json_t *unit = json_array_get(event, 0);
        if (!is_numbers(event, 5, false) || !json_is_integer(unit) ||
            json_integer_value(unit) < 0 || json_integer_value(unit) >= units)
            return false;
    }
    return true;
}

/* Whether a part with this kind may stand for a place inside of a statement: an arm, a function, a
 * barrier. */
static bool is_inside(const char *kind) {
    return strcmp(kind, "arm") == 0 || strcmp(kind, "function") == 0 ||
           strcmp(kind, "barrier") == 0;
}

/* Whether the profile's parts are parts of this tree: the model, the target, the number of threads
 * and the choices must be those of the profile. */
static int fits(const char *path, const json_t *profile, const Explained *x) {
    const json_t *parts = json_object_get(profile, "parts");
    json_t *part;
    size_t i;
    json_array_foreach(parts, i, part) {
        const json_t *number = json_object_get(part, "statement");
        if (!json_is_integer(number)) continue; /* the program as a whole */
        const json_int_t at = json_integer_value(number);
        const char *here = at >= 0 && at < x->kind.n ? x->kind.p[at] : NULL;
        const char *kind = member(part, "kind");
        if (here && (is_inside(kind) || strcmp(kind, here) == 0)) continue;
        return cli_fail(path,
                        "it is of another model, target, number of threads or other choices: "
                        "statement %lld is a %s there and %s%s here",
                        (long long)at, kind, here ? "a " : "", here ? here : "none");
    }
    return EXIT_DONE;
}

/* Appends JSON so that it can stand in a script element: no tag can begin in it. */
static void put_data(Sb *s, const char *json) {
    for (const char *end; *json; json = end) {
        end = json + strcspn(json, "<");
        sb_write(s, json, (size_t)(end - json));
        if (*end == '<') {
            sb_puts(s, "\\u003c");
            end++;
        }
    }
}

/* Reads a profile that fits, as text for the page. */
static int read_profile(const char *path, const Explained *x, char **text) {
    json_error_t e;
    json_t *profile = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!profile)
        return e.line < 0 ? cli_fail(path, "%s", strerror(errno))
                          : cli_fail(path, "not JSON: line %d: %s", e.line, e.text);
    int code = is_profile(profile)
                   ? fits(path, profile, x)
                   : cli_fail(path, "it is no profile as braid profile --json writes it");
    if (!code && !(*text = json_dumps(profile, JSON_COMPACT))) die("out of memory");
    json_decref(profile);
    return code;
}

static const char *page_text(const char *name) {
    const EmbeddedText *t = page_texts;
    while (t->name && strcmp(t->name, name) != 0) t++;
    ASSERT(t->name);
    return t->text;
}

/* Appends text up to a mark in it, and returns what comes after the mark. */
static const char *put_until(Sb *s, const char *text, const char *mark) {
    const char *place = strstr(text, mark);
    ASSERT(place);
    sb_write(s, text, (size_t)(place - text));
    return place + strlen(mark);
}

int explain_page(const char *path, const Sb *json, const Explained *x, const char *profile) {
    char *text = NULL;
    int code = profile ? read_profile(profile, x, &text) : EXIT_DONE;
    if (code) return code;
    Sb s = {0};
    braid_error e;
    const char *rest = put_until(&s, page_text("page.html"), "@STYLE@");
    sb_puts(&s, page_text("page.css"));
    rest = put_until(&s, rest, "@DATA@");
    sb_puts(&s, "{\"explain\": ");
    put_data(&s, json->p);
    sb_puts(&s, ", \"profile\": ");
    put_data(&s, text ? text : "null");
    sb_puts(&s, "}");
    rest = put_until(&s, rest, "@SCRIPT@");
    sb_puts(&s, page_text("page.js"));
    sb_puts(&s, page_text("page_views.js"));
    sb_puts(&s, rest);
    free(text);
    if (s.failed)
        code = cli_fail(path, "out of memory");
    else if (rt_write_file(path, s.p, s.n, &e))
        code = cli_error(path, &e);
    sb_free(&s);
    return code;
}
