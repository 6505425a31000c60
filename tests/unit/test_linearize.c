/* The numbering of nodes (codegen/text/linearize.inc), against a recursion that counts. The
 * function is f(n): a leaf, or f(left[n]) and f(right[n]). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "include/braid_model.h"
#include "codegen/text/cpu/ctx.inc"
#define BK_VEC 4
#include "codegen/text/c.inc"
#include "codegen/text/cpu/prelude.inc"
#include "codegen/text/linearize.inc"

#define NODES 300000
enum { LEAF, INNER, CLASSES };

typedef struct Graph {
    int64_t n, nroot, function;                     /* function: 1: nodes alternate between two */
    int64_t left[NODES], right[NODES], root[NODES]; /* left < 0: a leaf */
    int64_t opened;
} Graph;
static Graph g;
static bk_ctx ctx;
static int64_t *plan, room, restarts;

static void call(bk_nodes *s, int64_t n) {
    if (g.function == 2) {
        const int64_t key[] = {n / 7, n % 7};
        bk_child(s, 0, 2, key);
    } else
        bk_child(s, g.function ? (int)(n & 1) : 0, 1, &n);
}
BK_INLINE bool open_node(bk_ctx *k, const void *given, bk_nodes *s, int32_t id) {
    bk_node *r = bk_node_at(s, id);
    const int64_t *key = bk_node_key(r), n = g.function == 2 ? key[0] * 7 + key[1] : key[0];
    (void)given;
    if (r->func < 0) {
        for (int64_t i = 0; i < g.nroot && !s->full; i++) call(s, g.root[i]);
        r->cls = 0;
        return true;
    }
    g.opened++;
    if (n < 0 || n >= g.n) {
        bk_fault_said(k, 7, n, g.n, BK_UNSAID, BK_UNSAID);
        return false;
    }
    bk_value(s, n);
    r->cls = (g.left[n] >= 0 ? INNER : LEAF) + CLASSES * r->func;
    if (g.left[n] < 0) return true;
    call(s, g.left[n]);
    call(s, g.right[n]);
    return true;
}

/* Columns of a class: the node; of inner ones also the rows of its children. */
static bool columns(bk_nodes *s, int classes) {
    int64_t *const cls = s->word + BK_LIN_HEAD + classes / CLASSES;
    for (int c = 0; c < classes; c++) {
        int64_t *me = cls + c * BK_CLASS_WORDS, *to = bk_words(s, me[BK_CLASS_N] * 3);
        if (!to) return false;
        me[BK_CLASS_COLUMNS] = to - s->word;
    }
    for (int64_t i = 0; i < s->done; i++) {
        bk_node *r = bk_node_at(s, s->order[i]);
        const int64_t *me = cls + r->cls * BK_CLASS_WORDS, n = me[BK_CLASS_N];
        int64_t *to = s->word + me[BK_CLASS_COLUMNS] + bk_node_place(s, r, me[BK_CLASS_FIRST]);
        to[0] = s->value[r->value];
        for (int64_t k = 0; k < 2 * (r->cls % CLASSES); k++)
            to[(1 + k) * n] = bk_node_row(s, s->child[r->child + k]);
    }
    return true;
}

/* As an emitted linearizer. Returns 0, or the words that it needs. */
static int64_t linearize(void) {
    const int funcs = g.function == 1 ? 2 : 1, site[] = {3, 4}, func_of[] = {0, 0, 1, 1};
    const bk_lin_shape shape = {funcs, CLASSES * funcs,         0,      2, 3,
                                1,     3 + CLASSES * funcs + 1, func_of};
    bk_nodes s;
    g.opened = 0;
    if (bk_lin_known(plan, room, 0)) return 0;
    if (bk_nodes_begin(&s, &shape, plan, room)) {
        if (bk_nodes_walk(&ctx, &s, open_node, NULL, site)) {
            bk_nodes_number(&s, &shape);
            if (columns(&s, shape.classes) && bk_nodes_roots(&s)) return 0;
        }
        if (!s.full) return 0;
    }
    return 4 * room + 4096;
}

/* Runs it with as much room as it asks for; returns the run's state. */
static int run(void) {
    memset(&ctx, 0, sizeof ctx);
    ctx.stack_depth = 200000;
    restarts = 0;
    for (int64_t need = room;; restarts++) {
        if (need > room) {
            free(plan);
            plan = calloc((size_t)(room = need), sizeof *plan);
        }
        need = linearize();
        if (!need) break;
    }
    return bk_state(&ctx);
}

/* The height of node n; -1 where it is not known. */
static int64_t height[NODES];
static int64_t height_of(int64_t n) { /* children are finished first: a loop for what is deep */
    static int64_t stack[2 * NODES];
    int64_t top = 0;
    stack[top++] = n;
    while (top) {
        const int64_t i = stack[top - 1], l = g.left[i], r = g.right[i];
        if (l >= 0 && height[l] < 0)
            stack[top++] = l;
        else if (l >= 0 && height[r] < 0)
            stack[top++] = r;
        else
            height[i] = l < 0 ? 0 : 1 + (height[l] > height[r] ? height[l] : height[r]), top--;
    }
    return height[n];
}

/* Whether the plan is right: every node that a root reaches is there once, in the rows of its class
 * and height, and the rows of children and roots are theirs. */
static void check(void) {
    static int64_t row[NODES];
    const int funcs = g.function == 1 ? 2 : 1, classes = CLASSES * funcs;
    const int64_t *cls = plan + BK_LIN_HEAD + funcs;
    int64_t levels = 0, reached = 0, found = 0;
    for (int64_t i = 0; i < g.n; i++) height[i] = row[i] = -1;
    for (int64_t i = 0; i < g.nroot; i++) {
        const int64_t h = height_of(g.root[i]);
        if (h >= levels) levels = h + 1;
    }
    for (int64_t i = 0; i < g.n; i++) reached += height[i] >= 0;
    assert_int_equal(plan[BK_LIN_LEVELS], levels);
    assert_int_equal(plan[BK_LIN_NODES], reached);
    assert_int_equal(g.opened, reached);
    for (int f = 0; f < funcs; f++) {
        int64_t first = 0;
        for (int c = CLASSES * f; c < CLASSES * (f + 1); c++) {
            const int64_t *me = cls + c * BK_CLASS_WORDS, *start = plan + me[BK_CLASS_STARTS];
            assert_int_equal(me[BK_CLASS_FIRST], first);
            assert_int_equal(start[0], 0);
            assert_int_equal(start[levels * classes], me[BK_CLASS_N]);
            for (int64_t h = 0; h < levels; h++)
                for (int64_t i = start[h * classes]; i < start[(h + 1) * classes]; i++, found++) {
                    const int64_t n = plan[me[BK_CLASS_COLUMNS] + i];
                    assert_int_equal(height[n], h);
                    assert_int_equal(g.left[n] >= 0, c % CLASSES == INNER);
                    if (funcs == 2) assert_int_equal(n & 1, f);
                    assert_int_equal(row[n], -1);
                    row[n] = first + i;
                }
            first += me[BK_CLASS_N];
        }
        assert_int_equal(plan[BK_LIN_HEAD + f], first);
    }
    assert_int_equal(found, reached);
    for (int c = INNER; c < classes; c += CLASSES) {
        const int64_t *me = cls + c * BK_CLASS_WORDS, *at = plan + me[BK_CLASS_COLUMNS];
        for (int64_t i = 0, all = me[BK_CLASS_N]; i < all; i++) {
            assert_int_equal(at[all + i], row[g.left[at[i]]]);
            assert_int_equal(at[2 * all + i], row[g.right[at[i]]]);
        }
    }
    for (int64_t i = 0; i < g.nroot; i++)
        assert_int_equal(plan[plan[BK_LIN_ROOTS] + i], row[g.root[i]]);
}

static uint64_t random_state = 1;
static int64_t below(int64_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}
static void graph(int64_t function) {
    g.n = g.nroot = 0;
    g.function = function;
}
/* A node with these children; -1: a leaf. */
static int64_t node(int64_t left, int64_t right) {
    g.left[g.n] = left;
    g.right[g.n] = right;
    return g.n++;
}
static int64_t tree(int64_t leaves) {
    if (leaves == 1) return node(-1, -1);
    const int64_t k = 1 + below(leaves - 1), l = tree(k);
    return node(l, tree(leaves - k));
}
static void root(int64_t n) { g.root[g.nroot++] = n; }

static void right(void) {
    assert_int_equal(run(), BK_OK);
    check();
    assert_int_equal(run(), BK_OK); /* again, with the room and the number of nodes of before */
    assert_int_equal(restarts, 0);
    check();
}

static void test_trees(void **state) {
    (void)state;
    for (int function = 0; function < 3; function++)
        for (int i = 0; i < 60; i++) {
            graph(function);
            for (int64_t trees = i % 4; trees >= 0; trees--) root(tree(1 + below(1 + 7 * i)));
            right();
        }
}

static void test_roots(void **state) {
    (void)state;
    graph(0);
    right(); /* none */
    const int64_t a = tree(5), b = tree(1);
    for (int i = 0; i < 1000; i++) root(a); /* equal ones */
    right();
    root(b);
    root(a);
    root(g.left[a]); /* one that is below another */
    right();
}

static void test_dags(void **state) {
    (void)state;
    graph(0); /* its recursion would make 2^64 - 1 calls */
    for (int64_t i = 0; i < 64; i++) node(i - 1, i - 1);
    root(63);
    right();
    assert_int_equal(plan[BK_LIN_NODES], 64);
    for (int function = 0; function < 3; function++)
        for (int i = 0; i < 60; i++) {
            graph(function);
            node(-1, -1);
            for (int64_t n = 1; n < 2 + 5 * i; n++)
                if (below(4))
                    node(below(n), below(n));
                else
                    node(-1, -1);
            for (int64_t trees = i % 3; trees >= 0; trees--) root(below(g.n));
            root(g.n - 1);
            right();
        }
}

static void test_long(void **state) {
    (void)state;
    graph(0);
    int64_t chain = node(-1, -1);
    for (int i = 0; i < 100000; i++) chain = node(i & 1 ? chain : node(-1, -1), chain);
    root(chain);
    right();
    graph(0);
    root(tree(100000));
    right();
}

/* A run that goes too deep: the function that does, and how deep. */
static void too_deep(int64_t limit, int site, int64_t depth) {
    ctx.stack_depth = limit;
    const int64_t need = linearize();
    assert_int_equal(need, 0);
    assert_int_equal(bk_state(&ctx), BK_FAULT);
    assert_int_equal(ctx.deep, site + 1);
    assert_int_equal(ctx.deepest, depth);
    assert_int_equal(plan[BK_LIN_KEY], 0);
    atomic_store(&ctx.state, BK_OK);
    atomic_store(&ctx.deep, 0);
    atomic_store(&ctx.deepest, 0);
    atomic_store(&ctx.fault, 0);
}
static void test_depth(void **state) {
    (void)state;
    graph(1);
    for (int64_t i = 0; i < 11; i++) node(i - 1, i - 1);
    root(10);
    right();
    too_deep(10, 3, 11); /* the eleventh activation is that of node 0 */
    too_deep(9, 4, 11);
    ctx.stack_depth = 11;
    assert_int_equal(linearize(), 0);
    check();
    g.left[0] = g.right[0] = 0; /* needs itself */
    too_deep(1000, 3, BK_ENDLESS);
    g.left[0] = g.right[0] = 10;
    too_deep(10, 3, BK_ENDLESS); /* of a cycle of eleven, the eleventh is node 0 */
    too_deep(11, 3, BK_ENDLESS); /* and the twelfth node 10 */
    too_deep(12, 4, BK_ENDLESS);
    too_deep(1000 * 11, 3, BK_ENDLESS);
    too_deep(1000 * 11 - 2, 4, BK_ENDLESS);
    too_deep(INT64_MAX, (int)(3 + ((10 - INT64_MAX % 11) & 1)), BK_ENDLESS);
    g.left[3] = 11; /* found on the way */
    ctx.stack_depth = 100;
    assert_int_equal(linearize(), 0);
    assert_int_equal(ctx.fault, 8);
    assert_int_equal(ctx.said[0], 11);
}

static void test_room(void **state) {
    (void)state;
    graph(0);
    root(tree(3000));
    free(plan);
    plan = NULL;
    room = 0;
    assert_int_equal(run(), 0);
    assert_true(restarts >= 2);
    check();
    for (int64_t words = 0; words < 4000; words += words < 300 ? 1 : 97) { /* stays inside of it */
        free(plan);
        plan = malloc((size_t)(words + 1) * sizeof *plan);
        room = words;
        memset(plan, 0, (size_t)(words + 1) * sizeof *plan);
        plan[words] = -77;
        graph(0);
        root(tree(40));
        ctx.stack_depth = 100;
        if (!linearize()) check();
        assert_int_equal(plan[words], -77);
    }
}

static uint64_t key_of(const void *p, int64_t bytes) {
    bk_lin_hash h = {{1, 2, 3, 4, 5, 6, 7, 8}};
    bk_lin_read(&h, p, bytes);
    return bk_lin_key(&h);
}
static void test_key(void **state) {
    (void)state;
    static uint8_t text[400];
    static uint64_t seen[400 * 16];
    int n = 0;
    for (int bytes = 0; bytes < 200; bytes++) { /* lengths, places, and each of the bits */
        seen[n++] = key_of(text, bytes);
        memset(text + 1, 0, sizeof text - 1);
        assert_int_equal(key_of(text + 1, bytes), seen[n - 1]);
    }
    for (int i = 0; i < 200 * 8; i++) {
        text[i / 8] ^= (uint8_t)(1 << i % 8);
        seen[n++] = key_of(text, 200);
        text[(i / 8 + 64) % 200] ^= (uint8_t)(1 << i % 8);
        seen[n++] = key_of(text, 200);
        memset(text, 0, sizeof text);
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (seen[i] == seen[k]) fail_msg("keys %d and %d are equal", i, k);
    int64_t word[BK_LIN_HEAD] = {5};
    assert_true(bk_lin_known(word, BK_LIN_HEAD, 5));
    assert_false(bk_lin_known(word, BK_LIN_HEAD, 6));
    assert_false(bk_lin_known(word, BK_LIN_HEAD, 5)); /* it is invalid now */
    assert_false(bk_lin_known(word, BK_LIN_HEAD, 0));
    assert_false(bk_lin_known(NULL, 0, 5));
    assert_true(bk_lin_small(word, BK_LIN_HEAD, 4096));
    assert_false(bk_lin_small(word, BK_LIN_HEAD, 100000));
    assert_false(bk_lin_small(NULL, 0, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees), cmocka_unit_test(test_roots), cmocka_unit_test(test_dags),
        cmocka_unit_test(test_long),  cmocka_unit_test(test_depth), cmocka_unit_test(test_room),
        cmocka_unit_test(test_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
