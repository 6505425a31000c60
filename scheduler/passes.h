/* passes.h: transformations of the uTask tree. Each is a function over a Program that leaves the
 * invariants of utask.h; compile() calls them in order with the verifier between. */
#ifndef BRAID_PASSES_H
#define BRAID_PASSES_H

#include "scheduler/cost/device.h"
#include "utask/utask.h"

/* Requires a verified Program. Removes statements, carried values and joins that no output, check
 * or control decision depends on. */
void pass_dead_code(Program *p);

/* Requires single-tensor OPs. Sums of products of dequantized values become sums of integers, and
 * what only moves dequantized values moves the codes; what has no use left is left to
 * pass_dead_code. */
void pass_quantized(Program *p);

/* Requires single-tensor OPs. What is made of constants alone becomes a constant. */
void pass_constants(Program *p);

/* Constants that are functions of their position become expressions; those that products multiply
 * by stay. */
void pass_positions(Program *p);

/* Requires single-tensor OPs. Products with a concatenation become sums of products with its
 * pieces; the concatenation may then have no use left. */
void pass_split_sum(Program *p);

/* Requires single-tensor OPs. On processors with vectors, values of 16-bit floats are kept in
 * memory as float32, where nobody else sees them, and 16-bit factors of products become float32. */
void pass_widen(Program *p);

/* Requires single-tensor OPs. On processors with vectors, sets Tensor.coded of factors that are
 * numbers of few bits. */
void pass_codes(Program *p);

/* Requires single-tensor OPs. Rounds float32 factors to Schedule.weights, where that pays. */
void pass_narrow(Program *p);

/* Requires single-tensor OPs. Tensors that are computed alike and concatenated become one. */
void pass_stack(Program *p);

/* Requires single-tensor OPs. Products of one-hot rows with constants become loads of the rows. */
void pass_pick(Program *p);

/* Requires single-tensor OPs. Products of two constants at positions that only the run knows become
 * loads of a table computed here; what made the position stays. */
void pass_fold_product(Program *p);

/* Requires OPs as lowering made them. Discrete Fourier transforms of a known length without large
 * prime factors are computed by its factors (a hand-written body), where that pays. */
void pass_fourier(Program *p);

/* Checks in counted loops that are linear in the iteration number are made once, before the loop.
 */
void pass_lift_check(Program *p);

/* Requires single-tensor OPs. Counted loops that carry nothing become an axis of what is in them.
 */
void pass_interchange(Program *p);

/* Requires single-tensor OPs. A nest of counted loops, steps around layers, becomes layers around
 * steps, and what stands beside the inner loop becomes loops of its own; results of these without a
 * use are left to pass_dead_code. */
void pass_interchange_nest(Program *p);

/* Requires single-tensor OPs. What does not change from iteration to iteration is computed before
 * the loop, and what the last iteration computed, too, is carried. What has no use left is left to
 * pass_dead_code. */
void pass_reuse(Program *p);

/* Requires single-tensor OPs. Sums of products in the body of a counted loop that read nothing
 * carried are computed for all iterations before it (all input projections of a recurrent loop
 * become one product). The body then loads its part. */
void pass_hoist(Program *p);

/* Requires single-tensor OPs. Values of all iterations that are computed before a counted loop, of
 * which each iteration reads its own part once, are computed there; what has no use left is left to
 * pass_dead_code. */
void pass_sink(Program *p);

/* Requires single-tensor OPs. On processors with vectors, what is made of a counted loop's stacked
 * results element by element is made in the loop. */
void pass_tail(Program *p);

/* Requires single-tensor OPs. Consecutive counted loops over one range, of which a later one reads
 * what an earlier one made in the same iteration, become one loop, on a diagonal or without. */
void pass_wavefront(Program *p);

/* Requires single-tensor OPs. Counted loops make several iterations at a time where their bodies
 * are cheap; a second loop makes the remaining ones. */
void pass_unroll(Program *p);

/* Requires single-tensor OPs. Orders the dimensions of tensors that only OPs see so that vectors of
 * sums of products are stored whole; values stay equal, their positions change. */
void pass_layout(Program *p);

/* Requires single-tensor OPs. On GPUs, products of the program's own body become OPs of their own
 * at host level. */
void pass_library(Program *p);

/* Requires single-tensor OPs. Substitutes tensor expressions into their users where that saves
 * memory traffic without repeating work, and joins expressions over one domain into groups. Leaves
 * OPs whose members read each other only at their own position. */
void pass_fuse(Program *p);

/* Requires grouped OPs. On CPUs, what stands between the two products of attention becomes part of
 * the second one, where its kernel computes that in one pass. */
void pass_attention(Program *p);

/* Requires grouped OPs. Sets LoopCarry.inplace, push, Stmt.op.at and Tensor.grow. */
void pass_inplace(Program *p);
/* The same for one carried value that grows (grow.c); false: nothing was changed. */
bool grow_in_place(Program *p, Stmt *loop, LoopCarry *carry);

/* Requires the final groups. A branch whose parts want different numbers of units becomes
 * consecutive ones on the same condition. */
void pass_recluster(Program *p);

/* Requires the final groups. On GPUs, sets Stmt.ext.host of the linearizers that the host runs, and
 * Program.ahead (scheduler/plan/host.c). */
void pass_host(Program *p);

/* Requires the final groups. Sets Stmt.each of what the activations of a recursion compute to find
 * their way. */
void pass_replicate(Program *p);

/* Requires the final groups. On GPUs, a reduction of what units make together becomes one of what
 * each unit has reduced of its own part, by every unit (Stmt.each). */
void pass_partial(Program *p);

/* Requires grouped OPs. Sets Stmt.level and Schedule.team (schedule.c: Algorithm 1). */
void pass_schedule(Program *p);

/* Requires the distribution. Sets Stmt.op.strip, rows and follows (scheduler/plan/strips.h). */
void pass_strips(Program *p);
/* Requires kernels. Takes strips from groups whose kernels, or neighbours, have none. */
void pass_settle_strips(Program *p);
/* Requires the barriers. Leaves strips to groups that are still neighbours. */
void pass_lone_strips(Program *p);

/* Requires the distribution and strips. On GPUs, sets Stmt.beside and op.team of groups that run
 * side by side (scheduler/plan/beside.h). */
void pass_beside(Program *p);

/* Requires the distribution. Sets Stmt.op.kernel (scheduler/kernel/). */
void pass_kernel(Program *p);

/* Requires pass_memory. Decides which outputs a run can write to the caller's memory (Mem.given),
 * and whether runs can fail (MemPlan.fails). */
void pass_outputs(Program *p);

/* Requires pass_distribute and pass_memory. Leaves in the tree every place where units, or threads
 * of one, synchronize: BARRIER statements, Stmt.apart, Stmt.ext.barrier, LoopCarry.closes and, of a
 * loop, copies, barrier and block_barrier. */
void pass_sync(Program *p);

/* Requires pass_sync. Sets what variables need of memory: fields of Stmt.apart, Stmt.call.records,
 * Func.vars, parts and lends, and the rest of Program.mem (scheduler/plan/variables.h). */
void pass_variables(Program *p);

/* Requires pass_variables. Sets Program.phases, where there are statements at host level, and adds
 * the words that launches hand over to the arena (scheduler/plan/phases.h). */
void pass_phases(Program *p);

/* Requires kernels, barriers and pass_phases. Sets Program.onchip (scheduler/plan/onchip.h),
 * OwnPart.resident, and of what groups read first after a barrier of all units OwnPart.ahead and
 * Stmt.barrier.ahead. */
void pass_onchip(Program *p);

/* Requires kernels and pass_onchip. Sets Program.weights (scheduler/plan/weights.h): code
 * generation names no other constant, and each of these. */
void pass_weights(Program *p);

/* Requires the complete program. Sets Program.probes if it is to measure itself. */
void pass_probes(Program *p);

/* A loop or branch, among what the units of level `around` share, that fewer run as a team of their
 * own: at core level unit Stmt.unit, at cluster level the cluster that begins with it. Then all
 * synchronize, once for those beside each other. */
static inline bool stmt_apart(const Stmt *s, Level around) {
    return (s->kind == S_LOOP || s->kind == S_BRANCH) && s->level < around;
}
/* The level of the units that share what is in q. */
Level seq_level(const Seq *q);
/* An inner call of a recursion that unit Stmt.unit runs as a team of one, with those beside it;
 * then all synchronize. Inside it no unit synchronizes with another. */
static inline bool stmt_split(const Stmt *s) { return s->kind == S_CALL && s->level == LEVEL_CORE; }
/* Barriers at a level of one pass over q, those of inner loops' iterations not counted. */
int sync_count(const Seq *q, Level level);
/* The same for flags: one unit waits for all, or all for it. */
int sync_flags(const Seq *q);

#endif
