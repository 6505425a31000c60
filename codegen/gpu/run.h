/* run.h: runs of a program for GPUs: memory, launches, what they come to (after device.h). */
#ifndef BK_INPUT_ALIGN
#define BK_INPUT_ALIGN 1
#endif

/* How far a recursion that was too deep is followed to tell how deep it is; the emulator is slow.
 */
#define BK_MEASURED_DEPTH ((int64_t)1 << (BK_BACKEND == 2 ? 12 : 20))
#define BK_MEASURED_BYTES ((size_t)1 << 28) /* of memory */

/* ---- memory ---------------------------------------------------------------------------------- */
/* Device memory of `bytes` in place of what is there, whose content is not needed. */
static int bk_renew(bk_session *s, uint64_t *address, size_t bytes, char *message, size_t size) {
    if (*address) s->d->free(*address);
    *address = 0;
    if (bytes > BK_MAX_BYTES) return bk_fail(s, BK_E_MEMORY, "taking memory", message, size);
    BK_TRY(s->d->alloc(address, bytes ? bytes : 256), "taking memory");
    return BK_ST_OK;
}

/* Takes the memory that the run before asked for, and an arena of `need` bytes. Nothing runs. */
static int bk_take(bk_session *s, size_t need, char *message, size_t size) {
    bk_image *up = &s->pinned->up, *down = &s->pinned->down;
    int64_t slot_need[BK_NSLOT + 1];
    const int wants = down->k.wants;
    const size_t had = s->arena ? up->k.arena_size : 0;
    for (int i = 0; i < BK_NSLOT; i++) slot_need[i] = (int64_t)down->cap_need[i];
    const bk_wish w = bk_wish_for(had, need, up->cap, slot_need, s->most);
    int st = w.sum > s->most ? bk_say_limit(wants, w.sum, s->most, message, size) : BK_ST_OK;
    if (st) goto out;
    if (!s->arena || w.arena > had) {
        s->stale = 1;
        up->k.arena_size = 0;
        if ((st = bk_renew(s, &s->arena, w.arena, message, size))) goto out;
        up->k.arena = (char *)(uintptr_t)s->arena;
        up->k.arena_size = w.arena;
        s->placed = 0;
    }
    for (int i = 0; i < BK_NSLOT; i++) {
        if (s->slot[i] && w.slot[i] <= up->cap[i]) continue;
        up->cap[i] = 0;
        s->stale = 1;
        if ((st = bk_renew(s, &s->slot[i], (size_t)w.slot[i], message, size))) goto out;
        up->cap[i] = w.slot[i];
        up->slot[i] = (char *)(uintptr_t)s->slot[i];
    }
    return BK_ST_OK;
out:
    memset(down->cap_need, 0, sizeof down->cap_need); /* the next run asks for itself */
    return st == BK_ST_MEMORY && w.sum <= s->most ? bk_say_memory(wants, had, message, size) : st;
}

static size_t bk_round(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* ---- a run ----------------------------------------------------------------------------------- */
/* Makes the device's table of inputs `in`, whose data is on the device. */
static int bk_put_table(bk_session *s, void *stream, const braid_tensor_v1 *in, char *message,
                        size_t size) {
    bk_table want;
    memset(want, 0, sizeof want);
    for (int i = 0; i < BK_NIN; i++) {
        want[i] = (braid_tensor_v1){.data = in[i].data, .dtype = in[i].dtype, .rank = in[i].rank};
        for (int j = 0; j < in[i].rank; j++) want[i].dim[j] = in[i].dim[j];
    }
    if (!BK_NIN || (!s->dirty && memcmp(want, s->now, sizeof want) == 0)) return BK_ST_OK;
    int i = s->table;
    BK_TRY(s->d->event_wait(s->read[i]), "waiting for an earlier run");
    s->table = (i + 1) % BK_TABLES;
    memcpy(s->pinned->table[i], want, sizeof want);
    memset(s->now, -1, sizeof s->now);
    BK_TRY(
        s->d->copy_in(s->block + offsetof(bk_image, in), s->pinned->table[i], sizeof want, stream),
        "copying the inputs' shapes");
    BK_TRY(s->d->event_record(s->read[i], stream), "copying the inputs' shapes");
    memcpy(s->now, want, sizeof want);
    return BK_ST_OK;
}

/* Enqueues a run and the copy of what it comes to. */
static int bk_launch(bk_session *s, void *stream, const braid_tensor_v1 *in, char *message,
                     size_t size) {
    const bk_driver *d = s->d;
    bk_image *up = &s->pinned->up, *down = &s->pinned->down;
    s->deep = 0;
    int st = bk_put_table(s, stream, in, message, size);
    if (st) return st;
    if (s->stale) {
        size_t slots = offsetof(bk_image, slot);
        BK_TRY(d->copy_in(s->block, up, BK_TURN_AT, stream), "copying the run's numbers");
        BK_TRY(d->copy_in(s->block + slots, up->slot, sizeof *up - slots, stream),
               "copying the run's numbers");
    }
    if (s->dirty)
        BK_TRY(d->fill(s->block + BK_ZERO_AT, 0, BK_ZERO_END - BK_ZERO_AT, stream),
               "clearing the run's state");
    if (s->dirty > 1) {
        BK_TRY(d->fill(s->block + BK_TURN_AT, 0, sizeof(unsigned), stream), "clearing the barrier");
        BK_TRY(
            d->fill(s->block + BK_IMAGE_BYTES, 0, (size_t)(s->nunit + 1) * sizeof(bk_word), stream),
            "clearing the barrier");
        s->turn = 0;
    }
#ifdef BK_NPRODUCT
    int r = bk_start_all(s, stream);
#else
    int r = bk_start(s, stream, 0);
#endif
    BK_TRY(r, "launching the kernel");
    r = d->copy_out((char *)down + BK_TURN_AT, s->block + BK_TURN_AT, BK_READ_END - BK_TURN_AT,
                    stream);
    if (!r) r = d->event_record(s->done, stream);
    if (r) { /* it runs, but there is no way to hear of it */
        d->stream_wait(stream);
        s->pending = 0;
        return bk_fail(s, r, "running the kernel", message, size);
    }
    s->pending++;
    s->last = stream;
    s->stale = s->dirty = 0;
    return BK_ST_OK;
}

/* What the runs that are over have come to: a status; *grow when the last wants more memory. */
static int bk_judge(bk_session *s, int *grow, char *message, size_t size) {
    const bk_ctx *k = &s->pinned->down.k;
    unsigned turns = k->turn - s->turn;
    int state = k->state > k->later ? k->state : k->later;
    s->barriers = s->nunit > 1 && s->pending ? (int64_t)turns / s->pending : 0;
    s->turn = k->turn;
    s->pending = 0;
    *grow = 0;
    s->dirty =
        state != BK_OK || k->fault || k->deep ? 2 : 0; /* blocks may have left at different turns */
    if (state == BK_OK && !k->fault) return BK_ST_OK;
    s->deep = k->fault && k->deep > 0 && k->deep <= BK_NSITE;
    if (state != BK_GROW || k->fault) return bk_say_fault(k->fault, k->said, message, size);
    *grow = 1;
    return BK_ST_OK;
}

/* Waits for the runs that are enqueued. */
static int bk_settle(bk_session *s, int *grow, char *message, size_t size) {
    *grow = 0;
    if (!s->pending) return BK_ST_OK;
    int r = s->d->event_wait(s->done);
    if (r) s->pending = 0;
    BK_TRY(r, "running the kernel");
    return bk_judge(s, grow, message, size);
}
/* The same for runs that cannot grow: of earlier calls. */
static int bk_settle_earlier(bk_session *s, char *message, size_t size) {
    int grow, st = bk_settle(s, &grow, message, size);
    return !st && grow ? bk_say_fault(0, NULL, message, size) : st;
}

/* The recursion went too deep: says how deep it wants to go. It is run again with a higher limit,
 * and what comes out is dropped. */
static void bk_say_depth(bk_session *s, void *stream, const braid_tensor_v1 *in, char *message,
                         size_t size) {
    bk_image *up = &s->pinned->up, *down = &s->pinned->down;
    const int site = down->k.deep - 1;
    const int64_t limit = up->k.stack_depth;
    int64_t deepest = limit;
    size_t arena = up->k.arena_size, taken = 0;
    int grow = 1, known = 0;
    up->k.depth_cap = limit > BK_MEASURED_DEPTH ? limit : BK_MEASURED_DEPTH;
    for (s->stale = 1; grow && !known && taken <= BK_MEASURED_BYTES;) {
        int st = bk_launch(s, stream, in, NULL, 0);
        if (!st) st = bk_settle(s, &grow, NULL, 0);
        known = !st && !grow;
        int64_t last = (int64_t)down->k.deepest -
                       !known; /* something may have ended it in its deepest activation */
        if (last > deepest) deepest = last;
        if (st) break;
        arena = taken = bk_arena_room(arena, down->k.arena_need);
        for (int i = 0; i < BK_NSLOT; i++)
            taken += (size_t)bk_slot_room(up->cap[i], (int64_t)down->cap_need[i]);
        if (grow && taken <= BK_MEASURED_BYTES && bk_take(s, arena, NULL, 0)) break;
    }
    /* The next run takes what it needs. */
    for (int i = 0; i < BK_NSLOT; i++) {
        if (s->slot[i]) s->d->free(s->slot[i]);
        s->slot[i] = 0;
        up->cap[i] = 0;
    }
    if (s->arena) s->d->free(s->arena);
    s->arena = 0;
    up->k.arena_size = 0;
    up->k.depth_cap = limit;
    s->stale = 1;
    memset(down->cap_need, 0, sizeof down->cap_need);
    bk_say(message, size, "%s %s%lld; the limit is %lld (--stack-depth)", bk_sites[site],
           known ? "" : "more than ", (long long)deepest, (long long)limit);
}

/* Runs on tensors in device memory until it is done, with as much memory as it takes. */
static int bk_complete(bk_session *s, void *stream, const braid_tensor_v1 *in, char *message,
                       size_t size) {
    bk_image *down = &s->pinned->down;
    size_t need = BK_ARENA;
    down->k.wants = 0;
#ifdef BK_NPRODUCT
    bk_want_slots(s, in);
#endif
    for (s->restarts = 0;; s->restarts++) {
        int grow, st = bk_take(s, need, message, size);
        if (!st) st = bk_launch(s, stream, in, message, size);
        if (!st) st = bk_settle(s, &grow, message, size);
        if (st && s->deep) bk_say_depth(s, stream, in, message, size);
        if (st) return st;
        if (!grow) break;
        need = down->k.arena_need > BK_ARENA ? (size_t)down->k.arena_need : BK_ARENA;
    }
    memset(down->cap_need, 0, sizeof down->cap_need);
    for (int i = 0; i < BK_NOUT; i++) { /* nothing but what the kernel wrote says so */
        const braid_tensor_v1 *t = &down->out[i];
        size_t bytes = bk_dtype_size(t->dtype);
        int bad = t->rank < -1 || t->rank > BRAID_MAX_RANK || (t->rank >= 0 && !bytes);
        for (int j = 0; !bad && j < t->rank; j++)
            if (t->dim[j] < 0 || (t->dim[j] && bytes > BK_MAX_BYTES / (size_t)t->dim[j]))
                bad = 1;
            else
                bytes *= (size_t)t->dim[j];
        if (bad) return bk_say_fault(0, NULL, message, size);
    }
    return BK_ST_OK;
}

/* Copies the host's inputs to the device; table gets where they are. */
static int bk_upload(bk_session *s, const braid_tensor_v1 *in, bk_table table, char *message,
                     size_t size) {
    size_t need = 256, at = 0;
    for (int i = 0; i < BK_NIN; i++) need += bk_round(bk_bytes(&in[i]));
    if (need > s->input_bytes) {
        s->input_bytes = 0;
        int st = bk_renew(s, &s->input, need, message, size);
        if (st) return st;
        s->input_bytes = need;
    }
    for (int i = 0; i < BK_NIN; i++) {
        size_t bytes = bk_bytes(&in[i]);
        table[i] = in[i];
        if (in[i].rank >= 0) table[i].data = (void *)(uintptr_t)(s->input + at);
        if (bytes)
            BK_TRY(s->d->copy_in(s->input + at, in[i].data, bytes, s->stream),
                   "copying the inputs");
        at += bk_round(bytes);
    }
    return BK_ST_OK;
}

/* Copies the outputs to the host. */
static int bk_download(bk_session *s, braid_tensor_v1 *out, char *message, size_t size) {
    const bk_image *down = &s->pinned->down;
    size_t need = 64, at = 0;
    for (int i = 0; i < BK_NOUT; i++) need += bk_round(bk_bytes(&down->out[i]));
    if (need > s->output_bytes) {
        if (s->output) s->d->host_free(s->output);
        s->output = NULL;
        s->output_bytes = 0;
        BK_TRY(s->d->host_alloc((void **)&s->output, need, 0), "taking memory for the outputs");
        s->output_bytes = need;
    }
    for (int i = 0; i < BK_NOUT; i++) {
        size_t bytes = bk_bytes(&down->out[i]);
        uint64_t from = (uintptr_t)down->out[i].data;
        if (bytes)
            BK_TRY(s->d->copy_out(s->output + at, from, bytes, s->stream), "copying the outputs");
        at += bk_round(bytes);
    }
    BK_TRY(s->d->stream_wait(s->stream), "copying the outputs");
    at = 0;
    for (int i = 0; i < BK_NOUT; i++) {
        out[i] = down->out[i];
        out[i].data = out[i].rank < 0 ? NULL : s->output + at;
        at += bk_round(bk_bytes(&down->out[i]));
    }
    return BK_ST_OK;
}

/* Has runs leave copies of their outputs at a place that is known: out[] says where. NULL: none. */
static int bk_want_copies(bk_session *s, braid_tensor_v1 *out, char *message, size_t size) {
    bk_image *up = &s->pinned->up;
    bk_copy_of *there = (bk_copy_of *)(uintptr_t)(s->block + offsetof(bk_image, deliver));
    size_t at[BK_NOUT + 1] = {0};
    if (up->k.deliver != (out ? there : NULL)) s->stale = 1;
    up->k.deliver = out ? there : NULL;
    for (int i = 0; out && i < BK_NOUT; i++) {
        const braid_io_v1 *io = &bk_outputs[i];
        out[i] = (braid_tensor_v1){.dtype = io->dtype, .rank = io->rank};
        for (int j = 0; j < io->rank; j++) out[i].dim[j] = io->dim[j];
        at[i + 1] = at[i] + bk_round(bk_bytes(&out[i]) + 1);
    }
    if (out && !s->delivered) {
        int st = bk_renew(s, &s->delivered, at[BK_NOUT], message, size);
        if (st) return st;
        s->stale = 1;
    }
    for (int i = 0; out && i < BK_NOUT; i++) {
        out[i].data = (void *)(uintptr_t)(s->delivered + at[i]);
        up->deliver[i] = (bk_copy_of){out[i].data, bk_bytes(&out[i])};
    }
    return BK_ST_OK;
}

/* The key of a run's random numbers; where it is a new one, earlier runs have to be over. */
static int bk_draw_seed(bk_session *s, char *message, size_t size) {
#ifdef BK_DRAWS
    uint64_t seed = bk_seed_next(&s->seed);
    if (seed == s->pinned->up.k.seed) return BK_ST_OK;
    int st = bk_settle_earlier(s, message, size);
    if (st) return st;
    s->pinned->up.k.seed = seed;
    s->stale = 1;
#else
    (void)s, (void)message, (void)size;
#endif
    return BK_ST_OK;
}

static int bk_run_host(bk_session *s, const braid_tensor_v1 *in, braid_tensor_v1 *out,
                       char *message, size_t size) {
    bk_table table;
    int st = bk_settle_earlier(s, message, size);
    if (!st) st = bk_check_inputs(in, message, size);
    if (!st) st = bk_draw_seed(s, message, size);
    if (!st) st = bk_want_copies(s, NULL, message, size);
    if (!st) st = bk_upload(s, in, table, message, size);
    if (!st) st = bk_complete(s, s->stream, table, message, size);
    if (!st) st = bk_download(s, out, message, size);
    /* Nothing may read the caller's memory after this call. */
    if (st && !s->lost[0]) s->d->stream_wait(s->stream);
    return st;
}

/* Remembers where the outputs of a run are. */
static void bk_place(bk_session *s, const braid_tensor_v1 *in) {
    memcpy(s->out, s->pinned->down.out, sizeof s->out);
    for (int i = 0; i < BK_NOUT; i++) {
        uint64_t at = (uintptr_t)s->out[i].data;
        s->out_input[i] = -1;
        for (int j = 0; j < BK_NIN; j++) {
            uint64_t from = (uintptr_t)in[j].data;
            if (in[j].rank < 0 || at < from || at - from >= bk_bytes(&in[j])) continue;
            s->out_input[i] = j;
            s->out[i].data = (void *)(uintptr_t)(at - from);
        }
    }
    s->placed = 1;
}

static int bk_run_device(bk_session *s, void *stream, const braid_tensor_v1 *in,
                         braid_tensor_v1 *out, char *message, size_t size) {
    int st = BK_ST_OK;
    if (s->pending) {
        int r = s->d->event_query(s->done);
        if (r != BK_E_NOT_READY || !BK_FIXED || (BK_STAYS && !s->placed) || s->dirty)
            st = bk_settle_earlier(s, message, size);
        else if (stream != s->last)
            BK_TRY(s->d->stream_behind(stream, s->done, 0), "waiting for another stream");
    }
    if (!st) st = bk_check_inputs(in, message, size);
    for (int i = 0; i < BK_NIN && !st; i++)
        if (in[i].rank >= 0 && (uintptr_t)in[i].data % BK_INPUT_ALIGN) {
            bk_say(message, size, "input '%s': its data is not aligned to %d bytes",
                   bk_inputs[i].name, BK_INPUT_ALIGN);
            st = BK_ST_INPUT;
        }
    if (!st) st = bk_draw_seed(s, message, size);
    if (st) return st;
    if (BK_FIXED && !BK_STAYS) {
        braid_tensor_v1 copies[BK_NOUT + 1];
        s->restarts = 0;
        st = bk_want_copies(s, copies, message, size);
        if (!st) st = bk_launch(s, stream, in, message, size);
        if (!st && BK_NOUT > 0) memcpy(out, copies, BK_NOUT * sizeof *out);
        return st;
    }
    if (BK_FIXED && s->placed) {
        s->restarts = 0;
        st = bk_launch(s, stream, in, message, size);
        for (int i = 0; !st && i < BK_NOUT; i++) {
            out[i] = s->out[i];
            if (s->out_input[i] >= 0)
                out[i].data = (char *)in[s->out_input[i]].data + (uintptr_t)s->out[i].data;
        }
        return st;
    }
    st = bk_complete(s, stream, in, message, size);
    if (st) return st;
    if (BK_FIXED && BK_STAYS) bk_place(s, in);
    if (BK_NOUT) memcpy(out, s->pinned->down.out, BK_NOUT * sizeof *out);
    return BK_ST_OK;
}
