/* interp_memo.c: results of activations, kept while a recursion runs: activations with equal
 * parameters are computed once. Otherwise one over a DAG would visit nodes as often as there are
 * ways to them. */
#include <stdlib.h>

#include "utask/interp.h"

typedef struct Kept {
    struct Kept *next; /* with the same hash, or a neighbouring one */
    const Func *f;
    uint64_t hash;
    int64_t below; /* levels of activations below it */
    Buf **out;
    RegVal *ret, *key;
} Kept;

struct Memo {
    Memo *up; /* of a recursion around this one */
    Kept **row;
    size_t n, size; /* of rows: a power of two */
};

Memo *memo_new(Memo *up) {
    Memo *m = calloc(1, sizeof *m);
    if (m) {
        m->up = up;
        m->size = 64;
        m->row = calloc(m->size, sizeof *m->row);
    }
    if (m && !m->row) free(m), m = NULL;
    return m;
}

Memo *memo_free(Memo *m) {
    Memo *up = m->up;
    for (size_t i = 0; i < m->size; i++)
        for (Kept *k = m->row[i], *next; k; k = next) {
            next = k->next;
            for (int o = 0; o < k->f->nout; o++) buf_unref(k->out[o]);
            free(k);
        }
    free(m->row);
    free(m);
    return up;
}

static uint64_t hash_of(const Func *f, const RegVal *key) {
    uint64_t h = (uint64_t)f->id;
    for (int i = 0; i < f->nsym; i++) h = (h ^ (uint64_t)key[i].i) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static Kept *find(const Memo *m, const Func *f, const RegVal *key, uint64_t hash) {
    for (Kept *k = m->row[hash & (m->size - 1)]; k; k = k->next) {
        bool same = k->f == f && k->hash == hash;
        for (int i = 0; i < f->nsym && same; i++) same = k->key[i].i == key[i].i;
        if (same) return k;
    }
    return NULL;
}

bool memo_find(const Memo *m, const Func *f, const RegVal *key, int64_t *below, RegVal *ret,
               Buf **out) {
    const Kept *k = find(m, f, key, hash_of(f, key));
    if (!k) return false;
    *below = k->below;
    for (int i = 0; i < f->nret; i++) ret[i] = k->ret[i];
    for (int i = 0; i < f->nout; i++) out[i] = k->out[i];
    return true;
}

static void grow(Memo *m) {
    Kept **row = calloc(2 * m->size, sizeof *row);
    if (!row) return;
    for (size_t i = 0; i < m->size; i++)
        for (Kept *k = m->row[i], *next; k; k = next) {
            Kept **to = &row[k->hash & (2 * m->size - 1)];
            next = k->next;
            k->next = *to;
            *to = k;
        }
    free(m->row);
    m->row = row;
    m->size *= 2;
}

void memo_keep(Memo *m, const Func *f, const RegVal *key, int64_t below, const RegVal *ret,
               Buf *const *out) {
    const size_t regs = (size_t)(f->nsym + f->nret);
    Kept *k = calloc(1, sizeof *k + sizeof(RegVal) * regs + sizeof(Buf *) * (size_t)f->nout);
    if (!k) return; /* it is computed again, then */
    if (m->n++ == m->size) grow(m);
    k->f = f;
    k->hash = hash_of(f, key);
    k->below = below;
    k->key = (RegVal *)(void *)(k + 1);
    k->ret = k->key + f->nsym;
    k->out = (Buf **)(void *)(k->key + regs);
    for (int i = 0; i < f->nsym; i++) k->key[i] = key[i];
    for (int i = 0; i < f->nret; i++) k->ret[i] = ret[i];
    for (int i = 0; i < f->nout; i++) {
        k->out[i] = out[i];
        out[i]->refs++;
    }
    Kept **row = &m->row[k->hash & (m->size - 1)];
    k->next = *row;
    *row = k;
}
