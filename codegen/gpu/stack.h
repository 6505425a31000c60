/* stack.h: the records of a simulated stack (after prelude.h).
 *
 * Record `level` of this unit, of `bytes` bytes: the first `near` ones are in the block's own
 * memory from `shared` on, the others in growable buffer `slot`, those of one level side by side.
 * NULL when there is no room, and the need is recorded. */
#ifndef BK_STACK_H
#define BK_STACK_H
static __device__ __noinline__ char *bk_record(bk_ctx *k, int unit, int nunit, int64_t level,
                                               int64_t bytes, int64_t shared, int64_t near,
                                               int slot) {
    if (level < near) return bk_shared() + shared + level * bytes;
    char *far = bk_slot(k, slot, bk_size(level - near + 1, nunit * bytes));
    return far ? far + ((level - near) * nunit + unit) * bytes : NULL;
}
#endif
