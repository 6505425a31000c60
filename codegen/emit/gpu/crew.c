/* crew.c: which threads of a block compute a group: all of them, or a team beside others. */
#include "codegen/emit/emit.h"

Crew crew_of(Emit *em, const Kernel *k) {
    (void)em;
    if (!k->s->op.team)
        return (Crew){"bk_thread()", "bk_threads()", "bk_block()",
                      "bk_warp()",   "bk_warps()",   "BK_SCRATCH"};
    return (Crew){"bk_lane()", "BK_WARP", "bk_warp_meet()",
                  "0",         "1",       "BK_SCRATCH + bk_warp() * BK_ROOM"};
}
