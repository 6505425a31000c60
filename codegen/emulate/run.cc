// run.cc: runs a launch: fibers, the order in which they run, waves of blocks, deadlock.
#include "internal.h"
#include "driver.inc"

#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace emu {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

Device device;

namespace {

// Why a fiber returns control to the scheduler.
enum class Why : int { yield, spin, wait, exit, stop };

Launch launch_now;

// A ring of threads: those that are ready, and those that an adversarial schedule holds back.
struct Ring {
    std::vector<Thread *> at;
    size_t head = 0, count = 0;
    void clear(size_t room) {
        at.assign(room, nullptr);
        head = count = 0;
    }
    void push_back(Thread *t) { at[(head + count++) % at.size()] = t; }
    void push_front(Thread *t) {
        head = (head + at.size() - 1) % at.size();
        at[head] = t;
        count++;
    }
    Thread *pop_front() {
        Thread *t = at[head];
        head = (head + 1) % at.size();
        count--;
        return t;
    }
    Thread *pop_back() { return at[(head + --count) % at.size()]; }
    void swap_front(size_t i) { std::swap(at[head], at[(head + i) % at.size()]); }
};
Ring ready, held;

enum Plan { plan_reverse, plan_block, plan_warp, plan_thread, plans };
Plan plan;
uint32_t victim;
uint32_t next_block, blocks_total;
uint64_t idle_held; // device.idle when a held thread last ran

void give(Why why) {
    transfer_t r = jump_fcontext(device.main, reinterpret_cast<void *>(why));
    device.main = r.fctx;
}

void fiber(transfer_t from) {
    device.main = from.fctx;
    launch_now.kernel(launch_now.argument);
    thread_exit();
    give(Why::exit);
    abort();
}

void preempt_reset() {
    device.preempt =
        device.config.order == Order::adversarial && (device.config.seed / plans) % 2 == 0
            ? 1 + static_cast<uint32_t>(random_next() % 4000)
            : 0;
}

void thread_start(Thread *t) {
    t->stack = device.stacks + device.stack_stride * t->id;
    size_t size = device.stack_stride;
    t->context = make_fcontext(t->stack + size, size, fiber);
    t->state = State::ready;
    t->arrived = false;
    t->depth = 0;
    t->spins = 0;
    for (Seen &s : t->seen) s = {0, 0};
    t->began = t->time = device.now;
    t->clock = clock_first();
    for (int i = 0; i < 2; i++) t->released[i] = t->pending[i] = nullptr;
    t->joined = nullptr;
    t->site = nullptr;
    const Block *b = t->block;
    t->delayed = device.config.order == Order::adversarial &&
                 ((plan == plan_block && b->index == victim % blocks_total) ||
                  (plan == plan_warp && t->warp->id == victim % device.warps) ||
                  (plan == plan_thread && t->id == victim % device.threads));
}

void thread_drop(Thread *t) {
    clock_drop(t->clock);
    clock_drop(t->joined);
    for (int i = 0; i < 2; i++) {
        clock_drop(t->released[i]);
        clock_drop(t->pending[i]);
        t->released[i] = t->pending[i] = nullptr;
    }
    t->clock = t->joined = nullptr;
    t->copies.clear();
}

// Starts the next blocks of the grid in the slots of one cluster.
void cluster_start(unsigned first) {
    Cluster *c = &device.clusters[first / device.cluster];
    c->blocks = c->alive = device.cluster;
    c->arrived = 0;
    c->clock = nullptr;
    c->alive = device.cluster * device.threads_in_block;
    device.now++;
    for (unsigned r = 0; r < device.cluster; r++) {
        Block *b = &device.slot[first + r];
        b->index = next_block++;
        b->x = b->index % device.grid[0];
        b->y = b->index / device.grid[0] % device.grid[1];
        b->z = b->index / device.grid[0] / device.grid[1];
        b->resident = true;
        b->alive = device.threads_in_block;
        b->cluster = c;
        b->rank = r;
        b->waiting = 0;
        memory_clear(reinterpret_cast<uintptr_t>(b->shared), device.shared_stride);
        for (unsigned w = 0; w < device.warps_in_block; w++) {
            b->warp[w].exited = 0;
            b->warp[w].meeting.clear();
        }
        for (unsigned i = 0; i < device.threads_in_block; i++) {
            thread_start(&b->thread[i]);
            thread_ready(&b->thread[i]);
        }
    }
}

void block_clear(Block *b) {
    for (unsigned i = 0; i < device.threads_in_block; i++) thread_drop(&b->thread[i]);
    b->resident = false;
}

void block_end(Block *b) {
    block_clear(b);
    Cluster *c = b->cluster;
    if (c->alive) return;
    unsigned first = b->slot - b->slot % device.cluster;
    if (next_block < blocks_total) cluster_start(first);
}

Thread *pick() {
    uint64_t patience = 2 * ready.count + 20;
    if (device.idle < idle_held) idle_held = 0;
    if (held.count && (!ready.count || device.idle - idle_held > patience)) {
        idle_held = device.idle;
        return held.pop_front();
    }
    if (!ready.count) return nullptr;
    switch (device.config.order) {
    case Order::fair: break;
    case Order::random: ready.swap_front(random_next() % ready.count); break;
    case Order::adversarial:
        if (plan == plan_reverse) return ready.pop_back();
        if (random_next() % 4 == 0) ready.swap_front(random_next() % ready.count);
        break;
    }
    return ready.pop_front();
}

bool deadlocked() { return device.idle > 64 * (ready.count + held.count) + 1000; }

void file(int error, const std::string &text) {
    for (const Report &r : device.reports)
        if (r.text == text) return;
    device.reports.push_back({error, text});
    fprintf(stderr, "%s\n", text.c_str());
}

void deadlock() {
    // List the first waiting thread of each kind and place.
    std::string text;
    std::vector<std::pair<uint64_t, unsigned>> seen;
    bool divergent = false;
    const Block *where = nullptr;
    unsigned shown = 0;
    for (Thread &t : device.thread) {
        if (!t.block->resident || t.state == State::exited) continue;
        bool spins = t.state == State::ready;
        uint64_t key = spins ? reinterpret_cast<uint64_t>(t.site) : t.site_key;
        bool found = false;
        for (auto &s : seen)
            if (s.first == key) s.second++, found = true;
        if (found) continue;
        seen.push_back({key, 1});
        if (!spins && where == t.block) divergent = true;
        if (!spins) where = t.block;
        if (shown++ < 4) {
            static const char *const name[] = {"polls", "waits at the block barrier",
                                               "waits at the cluster barrier",
                                               "waits for lanes of its warp", ""};
            text += (shown > 1 ? "; " : "") + thread_name(&t) + " " +
                    name[static_cast<int>(t.state)] + " at " + line_of(t.site);
        }
    }
    std::string first;
    for (Thread &t : device.thread)
        if (t.block->resident && t.state != State::exited) {
            first = where_is(&t, t.site);
            break;
        }
    if (next_block < blocks_total)
        text += "; " + std::to_string(blocks_total - next_block) + " blocks have not begun";
    bool spinning = ready.count + held.count != 0;
    file(divergent && !spinning ? EMU_LAUNCH_FAILED : EMU_LAUNCH_TIMEOUT,
         first + ": " + (divergent && !spinning ? "divergent barrier: " : "deadlock: ") + text);
    device.stop = true;
}

bool stacks_reserve() {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t stride = (device.config.stack + page - 1) / page * page + page;
    size_t bytes = stride * device.threads;
    if (device.stacks && device.stack_stride == stride && device.stacks_bytes >= bytes) return true;
    if (device.stacks) munmap(device.stacks, device.stacks_bytes);
    device.stacks = nullptr;
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    device.stacks = static_cast<char *>(p);
    device.stacks_bytes = bytes;
    device.stack_stride = stride;
    // Each guard is a mapping, of which a process may have 65,530; functions check their stack,
    // too.
    for (unsigned i = 0; i < device.threads && device.threads < 16000; i++)
        if (mprotect(device.stacks + stride * i, page, PROT_NONE)) return false;
    return true;
}

bool set_up(const Launch &l) {
    launch_now = l;
    device.kernel = l.kernel;
    for (int i = 0; i < 3; i++) device.grid[i] = l.grid[i], device.block[i] = l.block[i];
    blocks_total = l.grid[0] * l.grid[1] * l.grid[2];
    next_block = 0;
    device.cluster = l.cluster;
    device.threads_in_block = l.block[0] * l.block[1] * l.block[2];
    device.warps_in_block = (device.threads_in_block + device.width - 1) / device.width;
    device.slots = l.resident;
    device.threads = device.slots * device.threads_in_block;
    device.warps = device.slots * device.warps_in_block;
    device.shared = l.shared;
    if (!stacks_reserve() || !shared_reserve()) return false;
    device.thread.assign(device.threads, Thread());
    device.warp.assign(device.warps, Warp());
    device.slot.assign(device.slots, Block());
    device.clusters.assign(device.slots / device.cluster, Cluster());
    for (unsigned s = 0; s < device.slots; s++) {
        Block *b = &device.slot[s];
        b->slot = s;
        b->resident = false;
        b->shared = reinterpret_cast<char *>(device.shared_space.low) + s * device.shared_stride;
        b->thread = &device.thread[s * device.threads_in_block];
        b->warp = &device.warp[s * device.warps_in_block];
        for (unsigned i = 0; i < device.threads_in_block; i++) {
            Thread *t = &b->thread[i];
            t->id = s * device.threads_in_block + i;
            t->index = i;
            t->x = i % l.block[0];
            t->y = i / l.block[0] % l.block[1];
            t->z = i / l.block[0] / l.block[1];
            t->lane = i % device.width;
            t->block = b;
            t->warp = &b->warp[i / device.width];
            t->state = State::exited;
            if (t->lane == 0) {
                t->warp->block = b;
                t->warp->id = s * device.warps_in_block + i / device.width;
                t->warp->thread = t;
            }
            t->warp->lanes = t->lane + 1;
        }
    }
    ready.clear(device.threads + 1);
    held.clear(device.threads + 1);
    device.random = device.config.seed * 0x9E3779B97F4A7C15u + 0x1234567;
    plan = static_cast<Plan>(device.config.seed % plans);
    victim = static_cast<uint32_t>(random_next() >> 32);
    if (device.now > UINT32_MAX / 2) {
        memory_forget();
        device.now = 0;
    }
    device.base = device.now;
    device.now++;
    device.idle = idle_held = 0;
    device.stop = false;
    device.reports.clear();
    preempt_reset();
    return true;
}

} // namespace

uint64_t random_next() { // xorshift*
    uint64_t x = device.random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    device.random = x;
    return x * 0x2545F4914F6CDD1Du;
}

void thread_ready(Thread *t) {
    t->state = State::ready;
    if (t->delayed)
        held.push_back(t);
    else
        ready.push_back(t);
}

void wait(State state) {
    device.current->state = state;
    give(Why::wait);
}

void yield(bool spinning) { give(spinning ? Why::spin : Why::yield); }

void preempt() {
    preempt_reset();
    device.idle = 0;
    give(Why::yield);
}

void sync_point() {
    if (device.config.order == Order::fair) return;
    if (random_next() % 4 == 0) give(Why::yield);
}

void report(int error, const std::string &text) {
    file(error, text);
    if (device.reports.size() < device.config.reports) return;
    device.stop = true;
    give(Why::stop);
}

void report_fatal(int error, const std::string &text) {
    file(error, text);
    device.stop = true;
    give(Why::stop);
    abort();
}

bool run(const Launch &launch) {
    if (!set_up(launch)) return false;
    memory_begin();
    if (device.config.count) count_begin();
    for (unsigned s = 0; s + device.cluster <= device.slots && next_block < blocks_total;
         s += device.cluster)
        cluster_start(s);
    while (!device.stop) {
        Thread *t = deadlocked() ? nullptr : pick();
        if (!t) {
            bool live = false;
            for (const Block &b : device.slot) live |= b.resident;
            if (live) deadlock();
            break;
        }
        device.current = t;
        transfer_t r = jump_fcontext(t->context, nullptr);
        device.current = nullptr;
        t->context = r.fctx;
        switch (static_cast<Why>(reinterpret_cast<intptr_t>(r.data))) {
        case Why::yield: thread_ready(t); break;
        case Why::spin:
            device.idle++;
            if (!t->delayed && plan == plan_reverse && device.config.order == Order::adversarial)
                ready.push_front(t);
            else
                thread_ready(t);
            break;
        case Why::exit:
            device.idle = 0;
            if (t->block->alive == 0) block_end(t->block);
            break;
        case Why::wait: device.idle = 0; break;
        case Why::stop: break;
        }
    }
    for (Block &b : device.slot)
        if (b.resident) block_clear(&b);
    memory_end();
    if (device.config.count && device.reports.empty()) count_report(device.config.count);
    return true;
}

} // namespace emu
