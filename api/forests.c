/* forests.c: braid_trees.h. It needs the public headers and libc alone, because programs without
 * libbraid may compile it, too. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "braid_trees.h"

static braid_status fail(braid_error *e, braid_status status, const char *format, ...) {
    if (!e) return status;
    va_list ap;
    va_start(ap, format);
    vsnprintf(e->message, sizeof e->message, format, ap);
    va_end(ap);
    for (char *p = e->message; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    e->status = status;
    return status;
}

static braid_status no_memory(braid_error *e) {
    return fail(e, BRAID_MEMORY, "out of memory for a forest");
}

/* n elements of 8 bytes, zero; at least one. */
static int64_t *integers(int64_t n) {
    return (uint64_t)n < SIZE_MAX / 8 ? calloc((size_t)n + 1, 8) : NULL;
}

static bool inside(int64_t v, int64_t low, int64_t high) { return v >= low && v < high; }

static void copy(void *to, const void *from, int64_t n, size_t size) {
    if (n) memcpy(to, from, (size_t)n * size);
}

void braid_forest_free(braid_forest *f) { free(f); }

/* ---- heights and cycles ---------------------------------------------------------------------- */

/* Names a cycle. Every node with missing children has a child that misses some, too. */
static braid_status cycle(const int64_t *begin, const int64_t *child, int64_t n,
                          const int64_t *missing, braid_error *e) {
    int64_t at = 0;
    while (!missing[at]) at++;
    for (int64_t step = 0; step < n; step++) { /* after so many steps it is on a cycle */
        int64_t i = begin[at];
        while (!missing[child[i]]) i++;
        at = child[i];
    }
    return fail(e, BRAID_INPUT, "node %" PRId64 " needs itself", at);
}

/* height[n], from the leaves upwards. */
static braid_status heights(const int64_t *begin, const int64_t *child, int64_t n, int64_t *height,
                            braid_error *e) {
    int64_t edges = begin[n], done = 0, ready = 0;
    int64_t *above_begin = integers(n + 1), *above = integers(edges); /* the parents */
    int64_t *missing = integers(n),
            *queue = integers(n); /* children without a height; those with */
    braid_status status = BRAID_OK;
    if (!above_begin || !above || !missing || !queue) {
        status = no_memory(e);
        goto end;
    }
    for (int64_t i = 0; i < edges; i++) above_begin[child[i] + 1]++;
    for (int64_t v = 0; v < n; v++) above_begin[v + 1] += above_begin[v];
    for (int64_t v = 0; v < n; v++)
        for (int64_t i = begin[v]; i < begin[v + 1]; i++) above[above_begin[child[i]]++] = v;
    for (int64_t v = 0; v < n; v++) { /* above_begin[v] is now where the parents of v end */
        height[v] = 0;
        missing[v] = begin[v + 1] - begin[v];
        if (!missing[v]) queue[ready++] = v;
    }
    for (; done < ready; done++) {
        int64_t v = queue[done];
        for (int64_t i = v ? above_begin[v - 1] : 0; i < above_begin[v]; i++) {
            int64_t p = above[i];
            if (height[p] <= height[v]) height[p] = height[v] + 1;
            if (!--missing[p]) queue[ready++] = p;
        }
    }
    if (done < n) status = cycle(begin, child, n, missing, e);
end:
    free(above_begin);
    free(above);
    free(missing);
    free(queue);
    return status;
}

/* ---- to a forest ----------------------------------------------------------------------------- */

/* BRAID_OK: the lists are as the header says, and there is no cycle. */
static braid_status check(const int64_t *begin, const int64_t *child, int64_t n, braid_error *e) {
    bool up = true, down = true;
    if (begin[0] != 0) return fail(e, BRAID_INPUT, "child_begin does not begin with 0");
    for (int64_t v = 0; v < n; v++)
        if (begin[v + 1] < begin[v])
            return fail(e, BRAID_INPUT, "child_begin falls behind node %" PRId64, v);
    for (int64_t v = 0; v < n; v++)
        for (int64_t i = begin[v]; i < begin[v + 1]; i++) {
            if (!inside(child[i], 0, n))
                return fail(e, BRAID_INPUT,
                            "a child of node %" PRId64 " is %" PRId64 ", outside [0, %" PRId64 ")",
                            v, child[i], n);
            up = up && child[i] > v;
            down = down && child[i] < v;
        }
    if (up || down) return BRAID_OK; /* such numbers have no cycle */
    int64_t *height = integers(n);
    braid_status status = height ? heights(begin, child, n, height, e) : no_memory(e);
    free(height);
    return status;
}

/* All arrays in one piece of memory. */
static braid_forest *allocate(int64_t nodes, int64_t edges, int64_t trees, bool spans) {
    const int64_t most = INT64_MAX / 256;
    if (nodes > most || edges > most || trees > most) return NULL;
    size_t texts = spans ? 2 * (size_t)nodes * sizeof(braid_span) : 0;
    braid_forest *f =
        (void *)integers(nodes + 1 + edges + trees + (int64_t)(sizeof *f + texts) / 8);
    if (!f) return NULL;
    char *p = (char *)(f + 1);
    *f = (braid_forest){.nodes = nodes, .edges = edges, .trees = trees};
    f->child_begin = (void *)p;
    f->child = f->child_begin + nodes + 1;
    f->roots = f->child + edges;
    if (spans) {
        f->word = (void *)(p + 8 * (nodes + 1 + edges + trees));
        f->label = f->word + nodes;
    }
    return f;
}

/* The forest's own arrays, to be written while it is made. */
static int64_t *own(const int64_t *a) { return (int64_t *)a; }
static braid_span *own_spans(const braid_span *a) { return (braid_span *)a; }

static braid_status make(const int64_t *begin, const int64_t *child, int64_t n,
                         const int64_t *roots, int64_t trees, const braid_span *word,
                         const braid_span *label, braid_forest **forest, braid_error *e) {
    braid_status status = check(begin, child, n, e);
    if (status) return status;
    for (int64_t i = 0; roots && i < trees; i++)
        if (!inside(roots[i], 0, n))
            return fail(e, BRAID_INPUT, "root %" PRId64 " is %" PRId64 ", outside [0, %" PRId64 ")",
                        i, roots[i], n);
    int64_t *parents = NULL; /* how many each node has */
    if (!roots) {
        parents = integers(n);
        if (!parents) return no_memory(e);
        for (int64_t i = 0; i < begin[n]; i++) parents[child[i]]++;
        trees = 0;
        for (int64_t v = 0; v < n; v++) trees += parents[v] == 0;
    }
    braid_forest *f = allocate(n, begin[n], trees, word != NULL);
    if (!f) {
        free(parents);
        return no_memory(e);
    }
    copy(own(f->child_begin), begin, n + 1, 8);
    copy(own(f->child), child, begin[n], 8);
    if (roots) copy(own(f->roots), roots, trees, 8);
    for (int64_t v = 0, i = 0; parents && v < n; v++)
        if (!parents[v]) own(f->roots)[i++] = v;
    if (word) {
        copy(own_spans(f->word), word, n, sizeof *word);
        copy(own_spans(f->label), label, n, sizeof *label);
    }
    free(parents);
    *forest = f;
    return BRAID_OK;
}

/* A forest by lists of pairs, child a[i * step] of node b[i * step]; where b is -1 there is none.
 */
static braid_status by_pairs(const int64_t *a, const int64_t *b, int64_t step, int64_t pairs,
                             int64_t n, const braid_span *word, const braid_span *label,
                             braid_forest **forest, braid_error *e) {
    int64_t *begin = integers(n + 2), *child = integers(pairs);
    braid_status status = begin && child ? BRAID_OK : no_memory(e);
    if (!status) {
        int64_t *next =
            begin + 1; /* where the next child of each node goes; at last, where they end */
        for (int64_t i = 0; i < pairs; i++)
            if (b[i * step] >= 0) begin[b[i * step] + 2]++;
        for (int64_t v = 0; v < n; v++) next[v + 1] += next[v];
        for (int64_t i = 0; i < pairs; i++)
            if (b[i * step] >= 0) child[next[b[i * step]]++] = a ? a[i * step] : i;
        status = make(begin, child, n, NULL, 0, word, label, forest, e);
    }
    free(begin);
    free(child);
    return status;
}

static braid_status negative(braid_error *e, const char *what, int64_t n) {
    return fail(e, BRAID_INPUT, "the number of %s is %" PRId64, what, n);
}

static braid_status from_parents(const int64_t *parent, int64_t n, const braid_span *word,
                                 const braid_span *label, braid_forest **forest, braid_error *e) {
    for (int64_t v = 0; v < n; v++)
        if (!inside(parent[v], -1, n))
            return fail(e, BRAID_INPUT,
                        "the parent of node %" PRId64 " is %" PRId64 ", outside [-1, %" PRId64 ")",
                        v, parent[v], n);
    return by_pairs(NULL, parent, 1, n, n, word, label, forest, e);
}

braid_status braid_forest_from_parents(const int64_t *parent, int64_t nodes, braid_forest **forest,
                                       braid_error *error) {
    if (nodes < 0) return negative(error, "nodes", nodes);
    return from_parents(parent, nodes, NULL, NULL, forest, error);
}

braid_status braid_forest_from_children(const int64_t *child_begin, const int64_t *child,
                                        int64_t nodes, const int64_t *roots, int64_t trees,
                                        braid_forest **forest, braid_error *error) {
    if (nodes < 0) return negative(error, "nodes", nodes);
    if (roots && trees < 0) return negative(error, "trees", trees);
    return make(child_begin, child, nodes, roots, trees, NULL, NULL, forest, error);
}

braid_status braid_forest_from_edges(const int64_t *edge, int64_t edges, int64_t nodes,
                                     braid_forest **forest, braid_error *error) {
    if (nodes < 0) return negative(error, "nodes", nodes);
    if (edges < 0) return negative(error, "edges", edges);
    for (int64_t i = 0; i < 2 * edges; i++)
        if (!inside(edge[i], 0, nodes))
            return fail(error, BRAID_INPUT,
                        "an end of edge %" PRId64 " is %" PRId64 ", outside [0, %" PRId64 ")",
                        i / 2, edge[i], nodes);
    return by_pairs(edge, edges ? edge + 1 : edge, 2, edges, nodes, NULL, NULL, forest, error);
}

braid_status braid_forest_grid(int64_t rows, int64_t columns, braid_forest **forest,
                               braid_error *error) {
    if (rows < 0) return negative(error, "rows", rows);
    if (columns < 0) return negative(error, "columns", columns);
    if (columns && rows > INT64_MAX / 64 / columns) return no_memory(error);
    int64_t n = rows * columns, e = 0;
    int64_t *begin = integers(n + 1), *child = integers(2 * n);
    braid_status status = begin && child ? BRAID_OK : no_memory(error);
    for (int64_t v = 0; !status && v < n; v++) {
        if (v >= columns) child[e++] = v - columns;
        if (v % columns) child[e++] = v - 1;
        begin[v + 1] = e;
    }
    if (!status) status = make(begin, child, n, NULL, 0, NULL, NULL, forest, error);
    free(begin);
    free(child);
    return status;
}

braid_status braid_forest_concatenate(const braid_forest *const *parts, int64_t count,
                                      braid_forest **forest, braid_error *error) {
    int64_t nodes = 0, edges = 0, trees = 0;
    bool spans = false;
    for (int64_t k = 0; k < count; k++) {
        nodes += parts[k]->nodes;
        edges += parts[k]->edges;
        trees += parts[k]->trees;
        spans = spans || parts[k]->word;
    }
    braid_forest *f = allocate(nodes, edges, trees, spans);
    if (!f) return no_memory(error);
    nodes = edges = trees = 0;
    for (int64_t k = 0; k < count; k++) {
        const braid_forest *p = parts[k];
        for (int64_t v = 0; v < p->nodes; v++)
            own(f->child_begin)[nodes + v + 1] = edges + p->child_begin[v + 1];
        for (int64_t i = 0; i < p->edges; i++) own(f->child)[edges + i] = nodes + p->child[i];
        for (int64_t i = 0; i < p->trees; i++) own(f->roots)[trees + i] = nodes + p->roots[i];
        if (p->word) {
            copy(own_spans(f->word) + nodes, p->word, p->nodes, sizeof *p->word);
            copy(own_spans(f->label) + nodes, p->label, p->nodes, sizeof *p->label);
        }
        nodes += p->nodes;
        edges += p->edges;
        trees += p->trees;
    }
    *forest = f;
    return BRAID_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
static bool is_bracket(char c) { return c == '(' || c == ')'; }

/* The token at or behind `at`; its text is NULL when there is none. */
static braid_span token_at(const char *text, size_t length, size_t at) {
    while (at < length && is_space(text[at])) at++;
    if (at == length) return (braid_span){0};
    size_t end = at + 1;
    while (!is_bracket(text[at]) && end < length && !is_space(text[end]) && !is_bracket(text[end]))
        end++;
    return (braid_span){.text = text + at, .length = (int64_t)(end - at)};
}

static braid_status misplaced(braid_error *e, const char *text, braid_span t, const char *what) {
    int64_t line = 1;
    const char *start = text;
    for (const char *p = text; p < t.text; p++)
        if (*p == '\n') {
            line++;
            start = p + 1;
        }
    return fail(e, BRAID_INPUT, "line %" PRId64 ", column %" PRId64 ": '%.*s' %s", line,
                (int64_t)(t.text - start) + 1, t.length < 80 ? (int)t.length : 80, t.text, what);
}

/* What is read so far. */
typedef struct Reader {
    int64_t *parent;
    braid_span *word, *label, *opened; /* of each node; opened: its bracket */
    int64_t n, open;                   /* nodes; the innermost whose bracket is open, or -1 */
} Reader;

static int64_t add_node(Reader *r, braid_span word) {
    r->parent[r->n] = r->open;
    r->word[r->n] = word;
    return r->n++;
}

/* What is wrong with a token that stands here, or NULL. */
static const char *take(Reader *r, braid_span t, bool labels) {
    int64_t n = r->open;
    if (*t.text == '(') {
        if (n >= 0 && n == r->n - 1 && !r->label[n].text) { /* before a first child: one token */
            r->label[n] = r->word[n];                       /* is a label */
            r->word[n] = (braid_span){0};
        }
        r->open = add_node(r, (braid_span){0});
        r->opened[r->open] = t;
    } else if (*t.text == ')') {
        if (n < 0) return "closes nothing";
        if (!labels && n == r->n - 1) return "closes a bracket with no word inside";
        r->open = r->parent[n];
    } else if (!labels) {
        add_node(r, t);
    } else {
        if (n < 0) return "stands outside of brackets";
        if (n != r->n - 1) return "stands behind a child; words stand before the children";
        if (r->label[n].text) return "is a third token; a node has a label and a word";
        r->label[n] = r->word[n];
        r->word[n] = t;
    }
    return NULL;
}

braid_status braid_forest_from_text(const char *text, size_t length, bool labels,
                                    braid_forest **forest, braid_error *error) {
    size_t room = 1; /* nodes at most */
    for (braid_span t = {0};
         (t = token_at(text, length, t.text ? (size_t)(t.text + t.length - text) : 0)).text;)
        room += *t.text == '(' || !labels;
    Reader r = {.open = -1};
    r.parent = calloc(room, sizeof *r.parent);
    r.word = calloc(room, sizeof *r.word);
    r.label = calloc(room, sizeof *r.label);
    r.opened = calloc(room, sizeof *r.opened);
    braid_status status = r.parent && r.word && r.label && r.opened ? BRAID_OK : no_memory(error);
    for (size_t at = 0; !status;) {
        braid_span t = token_at(text, length, at);
        if (!t.text) break;
        const char *wrong = take(&r, t, labels);
        if (wrong) status = misplaced(error, text, t, wrong);
        at = (size_t)(t.text + t.length - text);
    }
    if (!status && r.open >= 0)
        status = misplaced(error, text, r.opened[r.open], "is never closed");
    if (!status) status = from_parents(r.parent, r.n, r.word, r.label, forest, error);
    free(r.parent);
    free(r.word);
    free(r.label);
    free(r.opened);
    return status;
}

/* ---- from a forest --------------------------------------------------------------------------- */

braid_status braid_forest_binary(const braid_forest *f, int64_t *left, int64_t *right,
                                 bool *is_leaf, braid_error *error) {
    const int64_t *begin = f->child_begin;
    for (int64_t v = 0; v < f->nodes; v++) {
        int64_t n = begin[v + 1] - begin[v];
        if (n != 0 && n != 2)
            return fail(error, BRAID_INPUT,
                        "node %" PRId64 " has %" PRId64 " %s; in a binary tree it has two or none",
                        v, n, n == 1 ? "child" : "children");
    }
    for (int64_t v = 0; v < f->nodes; v++) {
        is_leaf[v] = begin[v] == begin[v + 1];
        left[v] = is_leaf[v] ? 0 : f->child[begin[v]];
        right[v] = is_leaf[v] ? 0 : f->child[begin[v] + 1];
    }
    return BRAID_OK;
}

braid_status braid_forest_parents(const braid_forest *f, int64_t *parent, braid_error *error) {
    int64_t *found = integers(f->nodes); /* the parent + 1, or 0 */
    braid_status status = found ? BRAID_OK : no_memory(error);
    for (int64_t v = 0; !status && v < f->nodes; v++)
        for (int64_t i = f->child_begin[v]; !status && i < f->child_begin[v + 1]; i++) {
            int64_t c = f->child[i];
            if (found[c])
                status = fail(error, BRAID_INPUT,
                              "node %" PRId64 " has several parents, %" PRId64 " and %" PRId64
                              ": this is a DAG, not a tree",
                              c, found[c] - 1, v);
            found[c] = v + 1;
        }
    for (int64_t v = 0; !status && v < f->nodes; v++) parent[v] = found[v] - 1;
    free(found);
    return status;
}

braid_status braid_forest_levels(const braid_forest *f, int64_t *order, int64_t *batch_begin,
                                 int64_t *levels, braid_error *error) {
    int64_t n = f->nodes, count = 0, *height = integers(n), *at = integers(n);
    braid_status status =
        height && at ? heights(f->child_begin, f->child, n, height, error) : no_memory(error);
    if (!status) {
        for (int64_t v = 0; v < n; v++) {
            at[height[v]]++;
            if (height[v] >= count) count = height[v] + 1;
        }
        batch_begin[0] = 0;
        for (int64_t k = 0; k < count; k++) {
            batch_begin[k + 1] = batch_begin[k] + at[k];
            at[k] = batch_begin[k];
        }
        for (int64_t v = 0; v < n; v++) order[at[height[v]]++] = v;
        *levels = count;
    }
    free(height);
    free(at);
    return status;
}
