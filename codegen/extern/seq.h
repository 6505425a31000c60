/* seq.h: a sequence of tensors packed in one piece of memory, the blob (after extern.h).
 *
 *   header    64 bytes: number of items, bytes used, element dtype, slots in the table, its place
 *   table     one slot of 128 bytes an item: where its data is, its size, rank and dims
 *   payload   the items' data, each 64-byte aligned, in any order
 *
 * The table follows the header until seq_push outgrows it and puts a larger one behind the payload.
 * The blob itself is 64-byte aligned and holds offsets only, so it can be copied as bytes. A NULL
 * blob is an empty sequence.
 */
#ifndef BX_SEQ_H
#define BX_SEQ_H

typedef struct bx_seq_head {
    int64_t count, used, dtype, slots, table, pad[3];
} bx_seq_head;
typedef struct bx_seq_slot {
    int64_t offset, bytes, rank, dim[BX_RANK], pad;
} bx_seq_slot;

BX_FN int64_t bx_seq_round(int64_t bytes) { return (bytes + 63) / 64 * 64; }
BX_FN int64_t bx_seq_bytes_of(const bx_tensor *t) { return bx_count(t) * bx_size(t->dtype); }
/* Bytes of a blob of `count` items whose data, each rounded by bx_seq_round, is `payload` bytes. */
BX_FN int64_t bx_seq_size_for(int64_t count, int64_t payload) {
    return (int64_t)sizeof(bx_seq_head) + count * (int64_t)sizeof(bx_seq_slot) + payload;
}
BX_FN int64_t bx_seq_count(const void *blob) {
    return blob ? ((const bx_seq_head *)blob)->count : 0;
}
BX_FN int64_t bx_seq_used(const void *blob) {
    return blob ? ((const bx_seq_head *)blob)->used : (int64_t)sizeof(bx_seq_head);
}
BX_FN int bx_seq_dtype(const void *blob) {
    return blob ? (int)((const bx_seq_head *)blob)->dtype : 0;
}
BX_FN const bx_seq_slot *bx_seq_slots(const void *blob) {
    return (const bx_seq_slot *)((const char *)blob + ((const bx_seq_head *)blob)->table);
}
/* Item i, 0 <= i < count: a tensor whose data lies in the blob. */
BX_FN bx_tensor bx_seq_item(const void *blob, int64_t i) {
    const bx_seq_slot *s = bx_seq_slots(blob) + i;
    bx_tensor t;
    t.data = (char *)(uintptr_t)blob + s->offset;
    t.dtype = bx_seq_dtype(blob);
    t.rank = (int32_t)s->rank;
    memcpy(t.dim, s->dim, sizeof t.dim);
    return t;
}
/* Makes an empty sequence with room for `slots` items. */
BX_FN void bx_seq_init(void *blob, int dtype, int64_t slots) {
    bx_seq_head *h = (bx_seq_head *)blob;
    memset(h, 0, sizeof *h);
    h->used = bx_seq_size_for(slots, 0);
    h->dtype = dtype;
    h->slots = slots;
    h->table = (int64_t)sizeof *h;
}
/* Appends a copy of t; a slot and the bytes must be free. An empty sequence takes t's dtype. */
BX_FN void bx_seq_append(void *blob, const bx_tensor *t) {
    bx_seq_head *h = (bx_seq_head *)blob;
    bx_seq_slot *s = (bx_seq_slot *)((char *)blob + h->table) + h->count;
    memset(s, 0, sizeof *s);
    s->offset = h->used;
    s->bytes = bx_seq_bytes_of(t);
    s->rank = t->rank;
    for (int d = 0; d < t->rank; d++) s->dim[d] = t->dim[d];
    if (s->bytes) memcpy((char *)blob + s->offset, t->data, (size_t)s->bytes);
    if (h->count == 0) h->dtype = t->dtype;
    h->count++;
    h->used += bx_seq_round(s->bytes);
}
/* Appends items [from, to) of another sequence. */
BX_FN void bx_seq_append_items(void *blob, const void *other, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        bx_tensor t = bx_seq_item(other, i);
        bx_seq_append(blob, &t);
    }
}
BX_FN int64_t bx_seq_payload(const void *blob) {
    int64_t n = 0;
    for (int64_t i = 0; i < bx_seq_count(blob); i++) n += bx_seq_round(bx_seq_slots(blob)[i].bytes);
    return n;
}

/* ---- bodies: in[0] is a blob unless said otherwise --------------------------------------------
 */

/* in: items. param: their number, dtype. out: blob. */
BX_FN int bx_seq_construct_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                                int64_t *bytes) {
    int64_t payload = 0;
    (void)sym;
    for (int64_t i = 0; i < param[0]; i++) payload += bx_seq_round(bx_seq_bytes_of(&in[i]));
    bytes[0] = bx_seq_size_for(param[0], payload);
    return 0;
}
BX_FN int bx_seq_construct(const bx_tensor *in, const int64_t *param, bx_tensor *out,
                           void *scratch) {
    (void)scratch;
    bx_seq_init(out[0].data, (int)param[1], param[0]);
    for (int64_t i = 0; i < param[0]; i++) bx_seq_append(out[0].data, &in[i]);
    return 0;
}

/* in: sequence. out: a copy of it. */
BX_FN int bx_seq_copy_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                           int64_t *bytes) {
    (void)param, (void)sym;
    bytes[0] = bx_seq_used(in[0].data);
    return 0;
}
BX_FN int bx_seq_copy(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    (void)param, (void)scratch;
    if (in[0].data)
        memcpy(out[0].data, in[0].data, (size_t)bx_seq_used(in[0].data));
    else
        bx_seq_init(out[0].data, 0, 0);
    return 0;
}

/* in: sequence, item. param: place, in [-count, count]. out: blob. */
BX_FN int bx_seq_insert_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                             int64_t *bytes) {
    int64_t n = bx_seq_count(in[0].data);
    (void)sym;
    if (param[0] < -n || param[0] > n) return 1;
    if (n && bx_seq_dtype(in[0].data) != in[1].dtype) return 1;
    bytes[0] =
        bx_seq_size_for(n + 1, bx_seq_payload(in[0].data) + bx_seq_round(bx_seq_bytes_of(&in[1])));
    return 0;
}
BX_FN int bx_seq_insert(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    int64_t n = bx_seq_count(in[0].data), at = param[0] < 0 ? param[0] + n : param[0];
    (void)scratch;
    bx_seq_init(out[0].data, in[1].dtype, n + 1);
    bx_seq_append_items(out[0].data, in[0].data, 0, at);
    bx_seq_append(out[0].data, &in[1]);
    bx_seq_append_items(out[0].data, in[0].data, at, n);
    return 0;
}

/* As seq_insert, where out may be in[0]'s memory: then the items stay where they are, and appending
 * costs as much as the item, however long the sequence is. */
BX_FN int bx_seq_push_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                           int64_t *bytes) {
    const bx_seq_head *h = (const bx_seq_head *)in[0].data;
    int64_t n = bx_seq_count(h);
    (void)sym;
    if (param[0] < -n || param[0] > n) return 1;
    if (n && bx_seq_dtype(h) != in[1].dtype) return 1;
    bytes[0] = bx_seq_used(h) + bx_seq_round(bx_seq_bytes_of(&in[1]));
    if (!h || n == h->slots) bytes[0] += (2 * n + 8) * (int64_t)sizeof(bx_seq_slot);
    return 0;
}
BX_FN int bx_seq_push(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    bx_seq_head *h = (bx_seq_head *)out[0].data;
    if (in[0].data != out[0].data) return bx_seq_insert(in, param, out, scratch);
    int64_t n = h->count, at = param[0] < 0 ? param[0] + n : param[0];
    if (n == h->slots) {
        memcpy((char *)h + h->used, bx_seq_slots(h), (size_t)n * sizeof(bx_seq_slot));
        h->table = h->used;
        h->slots = 2 * n + 8;
        h->used += h->slots * (int64_t)sizeof(bx_seq_slot);
    }
    bx_seq_append(h, &in[1]);
    bx_seq_slot *s = (bx_seq_slot *)((char *)h + h->table), last = s[n];
    for (int64_t i = n; i > at; i--) s[i] = s[i - 1];
    s[at] = last;
    return 0;
}

/* in: sequence. param: place, in [-count, count). out: blob. */
BX_FN int bx_seq_erase_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                            int64_t *bytes) {
    int64_t n = bx_seq_count(in[0].data);
    (void)sym;
    if (param[0] < -n || param[0] >= n) return 1;
    bytes[0] = bx_seq_size_for(n - 1, bx_seq_payload(in[0].data));
    return 0;
}
BX_FN int bx_seq_erase(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    int64_t n = bx_seq_count(in[0].data), at = param[0] < 0 ? param[0] + n : param[0];
    (void)scratch;
    bx_seq_init(out[0].data, bx_seq_dtype(in[0].data), n - 1);
    bx_seq_append_items(out[0].data, in[0].data, 0, at);
    bx_seq_append_items(out[0].data, in[0].data, at + 1, n);
    return 0;
}

/* Reports dims: of a known rank as sym[0..rank); else as sym[0..BX_RANK) with 1 beyond the rank,
 * which is sym[BX_RANK]. `want`: the known rank or -1. */
BX_FN int bx_seq_report(const bx_tensor *t, int64_t want, int64_t *sym) {
    if (want >= 0 && want != t->rank) return 1;
    for (int d = 0; d < t->rank; d++) sym[d] = t->dim[d];
    if (want >= 0) return 0;
    for (int d = t->rank; d < BX_RANK; d++) sym[d] = 1;
    sym[BX_RANK] = t->rank;
    return 0;
}

/* in: sequence. param: place, in [-count, count); rank or -1. sym: see bx_seq_report. out: the
 * item. */
BX_FN int bx_seq_at_plan(const bx_tensor *in, const int64_t *param, int64_t *sym, int64_t *bytes) {
    int64_t n = bx_seq_count(in[0].data);
    (void)bytes;
    if (param[0] < -n || param[0] >= n) return 1;
    bx_tensor t = bx_seq_item(in[0].data, param[0] < 0 ? param[0] + n : param[0]);
    return bx_seq_report(&t, param[1], sym);
}
BX_FN int bx_seq_at(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    int64_t n = bx_seq_count(in[0].data);
    bx_tensor t = bx_seq_item(in[0].data, param[0] < 0 ? param[0] + n : param[0]);
    int64_t bytes = bx_seq_bytes_of(&t);
    (void)scratch;
    if (bytes != bx_seq_bytes_of(&out[0])) return 1; /* not of the declared shape or type */
    if (bytes) memcpy(out[0].data, t.data, (size_t)bytes);
    return 0;
}

/* in: tensor (no blob); lengths [pieces] (int32, int64) or absent. param: axis; length of a piece
 * where in[1] is absent, > 0; whether to drop the axis (pieces of length 1). out: blob. */
BX_FN int64_t bx_seq_pieces(const bx_tensor *in, const int64_t *param) {
    int64_t extent = in[0].dim[param[0]];
    if (in[1].rank >= 0) return bx_count(&in[1]);
    return extent / param[1] + (extent % param[1] != 0);
}
BX_FN bx_tensor bx_seq_piece(const bx_tensor *in, const int64_t *param, int64_t i, int64_t from) {
    bx_tensor t = in[0];
    int axis = (int)param[0];
    int64_t left = t.dim[axis] - from;
    if (in[1].rank >= 0)
        t.dim[axis] = bx_geti(&in[1], i);
    else
        t.dim[axis] = left < param[1] ? left : param[1];
    return t;
}
BX_FN int bx_seq_split_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                            int64_t *bytes) {
    int64_t extent, from = 0, payload = 0;
    if (param[0] < 0 || param[0] >= in[0].rank) return 1;
    extent = in[0].dim[param[0]];
    if (in[1].rank < 0 && param[1] <= 0) return 1;
    for (int64_t i = 0, n = bx_seq_pieces(in, param); i < n; i++) {
        bx_tensor t = bx_seq_piece(in, param, i, from);
        int64_t length = t.dim[param[0]];
        if (length < 0 || length > extent - from)
            return bx_said(sym, length, i, extent - from, param[0]);
        from += length;
        payload += bx_seq_round(bx_seq_bytes_of(&t));
    }
    if (from != extent) return bx_said(sym, 0, bx_seq_pieces(in, param), extent - from, param[0]);
    bytes[0] = bx_seq_size_for(bx_seq_pieces(in, param), payload);
    return 0;
}
BX_FN int bx_seq_split(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    int axis = (int)param[0];
    int64_t outer = 1, inner = bx_size(in[0].dtype), from = 0, n = bx_seq_pieces(in, param);
    (void)scratch;
    for (int d = 0; d < axis; d++) outer *= in[0].dim[d];
    for (int d = axis + 1; d < in[0].rank; d++) inner *= in[0].dim[d];
    bx_seq_init(out[0].data, in[0].dtype, n);
    for (int64_t i = 0; i < n; i++) {
        bx_tensor t = bx_seq_piece(in, param, i, from);
        int64_t length = t.dim[axis], row = length * inner;
        bx_seq_head *h = (bx_seq_head *)out[0].data;
        bx_seq_slot *s = (bx_seq_slot *)((char *)h + h->table) + i;
        memset(s, 0, sizeof *s);
        s->offset = h->used;
        s->bytes = bx_seq_bytes_of(&t);
        for (int d = 0; d < t.rank; d++)
            if (d != axis || !param[2]) s->dim[s->rank++] = t.dim[d];
        for (int64_t o = 0; o < outer && row; o++)
            memcpy((char *)h + s->offset + o * row,
                   (const char *)in[0].data + (o * in[0].dim[axis] + from) * inner, (size_t)row);
        h->count++;
        h->used += bx_seq_round(s->bytes);
        from += length;
    }
    return 0;
}

/* in: sequence. param: axis (negative from the end of the result's rank); whether it is a new one;
 * rank of the result or -1. sym: see bx_seq_report. out: the tensor. */
BX_FN int bx_seq_joined(const bx_tensor *in, const int64_t *param, bx_tensor *t, int *axis,
                        int64_t *said) {
    int64_t n = bx_seq_count(in[0].data), at;
    if (n == 0) return 1;
    *t = bx_seq_item(in[0].data, 0);
    const bx_tensor head = *t;
    int fresh = param[1] != 0;
    at = param[0] < 0 ? param[0] + head.rank + fresh : param[0];
    if (at < 0 || at >= head.rank + fresh || head.rank + fresh > BX_RANK) return 1;
    *axis = (int)at;
    if (fresh) {
        for (int d = head.rank; d > *axis; d--) t->dim[d] = head.dim[d - 1];
        t->dim[*axis] = n;
        t->rank = head.rank + 1;
    }
    for (int64_t i = 1; i < n; i++) {
        bx_tensor x = bx_seq_item(in[0].data, i);
        if (x.rank != head.rank) return 1;
        for (int d = 0; d < x.rank; d++)
            if (x.dim[d] != head.dim[d] && (fresh || d != *axis))
                return said ? bx_said(said, i, x.dim[d], head.dim[d], d) : 1;
        if (!fresh) t->dim[*axis] += x.dim[*axis];
    }
    return 0;
}
BX_FN int bx_seq_concat_plan(const bx_tensor *in, const int64_t *param, int64_t *sym,
                             int64_t *bytes) {
    bx_tensor t;
    int axis;
    (void)bytes;
    int bad = bx_seq_joined(in, param, &t, &axis, sym);
    return bad ? bad : bx_seq_report(&t, param[2], sym);
}
BX_FN int bx_seq_concat(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    bx_tensor t;
    int axis;
    (void)scratch;
    if (bx_seq_joined(in, param, &t, &axis, NULL)) return 1;
    if (bx_seq_bytes_of(&t) != bx_seq_bytes_of(&out[0])) return 1;
    int64_t outer = 1, row = bx_size(t.dtype);
    for (int d = 0; d < axis; d++) outer *= t.dim[d];
    for (int d = axis; d < t.rank; d++) row *= t.dim[d];
    char *to = (char *)out[0].data;
    for (int64_t i = 0, n = bx_seq_count(in[0].data); i < n && outer; i++) {
        bx_tensor x = bx_seq_item(in[0].data, i);
        int64_t piece = bx_seq_bytes_of(&x) / outer;
        for (int64_t o = 0; o < outer && piece; o++)
            memcpy(to + o * row, (const char *)x.data + o * piece, (size_t)piece);
        to += piece;
    }
    return 0;
}

#endif
