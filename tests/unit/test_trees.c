/* braid_trees.h: what goes in comes out again, levels by their definition, what is refused and how.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/braid_trees.h"

static uint64_t seed = 1;
static int64_t pick(int64_t n) { /* below n */
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

static braid_forest *ok(braid_status status, const braid_error *e, braid_forest *f) {
    if (status) fail_msg("%s", e->message);
    return f;
}
#define MADE(call, ...) (call(__VA_ARGS__, &f, &e) ? ok(BRAID_INPUT, &e, NULL) : f)

static void equal(const int64_t *got, const int64_t *want, int64_t n) {
    for (int64_t i = 0; i < n; i++) assert_int_equal(got[i], want[i]);
}

static bool is(braid_span s, const char *text) {
    return !text
               ? !s.text
               : s.text && (size_t)s.length == strlen(text) && !memcmp(s.text, text, strlen(text));
}

/* Order and batches are what heights, by their definition, say. Returns the levels. */
static int64_t check_levels(const braid_forest *f) {
    int64_t n = f->nodes, levels = -1;
    int64_t *order = calloc((size_t)n + 1, 8), *begin = calloc((size_t)n + 1, 8),
            *height = calloc((size_t)n + 1, 8);
    braid_error e;
    ok(braid_forest_levels(f, order, begin, &levels, &e), &e, NULL);
    assert_int_equal(begin[0], 0);
    assert_int_equal(begin[levels], n);
    for (int64_t v = 0; v < n; v++) height[v] = -1;
    for (int64_t k = 0; k < levels; k++)
        for (int64_t i = begin[k]; i < begin[k + 1]; i++) {
            assert_int_equal(height[order[i]], -1); /* each node once */
            if (i > begin[k]) assert_true(order[i - 1] < order[i]);
            height[order[i]] = k;
        }
    for (int64_t v = 0; v < n; v++) {
        int64_t most = 0;
        for (int64_t i = f->child_begin[v]; i < f->child_begin[v + 1]; i++)
            if (most <= height[f->child[i]]) most = height[f->child[i]] + 1;
        assert_int_equal(height[v], most);
    }
    free(order);
    free(begin);
    free(height);
    return levels;
}

static void test_parents(void **state) {
    (void)state;
    braid_forest *f;
    braid_error e;
    for (int64_t n = 0; n < 300; n += 1 + n / 7) {
        int64_t number[300] = {0}, parent[300] = {0}, back[300];
        for (int64_t i = 0; i < n; i++) { /* a random numbering */
            int64_t k = pick(i + 1);
            number[i] = number[k];
            number[k] = i;
        }
        for (int64_t i = 0; i < n; i++) parent[number[i]] = i < 3 ? -1 : number[pick(i)];
        MADE(braid_forest_from_parents, parent, n);
        assert_int_equal(f->nodes, n);
        assert_int_equal(f->trees, n < 3 ? n : 3);
        assert_int_equal(f->edges, n - f->trees);
        ok(braid_forest_parents(f, back, &e), &e, NULL);
        equal(back, parent, n);
        check_levels(f);
        for (int64_t i = 0; i < f->trees; i++) assert_int_equal(parent[f->roots[i]], -1);
        braid_forest *a = f;
        MADE(braid_forest_from_children, a->child_begin, a->child, n, a->roots, a->trees);
        equal(f->child_begin, a->child_begin, n + 1);
        equal(f->child, a->child, a->edges);
        equal(f->roots, a->roots, a->trees);
        braid_forest_free(a);
        braid_forest_free(f);
    }
    braid_forest_free(NULL);
}

static void test_edges(void **state) {
    (void)state;
    braid_forest *f;
    braid_error e;
    for (int round = 0; round < 40; round++) {
        int64_t n = 1 + pick(100), m = n > 1 ? pick(3 * n) : 0, edge[600], at = 0;
        for (int64_t i = 0; i < m; i++) { /* from lower to higher numbers, then all turned round */
            int64_t v = 1 + pick(n - 1), u = pick(v);
            edge[2 * i] = round % 2 ? n - 1 - u : u;
            edge[2 * i + 1] = round % 2 ? n - 1 - v : v;
        }
        MADE(braid_forest_from_edges, edge, m, n);
        assert_int_equal(f->edges, m);
        for (int64_t v = 0; v < n; v++)
            for (int64_t i = 0; i < m; i++)
                if (edge[2 * i + 1] == v) assert_int_equal(f->child[at++], edge[2 * i]);
        for (int64_t i = 0; i < f->trees; i++) /* sinks */
            for (int64_t k = 0; k < m; k++) assert_int_not_equal(edge[2 * k], f->roots[i]);
        check_levels(f);
        braid_forest_free(f);
    }
    MADE(braid_forest_grid, 2, 3);
    equal(f->child_begin, (int64_t[]){0, 0, 1, 2, 3, 5, 7}, 7);
    equal(f->child, (int64_t[]){0, 1, 0, 1, 3, 2, 4}, 7);
    assert_int_equal(f->trees, 1);
    assert_int_equal(f->roots[0], 5);
    braid_forest_free(f);
    MADE(braid_forest_grid, 10, 10);
    assert_int_equal(check_levels(f), 19);
    braid_forest_free(f);
    MADE(braid_forest_grid, 3, 0);
    assert_int_equal(f->nodes + f->trees + check_levels(f), 0);
    braid_forest_free(f);
}

static void test_text(void **state) {
    (void)state;
    braid_forest *f;
    braid_error e;
    const char *text = "(3 (2 It) (4 (4 works)(2 .)))\r\n(2 a\xc2\xa0z)";
    MADE(braid_forest_from_text, text, strlen(text), true);
    const char *word[] = {NULL, "It", NULL, "works", ".", "a\xc2\xa0z"};
    const char *label[] = {"3", "2", "4", "4", "2", "2"};
    assert_int_equal(f->nodes, 6);
    for (int i = 0; i < 6; i++) assert_true(is(f->word[i], word[i]) && is(f->label[i], label[i]));
    int64_t left[6], right[6];
    bool leaf[6];
    ok(braid_forest_binary(f, left, right, leaf, &e), &e, NULL);
    equal(left, (int64_t[]){1, 0, 3, 0, 0, 0}, 6);
    equal(right, (int64_t[]){2, 0, 4, 0, 0, 0}, 6);
    for (int i = 0; i < 6; i++) assert_int_equal(leaf[i], i != 0 && i != 2);
    equal(f->roots, (int64_t[]){0, 5}, f->trees);
    assert_int_equal(f->trees, 2);

    /* Two and an empty one as one. */
    braid_forest *a = f, *b, *none;
    const char *bare = "((a cat) sleeps)alone";
    b = MADE(braid_forest_from_text, bare, strlen(bare), false);
    none = MADE(braid_forest_from_text, " \n", 2, true);
    assert_int_equal(none->nodes, 0);
    const braid_forest *parts[] = {none, b, a, none};
    MADE(braid_forest_concatenate, parts, 4);
    assert_int_equal(f->nodes, 12);
    equal(f->roots, (int64_t[]){0, 5, 6, 11}, 4);
    equal(f->child_begin, (int64_t[]){0, 2, 4, 4, 4, 4, 4, 6, 6, 8, 8, 8, 8}, 13);
    equal(f->child, (int64_t[]){1, 4, 2, 3, 7, 8, 9, 10}, 8);
    assert_true(is(f->word[3], "cat") && is(f->word[5], "alone") && is(f->word[7], "It"));
    assert_true(!f->label[3].text && is(f->label[7], "2"));
    assert_int_equal(check_levels(f), 3);
    braid_forest_free(f);
    braid_forest_free(a);
    braid_forest_free(b);
    braid_forest_free(none);
    MADE(braid_forest_concatenate, NULL, 0);
    assert_int_equal(f->nodes + f->trees + f->edges + f->child_begin[0], 0);
    braid_forest_free(f);

    const char *words = "(root saw (nsubj she) (obj stars ((bright))))";
    MADE(braid_forest_from_text, words, strlen(words), true);
    assert_true(is(f->word[0], "saw") && is(f->label[0], "root") && is(f->word[4], "bright"));
    assert_true(!f->label[3].text && !f->word[3].text);
    braid_forest_free(f);
}

static void test_deep(void **state) {
    (void)state;
    const int64_t n = 100000;
    int64_t *parent = calloc((size_t)n, 8), *back = calloc((size_t)n, 8);
    char *text = malloc((size_t)(2 * n));
    braid_forest *f;
    braid_error e;
    for (int up = 0; up < 2; up++) { /* the root is the first node, the last one */
        for (int64_t i = 0; i < n; i++) parent[i] = up ? (i + 1 < n ? i + 1 : -1) : i - 1;
        MADE(braid_forest_from_parents, parent, n);
        assert_int_equal(check_levels(f), n);
        braid_forest_free(f);
    }
    parent[n - 1] = 0;
    assert_int_equal(braid_forest_from_parents(parent, n, &f, &e), BRAID_INPUT);
    assert_non_null(strstr(e.message, "needs itself"));
    memset(text, '(', (size_t)n);
    memset(text + n, ')', (size_t)n);
    MADE(braid_forest_from_text, text, (size_t)(2 * n), true);
    assert_int_equal(f->nodes, n);
    ok(braid_forest_parents(f, back, &e), &e, NULL);
    for (int64_t i = 0; i < n; i++) assert_int_equal(back[i], i - 1);
    braid_forest_free(f);
    free(parent);
    free(back);
    free(text);
}

static void refused(braid_status status, const braid_error *e, const char *message) {
    assert_int_equal(status, BRAID_INPUT);
    assert_int_equal(e->status, BRAID_INPUT);
    assert_string_equal(e->message, message);
}

static void refused_text(const char *text, bool labels, const char *message) {
    braid_forest *f;
    braid_error e;
    char *exact = malloc(strlen(text)); /* without the NUL, so that a step too far is seen */
    memcpy(exact, text, strlen(text));
    refused(braid_forest_from_text(exact, strlen(text), labels, &f, &e), &e, message);
    free(exact);
}

static void test_refused(void **state) {
    (void)state;
    braid_forest *f = NULL;
    braid_error e;
#define PARENTS(n, ...) braid_forest_from_parents((int64_t[]){__VA_ARGS__}, n, &f, &e), &e
    refused(PARENTS(1, 0), "node 0 needs itself");
    refused(PARENTS(4, -1, 2, 1, 1), "node 1 needs itself");
    refused(PARENTS(2, -1, 2), "the parent of node 1 is 2, outside [-1, 2)");
    refused(PARENTS(1, -2), "the parent of node 0 is -2, outside [-1, 1)");
    refused(PARENTS(-1, 0), "the number of nodes is -1");
#define CHILDREN(...) braid_forest_from_children(__VA_ARGS__, &f, &e), &e
    const int64_t begin[] = {0, 1, 1}, falls[] = {0, 1, 0}, late[] = {1, 1, 1}, two = 2, one = 1;
    refused(CHILDREN(begin, &two, 2, NULL, 0), "a child of node 0 is 2, outside [0, 2)");
    refused(CHILDREN(begin, &one, 2, &two, 1), "root 0 is 2, outside [0, 2)");
    refused(CHILDREN(begin, &one, 2, &two, -1), "the number of trees is -1");
    refused(CHILDREN(falls, &one, 2, NULL, 0), "child_begin falls behind node 1");
    refused(CHILDREN(late, &one, 2, NULL, 0), "child_begin does not begin with 0");
#define EDGES(n, m, ...) braid_forest_from_edges((int64_t[]){__VA_ARGS__}, m, n, &f, &e), &e
    refused(EDGES(3, 2, 0, 1, 1, 3), "an end of edge 1 is 3, outside [0, 3)");
    refused(EDGES(3, 3, 0, 1, 1, 2, 2, 1), "node 2 needs itself");
    refused(EDGES(3, -1, 0), "the number of edges is -1");
    refused(braid_forest_grid(-1, 2, &f, &e), &e, "the number of rows is -1");
    assert_int_equal(braid_forest_grid(INT64_MAX / 2, 3, &f, &e), BRAID_MEMORY);
    assert_null(f);

    refused_text("(2 a)\n   ((2 c)\n", true, "line 2, column 4: '(' is never closed");
    refused_text("(2 a))", true, "line 1, column 6: ')' closes nothing");
    refused_text("(2 a)\n(2 b) c", true, "line 2, column 7: 'c' stands outside of brackets");
    refused_text("(2 a b c)", true,
                 "line 1, column 6: 'b' is a third token; a node has a label and a word");
    refused_text("(2 (2 a) b)", true,
                 "line 1, column 10: 'b' stands behind a child; words stand before the children");
    refused_text("(a ())", false, "line 1, column 5: ')' closes a bracket with no word inside");
    refused_text("a\x01 (", true, "line 1, column 1: 'a ' stands outside of brackets");

    int64_t some[4] = {7, 7, 7, 7};
    bool leaf[4] = {true, true, true, true};
    MADE(braid_forest_from_edges, ((int64_t[]){3, 1, 3, 2, 1, 0, 2, 0}), 4, 4);
    refused(braid_forest_parents(f, some, &e), &e,
            "node 3 has several parents, 1 and 2: this is a DAG, not a tree");
    refused(braid_forest_binary(f, some, some, leaf, &e), &e,
            "node 1 has 1 child; in a binary tree it has two or none");
    equal(some, (int64_t[]){7, 7, 7, 7}, 4);
    braid_forest_free(f);
    /* Nobody asks for the message. */
    assert_int_equal(braid_forest_from_parents((int64_t[]){0}, 1, &f, NULL), BRAID_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parents), cmocka_unit_test(test_edges),   cmocka_unit_test(test_text),
        cmocka_unit_test(test_deep),    cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
