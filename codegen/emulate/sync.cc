// sync.cc: synchronization: barriers of blocks and clusters, votes and shuffles of warps, fences,
// atomics, and a thread's end.
//
// Threads that synchronize learn each other's clocks here.
#include "internal.h"

#include <ctime>
#include "driver.inc"

#define EMU_RUNTIME
#include "emulate.h"

namespace emu {

namespace {

enum Kind { k_sync, k_or, k_and, k_count, k_warp, k_shuffle, k_vote, k_matrix };
const char *const kind_name[] = {"__syncthreads",
                                 "__syncthreads_or",
                                 "__syncthreads_and",
                                 "__syncthreads_count",
                                 "__syncwarp",
                                 "shuffle",
                                 "vote",
                                 "matrix product"};

// A call's place includes its callers, so that calls of a function that wraps a barrier are
// different places.
uint64_t place_key(const Thread *t, const void *site) {
    uint64_t h = reinterpret_cast<uint64_t>(site);
    unsigned n = t->depth < kCalls ? t->depth : kCalls;
    for (unsigned i = 0; i < n; i++)
        h = (h ^ reinterpret_cast<uint64_t>(t->calls[i].from)) * 0x100000001B3u;
    return h;
}

void enter(Thread *t, const void *site) {
    t->site = site;
    t->site_key = place_key(t, site);
    t->spins = 0;
}

// Whether both are the same line of the text, of which the compiler may have made several copies.
bool same_place(const Thread *a, uint64_t key, const void *site) {
    if (a->site_key == key) return true;
    return a->site != site && same_line(a->site, site);
}

void divergent(const Thread *t, const std::string &what) {
    report_fatal(EMU_LAUNCH_FAILED, where_is(t, t->site) + ": " + what);
}

std::string lane_list(uint64_t mask) {
    std::string s;
    for (unsigned i = 0; i < 64; i++)
        if (mask >> i & 1) {
            unsigned j = i;
            while (j < 63 && mask >> (j + 1) & 1) j++;
            s += (s.empty() ? "" : ",") + std::to_string(i);
            if (j > i) s += "-" + std::to_string(j);
            i = j;
        }
    return s;
}

// A lane waits elsewhere or has ended: it is an error if a lane of its warp waits for it.
void leave_meetings(const Thread *t, const char *does, const void *site) {
    for (const Meeting &m : t->warp->meeting)
        if (m.mask >> t->lane & 1 && !(m.arrived >> t->lane & 1)) {
            const Thread *first = &t->warp->thread[m.first];
            report_fatal(EMU_LAUNCH_FAILED,
                         where_is(first, m.site) + ": divergent " + kind_name[m.kind] + ": " +
                             thread_name(first) + " waits for lanes " + lane_list(m.mask) +
                             ", but " + thread_name(t) + " " + does + " at " + line_of(site));
        }
}

// ---- clocks
void take(Thread *t, Clock *c, uint32_t time) {
    clock_share(c);
    clock_drop(t->clock);
    t->clock = c;
    t->time = time;
}

// The threads synchronize: each now knows what any of them has done. They are all lanes of nwarps
// warps, or with nwarps 0 some lanes of one warp.
void meet(Thread *const *threads, size_t n, const Warp *warps, size_t nwarps) {
    uint32_t before = device.now++;
    Clock *c = clock_share(threads[0]->clock);
    for (size_t i = 1; i < n; i++)
        if (threads[i]->clock != threads[i - 1]->clock && threads[i]->clock != c) {
            c = clock_own(c);
            clock_join(c, threads[i]->clock);
        }
    c = clock_own(c);
    if (nwarps)
        for (size_t i = 0; i < nwarps; i++) clock_learn_warp(c, warps[i].id, before);
    else
        for (size_t i = 0; i < n; i++) clock_learn(c, threads[i]->id, threads[i]->time);
    for (size_t i = 0; i < n; i++) take(threads[i], c, device.now);
    clock_drop(c);
    device.idle = 0;
}

void fence(Thread *t, bool device_wide) {
    if (device.config.count) count_fence(t, device_wide);
    for (int i = 0; i <= (device_wide ? 1 : 0); i++) {
        if (t->pending[i]) {
            t->clock = clock_own(t->clock);
            clock_join(t->clock, t->pending[i]);
            clock_drop(t->pending[i]);
            t->pending[i] = nullptr;
        }
        clock_drop(t->released[i]);
        t->released[i] = nullptr;
    }
    Clock *c = clock_own(clock_share(t->clock));
    clock_learn(c, t->id, t->time);
    t->released[0] = c;
    if (device_wide) t->released[1] = clock_share(c);
    t->time = ++device.now;
}

// ---- block barriers
int block_barrier(Kind kind, int value, const void *site) {
    Thread *t = device.current;
    Block *b = t->block;
    enter(t, site);
    sync_point();
    leave_meetings(t, "waits at a block barrier", site);
    if (b->alive < device.threads_in_block)
        divergent(t, std::string("divergent barrier: ") + thread_name(t) + " waits at " +
                         kind_name[kind] + ", but " +
                         std::to_string(device.threads_in_block - b->alive) +
                         " threads of its block have ended");
    if (b->waiting) {
        if (b->kind != kind || !same_place(t, b->site_key, b->site))
            divergent(t, std::string("divergent barrier: ") + thread_name(t) + " waits at " +
                             kind_name[kind] + ", but " + thread_name(b->first) + " waits at " +
                             kind_name[b->kind] + " at " + where_is(b->first, b->site));
    } else {
        b->kind = kind;
        b->site = site;
        b->site_key = t->site_key;
        b->first = t;
        b->sum = b->any = 0;
        b->all = 1;
    }
    b->sum += value != 0;
    b->any |= value != 0;
    b->all &= value != 0;
    if (++b->waiting < device.threads_in_block) {
        wait(State::barrier);
    } else {
        b->waiting = 0;
        std::vector<Thread *> all(device.threads_in_block);
        for (unsigned i = 0; i < device.threads_in_block; i++) all[i] = &b->thread[i];
        meet(all.data(), all.size(), b->warp, device.warps_in_block);
        if (device.config.count) count_block(all.data(), all.size());
        int result = kind == k_or ? b->any : kind == k_and ? b->all : b->sum;
        for (Thread *o : all) {
            o->result = static_cast<uint64_t>(result);
            if (o != t) thread_ready(o);
        }
        sync_point();
    }
    return static_cast<int>(t->result);
}

// ---- warps
uint64_t existing(const Warp *w) { return w->lanes == 64 ? ~0ull : (1ull << w->lanes) - 1; }

// ---- matrix units
enum Element { f16, bf16, tf32 };

// An instruction adds to 16 lines of sums the products of 16 lines of a and `others` lines of b.
struct Instruction {
    Element type;
    unsigned others, steps;
};
struct Operands { // of one lane
    Instruction does;
    float *c;
    const unsigned *a, *b;
};
struct Place {
    unsigned lane, word, part; // part of a word
};

// Where step k of a line is, of an operand with so many lines. The vendors' layouts: PTX ISA,
// "Matrix Fragments for mma.m16n8k16" and others; AMD Instinct MI200 ISA, "Matrix Arithmetic
// Instructions", and AMD's matrix instruction calculator.
Place operand(const Instruction &does, unsigned lines, unsigned line, unsigned k) {
    const unsigned parts = does.type == tf32 ? 1 : 2; // of a word
    if (device.width == 32)
        return {line % 8 * 4 + k / parts % 4, k / (4 * parts) * (lines / 8) + line / 8, k % parts};
    const unsigned each = does.steps / 4;
    return {line + k / each * 16, k % each / parts, k % parts};
}

// Where the sum of a line of a and a line of b is.
Place sum_of(unsigned line, unsigned other) {
    if (device.width == 32) return {line % 8 * 4 + other / 2, line / 8 * 2 + other % 2, 0};
    return {other + line / 4 * 16, line % 4, 0};
}

float element(unsigned word, Element type, unsigned part) {
    unsigned u = type == tf32 ? word & 0xffffe000u : word >> part * 16 & 0xffffu;
    if (type == bf16) u <<= 16;
    float x;
    if (type == f16) {
        const unsigned e = u >> 10 & 31, m = u & 1023;
        const float size =
            e == 31 ? (m ? NAN : INFINITY) : ldexpf(float(e ? m | 1024 : m), (e ? int(e) : 1) - 25);
        return u & 0x8000u ? -size : size;
    }
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}

void multiply(const Warp *w) {
    const auto operands = [&](unsigned lane) {
        return reinterpret_cast<const Operands *>(w->value[lane]);
    };
    const Instruction does = operands(0)->does;
    float a[16][16], b[16][16];
    for (unsigned k = 0; k < does.steps; k++) {
        for (unsigned i = 0; i < 16; i++) {
            const Place p = operand(does, 16, i, k);
            a[i][k] = element(operands(p.lane)->a[p.word], does.type, p.part);
        }
        for (unsigned j = 0; j < does.others; j++) {
            const Place p = operand(does, does.others, j, k);
            b[j][k] = element(operands(p.lane)->b[p.word], does.type, p.part);
        }
    }
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < does.others; j++) {
            const Place p = sum_of(i, j);
            float sum = operands(p.lane)->c[p.word];
            for (unsigned k = 0; k < does.steps; k++) sum += a[i][k] * b[j][k];
            operands(p.lane)->c[p.word] = sum;
        }
}

// All lanes of the mask call this, each with a value and the lane whose value it wants. The last
// one computes all results and lets the others go on.
void warp_meet(Kind kind, uint64_t mask, uint64_t value, unsigned from, const void *site) {
    Thread *t = device.current;
    Warp *w = t->warp;
    enter(t, site);
    sync_point();
    uint64_t full = device.width == 64 ? ~0ull : (1ull << device.width) - 1;
    mask &= full;
    if (mask == full) mask = existing(w); // a block's last warp may have fewer lanes
    const std::string what =
        std::string("divergent ") + kind_name[kind] + ": " + thread_name(t) + " ";
    if (!(mask >> t->lane & 1)) divergent(t, what + "is not in its own mask");
    if (mask & ~existing(w))
        divergent(t, what + "names lanes that do not exist: " + lane_list(mask & ~existing(w)));
    if (mask & w->exited)
        divergent(t, what + "waits for lanes that have ended: " + lane_list(mask & w->exited));
    if (!(mask >> from & 1))
        divergent(t,
                  what + "reads lane " + std::to_string(from) + ", which its mask does not name");
    for (unsigned i = 0; i < w->lanes; i++) {
        const Thread *o = &w->thread[i];
        if (mask >> i & 1 && (o->state == State::barrier || o->state == State::cluster))
            divergent(t, what + "waits for lanes " + lane_list(mask) + ", but " + thread_name(o) +
                             " waits at a barrier at " + line_of(o->site));
    }
    Meeting *m = nullptr;
    for (Meeting &o : w->meeting)
        if (o.mask == mask) m = &o;
    if (m) {
        const Thread *first = &w->thread[m->first];
        if (m->kind != kind || !same_place(t, m->site_key, m->site))
            divergent(t, what + "waits here, but " + thread_name(first) + " of its mask at " +
                             kind_name[m->kind] + " at " + line_of(m->site));
    } else {
        w->meeting.push_back({mask, 0, kind, site, t->site_key, t->lane});
        m = &w->meeting.back();
    }
    w->value[t->lane] = value;
    w->from[t->lane] = from;
    m->arrived |= 1ull << t->lane;
    if (m->arrived != mask) {
        wait(State::warp);
        return;
    }
    w->meeting.erase(w->meeting.begin() + (m - w->meeting.data()));
    Thread *all[64];
    size_t n = 0;
    uint64_t votes = 0;
    for (unsigned i = 0; i < w->lanes; i++)
        if (mask >> i & 1) {
            all[n++] = &w->thread[i];
            if (w->value[i]) votes |= 1ull << i;
        }
    if (kind == k_matrix) multiply(w);
    if (device.config.count) count_warp(all, n, kind == k_matrix);
    for (size_t i = 0; i < n; i++)
        all[i]->result = kind == k_vote ? votes : w->value[w->from[all[i]->lane]];
    // Only __syncwarp orders memory; votes and shuffles do not (CUDA C++ Programming Guide).
    if (kind == k_warp) meet(all, n, w, mask == existing(w) ? 1 : 0);
    device.idle = 0;
    for (size_t i = 0; i < n; i++)
        if (all[i] != t) thread_ready(all[i]);
}

enum Pattern { to_lane, to_xor, to_down, to_up };

uint64_t shuffle(Pattern pattern, uint64_t mask, uint64_t value, unsigned by, int width,
                 const void *site) {
    Thread *t = device.current;
    unsigned n = width <= 0 ? device.width : static_cast<unsigned>(width);
    if (n > device.width || n & (n - 1)) {
        t->site = site;
        divergent(t, "shuffle: the width " + std::to_string(width) +
                         " is not a power of two up to " + std::to_string(device.width));
    }
    unsigned lane = t->lane, low = lane & ~(n - 1), from = lane;
    switch (pattern) {
    case to_lane: from = low + (by & (n - 1)); break;
    case to_xor: from = (lane ^ by) < low + n ? lane ^ by : lane; break;
    case to_down: from = by < low + n - lane ? lane + by : lane; break;
    case to_up: from = by <= lane - low ? lane - by : lane; break;
    }
    warp_meet(k_shuffle, mask, value, from, site);
    return t->result;
}

uint64_t vote(uint64_t mask, int value, const void *site) {
    warp_meet(k_vote, mask, value != 0, device.current->lane, site);
    return device.current->result;
}

void matrix(const Instruction &does, float *c, const unsigned *a, const unsigned *b,
            const void *site) {
    Thread *t = device.current;
    t->site = site;
    if (t->warp->lanes < device.width)
        divergent(t, "divergent matrix product: the warp is not whole");
    if ((does.others == 8) != (device.width == 32))
        divergent(t, "a matrix product of another width of warps");
    const Operands mine = {does, c, a, b};
    warp_meet(k_matrix, ~0ull, reinterpret_cast<uint64_t>(&mine), t->lane, site);
}

uint64_t vote_mask(uint64_t mask) {
    uint64_t full = device.width == 64 ? ~0ull : (1ull << device.width) - 1;
    mask &= full;
    return mask == full ? existing(device.current->warp) : mask;
}

template <class T> uint64_t bits_of(T value) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> T of_bits(uint64_t bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// ---- clusters
void cluster_arrive(const void *site) {
    Thread *t = device.current;
    Cluster *c = t->block->cluster;
    enter(t, site);
    sync_point();
    leave_meetings(t, "arrives at the cluster barrier", site);
    if (t->arrived)
        divergent(t, "divergent barrier: " + thread_name(t) +
                         " arrives at the cluster barrier twice without waiting");
    if (c->alive < c->blocks * device.threads_in_block)
        divergent(t, "divergent barrier: " + thread_name(t) +
                         " arrives at the cluster barrier, but " +
                         std::to_string(c->blocks * device.threads_in_block - c->alive) +
                         " threads of its cluster have ended");
    t->arrived = true;
    if (!c->clock)
        c->clock = clock_own(clock_share(t->clock));
    else
        clock_join(c->clock, t->clock);
    c->at.push_back({t->id, t->time});
    t->time = ++device.now;
    c->after.push_back(t->time);
    if (++c->arrived < c->blocks * device.threads_in_block) return;
    if (device.config.count) {
        std::vector<Thread *> all(c->blocks * device.threads_in_block);
        Block *block = t->block - t->block->rank;
        for (size_t i = 0; i < all.size(); i++) all[i] = &block->thread[i];
        count_cluster(all.data(), all.size());
    }
    // All of a warp is known up to just before the first of its lanes arrived; of some lanes more.
    Warp *first = t->block->warp - t->block->rank * device.warps_in_block;
    unsigned warps = c->blocks * device.warps_in_block;
    std::vector<uint32_t> before(warps, UINT32_MAX);
    for (size_t i = 0; i < c->at.size(); i++) {
        uint32_t &b = before[device.thread[c->at[i].thread].warp->id - first->id];
        if (c->after[i] - 1 < b) b = c->after[i] - 1;
    }
    for (unsigned i = 0; i < warps; i++) clock_learn_warp(c->clock, first->id + i, before[i]);
    for (const Later &l : c->at) clock_learn(c->clock, l.thread, l.time);
    Block *b = t->block - t->block->rank;
    for (unsigned i = 0; i < c->blocks * device.threads_in_block; i++) {
        Thread *o = &b->thread[i];
        clock_drop(o->joined);
        o->joined = clock_share(c->clock);
        if (o->state == State::cluster) thread_ready(o);
    }
    clock_drop(c->clock);
    c->clock = nullptr;
    c->at.clear();
    c->after.clear();
    c->arrived = 0;
    device.idle = 0;
}

void cluster_wait(const void *site) {
    Thread *t = device.current;
    enter(t, site);
    if (!t->arrived)
        divergent(t, "divergent barrier: " + thread_name(t) +
                         " waits at the cluster barrier without having arrived");
    if (!t->joined) wait(State::cluster);
    t->arrived = false;
    t->clock = clock_own(t->clock);
    clock_join(t->clock, t->joined);
    clock_drop(t->joined);
    t->joined = nullptr;
    sync_point();
}

} // namespace

void thread_exit() {
    Thread *t = device.current;
    Block *b = t->block;
    Cluster *c = b->cluster;
    const void *site = reinterpret_cast<const void *>(device.kernel);
    leave_meetings(t, "has ended", site);
    if (b->waiting)
        report_fatal(EMU_LAUNCH_FAILED, where_is(b->first, b->site) +
                                            ": divergent barrier: " + thread_name(t) +
                                            " has ended, but " + thread_name(b->first) +
                                            " waits at " + kind_name[b->kind]);
    if (c->arrived && (c->blocks > 1 || t->arrived)) {
        const Thread *o = &device.thread[c->at[0].thread];
        report_fatal(EMU_LAUNCH_FAILED, where_is(o, o->site) + ": divergent barrier: " +
                                            thread_name(t) + " has ended, but " + thread_name(o) +
                                            " has arrived at the cluster barrier");
    }
    if (device.config.count) count_end(t);
    t->state = State::exited;
    t->warp->exited |= 1ull << t->lane;
    if (b->alive == 1) shared_end(t);
    b->alive--;
    c->alive--;
    device.idle = 0;
}

} // namespace emu

// ---- what the text calls
using namespace emu;
#define SITE __builtin_return_address(0)

void __syncthreads() { block_barrier(k_sync, 0, SITE); }
int __syncthreads_or(int value) { return block_barrier(k_or, value, SITE); }
int __syncthreads_and(int value) { return block_barrier(k_and, value, SITE); }
int __syncthreads_count(int value) { return block_barrier(k_count, value, SITE); }

void __threadfence() {
    sync_point();
    fence(device.current, true);
}
void __threadfence_system() {
    sync_point();
    fence(device.current, true);
}
void __threadfence_block() {
    sync_point();
    fence(device.current, false);
}
// Where time is counted, the thread's own.
static long long now_ns() {
    if (device.config.count) return static_cast<long long>(device.current->count.now);
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}
long long clock64() { return now_ns(); }
long long emu_globaltimer() { return now_ns(); }
void __nanosleep(unsigned) {
    device.current->site = SITE;
    yield(true);
}
void __trap() {
    report_fatal(EMU_LAUNCH_FAILED, where_is(device.current, SITE) + ": " +
                                        thread_name(device.current) + " stops the kernel (__trap)");
}

// Ends the launch if p, which the device takes for an address in global memory, is in a block's
// own.
static void must_be_global(const void *p, const char *does, const void *site) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    if (at < device.shared_space.low || at >= device.shared_space.high) return;
    report_fatal(EMU_ILLEGAL_ADDRESS, where_is(device.current, site) +
                                          ": not global: " + thread_name(device.current) + " " +
                                          does + " " + describe_address(at));
}

void emu_copy_async(void *to, const void *from, unsigned bytes) {
    must_be_global(from, "copies asynchronously from", SITE);
    Thread *t = device.current;
    Copy copy = {reinterpret_cast<uintptr_t>(to),
                 reinterpret_cast<uintptr_t>(from),
                 bytes,
                 SITE,
                 t->committed,
                 0};
    if (device.config.count) copy.there = count_copy(t, copy.from);
    if (device.checking) copy_begin(t, copy);
    t->copies.push_back(copy);
}
void emu_commit() { device.current->committed++; }
void emu_copied_but(unsigned left) {
    Thread *t = device.current;
    double there = 0;
    size_t n = 0;
    for (; n < t->copies.size() && t->copies[n].group + left < t->committed; n++) {
        const Copy &c = t->copies[n];
        if (device.checking) copy_end(c);
        void *to = reinterpret_cast<void *>(c.to);
        if (c.from)
            __builtin_memcpy(to, reinterpret_cast<const void *>(c.from), c.bytes);
        else
            __builtin_memset(to, 0, c.bytes);
        there = std::max(there, c.there);
    }
    if (device.config.count && n) count_copied(t, there);
    t->copies.erase(t->copies.begin(), t->copies.begin() + static_cast<std::ptrdiff_t>(n));
}
void emu_copied() {
    emu_commit();
    emu_copied_but(0);
}

void emu_then(int depth) {
    if (device.config.count) count_then(device.current, depth);
}
void emu_behind(int loads) {
    if (device.config.count) count_behind(device.current, loads);
}

void __syncwarp(unsigned long long mask) { warp_meet(k_warp, mask, 0, device.current->lane, SITE); }
#define MMA(TYPE, STEPS)                                                                           \
    void emu_mma_##TYPE(float *c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, \
                        unsigned b1) {                                                             \
        const unsigned a[] = {a0, a1, a2, a3}, b[] = {b0, b1};                                     \
        matrix({TYPE, 8, STEPS}, c, a, b, SITE);                                                   \
    }
MMA(f16, 16)
MMA(bf16, 16)
MMA(tf32, 8)
#define MFMA(NAME, TYPE, STEPS, WORDS)                                                             \
    emu_sums NAME(WORDS a, WORDS b, emu_sums c, int, int, int) {                                   \
        float sum[4];                                                                              \
        unsigned words[2][2];                                                                      \
        __builtin_memcpy(sum, &c, sizeof sum);                                                     \
        __builtin_memcpy(words[0], &a, sizeof a);                                                  \
        __builtin_memcpy(words[1], &b, sizeof b);                                                  \
        matrix({TYPE, 16, STEPS}, sum, words[0], words[1], SITE);                                  \
        __builtin_memcpy(&c, sum, sizeof sum);                                                     \
        return c;                                                                                  \
    }
MFMA(__builtin_amdgcn_mfma_f32_16x16x16f16, f16, 16, emu_half_4)
MFMA(__builtin_amdgcn_mfma_f32_16x16x16bf16_1k, bf16, 16, emu_half_4)
MFMA(__builtin_amdgcn_mfma_f32_16x16x8bf16, bf16, 8, emu_half_2)
#define SHUFFLES(T)                                                                                \
    T __shfl_sync(unsigned long long mask, T value, int lane, int width) {                         \
        return of_bits<T>(                                                                         \
            shuffle(to_lane, mask, bits_of(value), static_cast<unsigned>(lane), width, SITE));     \
    }                                                                                              \
    T __shfl_xor_sync(unsigned long long mask, T value, int lanes, int width) {                    \
        return of_bits<T>(                                                                         \
            shuffle(to_xor, mask, bits_of(value), static_cast<unsigned>(lanes), width, SITE));     \
    }                                                                                              \
    T __shfl_down_sync(unsigned long long mask, T value, unsigned by, int width) {                 \
        return of_bits<T>(shuffle(to_down, mask, bits_of(value), by, width, SITE));                \
    }                                                                                              \
    T __shfl_up_sync(unsigned long long mask, T value, unsigned by, int width) {                   \
        return of_bits<T>(shuffle(to_up, mask, bits_of(value), by, width, SITE));                  \
    }                                                                                              \
    T __shfl(T value, int lane, int width) {                                                       \
        return of_bits<T>(                                                                         \
            shuffle(to_lane, ~0ull, bits_of(value), static_cast<unsigned>(lane), width, SITE));    \
    }                                                                                              \
    T __shfl_xor(T value, int lanes, int width) {                                                  \
        return of_bits<T>(                                                                         \
            shuffle(to_xor, ~0ull, bits_of(value), static_cast<unsigned>(lanes), width, SITE));    \
    }                                                                                              \
    T __shfl_down(T value, unsigned by, int width) {                                               \
        return of_bits<T>(shuffle(to_down, ~0ull, bits_of(value), by, width, SITE));               \
    }                                                                                              \
    T __shfl_up(T value, unsigned by, int width) {                                                 \
        return of_bits<T>(shuffle(to_up, ~0ull, bits_of(value), by, width, SITE));                 \
    }
SHUFFLES(int)
SHUFFLES(unsigned)
SHUFFLES(long)
SHUFFLES(unsigned long)
SHUFFLES(long long)
SHUFFLES(unsigned long long)
SHUFFLES(float)
SHUFFLES(double)

unsigned long long emu_ballot(unsigned long long mask, int value) {
    return vote(mask, value, SITE);
}
int __any_sync(unsigned long long mask, int value) { return vote(mask, value, SITE) != 0; }
int __all_sync(unsigned long long mask, int value) {
    return vote(mask, value, SITE) == vote_mask(mask);
}
int __any(int value) { return vote(~0ull, value, SITE) != 0; }
int __all(int value) { return vote(~0ull, value, SITE) == vote_mask(~0ull); }
// The lanes that run together: any set with this lane is valid, so the schedule may choose.
unsigned long long emu_active_mask() {
    const Thread *t = device.current;
    if (device.config.order != Order::fair && random_next() % 4 == 0) return 1ull << t->lane;
    return existing(t->warp) & ~t->warp->exited;
}

void emu_assume_global(const void *p) { must_be_global(p, "takes for global", SITE); }

void __cluster_barrier_arrive() { cluster_arrive(SITE); }
void __cluster_barrier_wait() { cluster_wait(SITE); }
void *__cluster_map_shared_rank(const void *p, unsigned rank) {
    const Block *b = device.current->block;
    ptrdiff_t at = static_cast<const char *>(p) - b->shared;
    if (at < 0 || static_cast<size_t>(at) > device.shared || rank >= b->cluster->blocks)
        report_fatal(EMU_ILLEGAL_ADDRESS, where_is(device.current, SITE) +
                                              ": out of bounds: __cluster_map_shared_rank of " +
                                              describe_address(reinterpret_cast<uintptr_t>(p)) +
                                              " for rank " + std::to_string(rank) + " of " +
                                              std::to_string(b->cluster->blocks));
    return (b - b->rank + rank)->shared + at;
}
unsigned __cluster_query_shared_rank(const void *p) {
    uintptr_t at = reinterpret_cast<uintptr_t>(p) - device.shared_space.low;
    return static_cast<unsigned>(at / device.shared_stride) % device.cluster;
}
unsigned __clusterRelativeBlockRank() { return device.current->block->rank; }
unsigned __clusterSizeInBlocks() { return device.cluster; }
emu_index emu_cluster_size() { return {device.cluster, 1, 1}; }
emu_index emu_cluster_index() {
    const Block *b = device.current->block;
    return {b->x / device.cluster, b->y, b->z};
}

char (*emu_shared_array())[] { return reinterpret_cast<char(*)[]>(device.current->block->shared); }
emu_index emu_thread_index() {
    const Thread *t = device.current;
    return {t->x, t->y, t->z};
}
emu_index emu_block_index() {
    const Block *b = device.current->block;
    return {b->x, b->y, b->z};
}
emu_index emu_block_size() { return {device.block[0], device.block[1], device.block[2]}; }
emu_index emu_grid_size() { return {device.grid[0], device.grid[1], device.grid[2]}; }

unsigned __float_as_uint(float x) { return static_cast<unsigned>(bits_of(x)); }
int __float_as_int(float x) { return static_cast<int>(bits_of(x)); }
float __uint_as_float(unsigned x) { return of_bits<float>(x); }
float __int_as_float(int x) { return of_bits<float>(static_cast<unsigned>(x)); }
long long __double_as_longlong(double x) { return static_cast<long long>(bits_of(x)); }
double __longlong_as_double(long long x) { return of_bits<double>(static_cast<uint64_t>(x)); }

// ---- atomics: they are relaxed. With fences around them they release and acquire, as flags do.
template <class T, class F> static T atomic(T *at, const void *site, F change) {
    Thread *t = device.current;
    sync_point();
    uintptr_t a = reinterpret_cast<uintptr_t>(at);
    if (device.config.count) count_atomic(t, a);
    access(a, sizeof(T), false, Mode::sync, site);
    access(a, sizeof(T), true, Mode::sync, site);
    T old = *at, next = change(old);
    sync_acquire(t, a);
    sync_release(t, a, true);
    *at = next;
    if (bits_of(next) != bits_of(old)) {
        device.idle = 0;
        t->spins = 0;
    } else if (++t->spins > 2) { // it waits for a lock or a count
        t->site = site;
        yield(true);
    }
    return old;
}
#define ATOMICS(T)                                                                                 \
    T atomicAdd(T *at, T value) {                                                                  \
        return atomic(at, SITE, [=](T old) { return static_cast<T>(old + value); });               \
    }                                                                                              \
    T atomicMax(T *at, T value) {                                                                  \
        return atomic(at, SITE, [=](T old) { return old > value ? old : value; });                 \
    }                                                                                              \
    T atomicMin(T *at, T value) {                                                                  \
        return atomic(at, SITE, [=](T old) { return old < value ? old : value; });                 \
    }                                                                                              \
    T atomicExch(T *at, T value) {                                                                 \
        return atomic(at, SITE, [=](T) { return value; });                                         \
    }                                                                                              \
    T atomicOr(T *at, T value) {                                                                   \
        return atomic(at, SITE, [=](T old) { return old | value; });                               \
    }                                                                                              \
    T atomicAnd(T *at, T value) {                                                                  \
        return atomic(at, SITE, [=](T old) { return old & value; });                               \
    }                                                                                              \
    T atomicCAS(T *at, T expected, T value) {                                                      \
        return atomic(at, SITE, [=](T old) { return old == expected ? value : old; });             \
    }
ATOMICS(int)
ATOMICS(unsigned)
ATOMICS(unsigned long long)
float atomicAdd(float *at, float value) {
    return atomic(at, SITE, [=](float old) { return old + value; });
}
float atomicExch(float *at, float value) {
    return atomic(at, SITE, [=](float) { return value; });
}
