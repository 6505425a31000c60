// count.cc: counts the critical path of a launch: how long each thread would take, by published
// latencies, from one synchronization to the next, and which thread the others wait for.
//
// A thread has a time of its own. Loads are on their way together, also those behind an elementary
// function, because compilers move them up: not over a store, nor before their place is known
// (emu_behind). The thread waits for them and for what is computed from them at a store, where
// threads meet, and when the same instruction has kFlight loads on the way. Elementary functions
// have no branches: compilers interleave those that do not wait for one another (emu_then), as far
// as a thread can begin instructions. Where threads meet, all go on at the time of the last; a flag
// is seen when it has travelled. What stands behind a thread's time is a list of segments, one for
// each meeting that it was the last to come to. The list of the thread that ends last is the path.
#include "internal.h"
#include "driver.inc"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>

namespace emu {

namespace {

// In ns, at the device's usual clock.
struct Latency {
    double cycle;      // an instruction of a warp; a scheduler begins one in each
    double schedulers; // of a multiprocessor
    double fma;        // until a dependent instruction may begin
    double shared;     // a load from the block's memory
    double remote;     // from another block's memory in the cluster
    double device;     // from the cache that all blocks share
    double travels;    // a store, until others can load it from there
    double fence;      // with stores on the way
    double fence_idle; // without
    double shuffle;
    double matrix;         // an instruction of the matrix units, behind another
    double block, cluster; // a barrier, after the last thread came
};
// H100 SXM at 1.755 GHz. Loads, shuffles, multiply-adds: Luo et al., "Dissecting the NVIDIA Hopper
// Architecture through Microbenchmarking" (2024): 29 cycles shared, 180 distributed shared, 262 to
// 273 L2. A fence waits for the acknowledgement of stores, about an L2 round trip and a half.
const Latency cuda = {0.57, 4, 2.3, 16.5, 103, 150, 150, 230, 30, 13, 9.5, 12, 110};
// MI250X at 1.7 GHz: LDS 64 cycles, L2 about 290 ns loaded by one wave (Chips and Cheese, 2022 to
// 2023); four SIMDs issue an instruction of a wave of 64 in four cycles.
const Latency hip = {2.4, 4, 4.7, 38, 0, 290, 200, 350, 50, 30, 19, 24, 0};

enum Kind : uint8_t {
    k_device,
    k_near,
    k_remote,
    k_chain,
    k_issue,
    k_shuffle,
    k_lanes,
    k_block,
    k_cluster,
    k_grid,
    k_visit, // times that the function was begun
    kinds
};
const char *const kind_name[] = {"device memory",        "shared memory",  "remote shared memory",
                                 "elementary functions", "instructions",   "shuffles",
                                 "other lanes",          "block barriers", "cluster barriers",
                                 "flags and fences"};

struct Function {
    std::string name;
    bool helper;             // of the dialect: what it takes is its caller's
    bool group;              // the scheduler has estimated it
    bool stores;             // any of its calls did
    const struct Math *math; // an elementary function
    // Of a group: when the last thread of each block began a call, and ended it; calls that each
    // thread has begun.
    std::vector<std::pair<double, double>> visit;
    std::vector<uint32_t> times;
};

// Of divisions and elementary functions: operations that wait for one another, in multiply-adds (a
// reciprocal takes six, a comparison and its choice three), and instructions, as in the machine
// code for sm_90.
struct Math {
    double depth, instructions;
};
const std::map<std::string, Math> elementary = {{"bk_expf", {17, 17}},   {"bk_sigmoidf", {27, 25}},
                                                {"bk_tanhf", {24, 24}},  {"bk_dividef", {12, 10}},
                                                {"bk_erff", {35, 35}},   {"bk_logf", {21, 21}},
                                                {"bk_log1pf", {29, 29}}, {"bk_sinf", {20, 26}},
                                                {"bk_cosf", {20, 26}},   {"bk_powf", {40, 40}}};

std::deque<Function> functions;
std::unordered_map<const void *, uint32_t> by_entry;

struct Alone { // what a few threads of a block do while the others wait
    uint32_t loads, iterations, threads;
};
std::map<uint32_t, Alone> alone;
uint64_t loads[3], stores, meetings;

struct Estimate { // of a function's runs, by the scheduler
    double sum;
    unsigned n;
};
std::map<std::string, Estimate> &estimates() {
    static std::map<std::string, Estimate> all; // the text's constructor comes first
    return all;
}

struct Flag {
    double posted, at; // when others can see it
    const Segment *path;
};
std::unordered_map<uintptr_t, Flag> flags;

std::deque<Segment> segments;      // of the launch
const uintptr_t kReach = 64 << 20; // what lies further from a pointer has another one
double last;
const Segment *last_path;

const Latency &latency() { return device.width == 64 ? hip : cuda; }

const char *base_name(const std::string &name) {
    const char *s = name.c_str();
    if (strncmp(s, "_ZL", 3) == 0) { // static: length and name
        s += 3;
        while (*s >= '0' && *s <= '9') s++;
    } else if (strncmp(s, "_Z", 2) == 0) {
        s += 2;
        while (*s >= '0' && *s <= '9') s++;
    }
    return s;
}

// The name of a function of the text, without its parameters' types.
std::string plain_name(const std::string &mangled) {
    const char *s = mangled.c_str();
    if (strncmp(s, "_Z", 2) != 0) return mangled;
    s += s[2] == 'L' ? 3 : 2;
    const size_t n = strtoul(s, nullptr, 10);
    const char *name = base_name(mangled);
    return n && n <= strlen(name) ? std::string(name, n) : name;
}

// Of a group's function: what its threads do for its sums of products.
bool is_part(const std::string &name) {
    const size_t at = name.find('_');
    if (name[0] != 'f' || at == std::string::npos || estimates().count(name)) return false;
    return name.compare(at, std::string::npos, "_dot") == 0 ||
           name.compare(at, std::string::npos, "_put") == 0;
}

uint32_t function_of(const void *entry) {
    auto found = by_entry.find(entry);
    if (found != by_entry.end()) return found->second;
    Function f;
    f.name = plain_name(symbol_of(entry));
    const bool own = f.name == "bk_barrier" || f.name == "bk_gather" || f.name == "bk_release" ||
                     f.name == "bk_cluster_barrier" || f.name == "bk_keep";
    f.helper = !own && (f.name.compare(0, 3, "bk_") == 0 || f.name.compare(0, 2, "__") == 0 ||
                        is_part(f.name));
    f.group = estimates().count(f.name) > 0;
    f.stores = false;
    auto math = elementary.find(f.name);
    f.math = math != elementary.end() ? &math->second : nullptr;
    functions.push_back(f);
    return by_entry[entry] = static_cast<uint32_t>(functions.size() - 1);
}

void note(Thread *t, uint32_t function, Kind kind, double ns) {
    Count &c = t->count;
    if (ns <= 0) return;
    for (unsigned i = 0; i < c.used; i++)
        if (c.entry[i].function == function && c.entry[i].kind == kind) {
            c.entry[i].ns += static_cast<float>(ns);
            return;
        }
    if (c.used == kEntries) c.used--; // the last one is lost to the rest
    c.entry[c.used++] = {function, kind, static_cast<float>(ns)};
}

void spend(Thread *t, Kind kind, double ns) {
    if (ns <= 0) return;
    t->count.now += ns;
    note(t, t->count.function, kind, ns);
}

void issue(Thread *t, unsigned n) {
    t->count.instructions += n;
    spend(t, k_issue, n * latency().cycle);
}

// Waits for the loads that are on the way, and for what is computed.
void arrive(Thread *t) {
    Count &c = t->count;
    const double until = std::max(c.ready, c.done), wait = until - c.now;
    if (wait > 0) {
        // For what its caller has begun, and waits for after that.
        const double callers = std::min(until - std::max(c.now, c.own), wait),
                     chain = std::min(c.chain, wait - callers), rest = wait - callers - chain;
        note(t, c.caller, c.chain > 0 ? k_chain : static_cast<Kind>(c.slowest), callers);
        note(t, c.function, k_chain, chain);
        note(t, c.function, static_cast<Kind>(c.slowest), rest);
        c.callers += callers;
        c.waits += rest > 0 && (c.slowest == k_device || c.slowest == k_remote);
        c.now = until;
    }
    c.ready = c.own = c.done = c.chain = c.base = 0;
    for (unsigned i = 0; i < kDepth; i++) c.until[i] = c.begun[i] = c.there[i] = 0;
    c.slowest = k_near;
    c.waited++;
}

// An operation of so many ns, of what is loaded and computed.
void compute(Thread *t, double ns) {
    Count &c = t->count;
    c.own = c.done = std::max(std::max(c.done, c.ready), c.now) + ns;
    c.chain += ns;
}

// An elementary function of what is loaded and of functions that are less deep.
void compute_function(Thread *t, const Math &math) {
    Count &c = t->count;
    const double there = std::max(std::max(c.ready, c.now), c.base),
                 before = std::max(c.done, there),
                 from = c.depth ? std::max(there, c.until[c.depth - 1]) : there;
    c.begun[c.depth] += math.instructions * latency().cycle;
    const double end = from + std::max(math.depth * latency().fma, c.begun[c.depth]);
    for (unsigned i = c.depth; i < kDepth; i++) c.until[i] = std::max(c.until[i], end);
    c.own = c.done = std::max(before, end);
    c.chain += c.done - before;
    c.instructions += static_cast<uint32_t>(math.instructions);
    c.depth = 0;
}

bool in_function(const Thread *t) {
    for (unsigned i = std::min(t->depth, kCalls); i-- > 0;)
        if (functions[t->calls[i].function].math)
            return true;
        else if (!functions[t->calls[i].function].helper)
            return false;
    return false;
}

// The instruction at pc among the recent ones, in place of one that nothing is known of if there
// is.
Recent &recent_of(Count &c, const void *pc) {
    const uintptr_t at = (reinterpret_cast<uintptr_t>(pc) * 0x9E3779B97F4A7C15u) >> 32;
    Recent *r = &c.recent[at % kRecent];
    for (unsigned i = 0; i < kWays; i++) {
        Recent *x = &c.recent[(at + i) % kRecent];
        if (x->pc == pc) {
            r = x;
            break;
        }
        if (r->pc && r->met == c.met && (!x->pc || x->met != c.met)) r = x;
    }
    if (r->pc != pc || r->met != c.met) *r = {pc, 0, 0, 0, c.met, c.waited};
    if (r->waited != c.waited) {
        r->flying = 0;
        r->waited = c.waited;
    }
    return *r;
}

// When a load arrives that takes so many ns and waits for others, `behind` one behind the other.
double arrives(Count &c, unsigned behind, double ns) {
    const double end = std::max(c.now, behind ? c.there[behind - 1] : 0) + ns;
    for (unsigned i = behind; i < kDepth; i++) c.there[i] = std::max(c.there[i], end);
    return end;
}

// Waits until the pointer is there that `at` comes from, as far as that can be told.
void follow(Thread *t, uintptr_t at) {
    Count &c = t->count;
    for (const Pointer &p : c.pointer)
        if (p.ready > c.now && at - p.to < kReach) {
            arrive(t);
            return;
        }
}

// Ends the thread's segment; returns it.
const Segment *end_segment(Thread *t, double busy) {
    Count &c = t->count;
    segments.push_back(Segment());
    Segment &s = segments.back();
    s.before = c.path;
    s.entry.assign(c.entry, c.entry + c.used);
    s.busy = static_cast<float>(busy);
    c.path = &s;
    c.used = 0;
    return &s;
}

void go_on(Thread *t, double at, const Segment *path) {
    Count &c = t->count;
    c.now = c.began = at;
    c.path = path;
    c.used = 0;
    c.instructions = c.waits = 0;
    c.met++;
    c.waited++;
}

// What few threads do for long, before they meet the others.
void look_alone(Thread *const *threads, size_t n) {
    uint32_t most = 0, waits = 0;
    const Thread *who = nullptr;
    for (size_t i = 0; i < n; i++) {
        const Count &c = threads[i]->count;
        if (c.most > most || (!who && c.waits)) who = threads[i];
        most = std::max(most, c.most);
        waits = std::max(waits, c.waits);
    }
    if (!who || (most <= 16 && waits <= 8)) return;
    uint32_t with = 0;
    for (size_t i = 0; i < n; i++)
        with += threads[i]->count.most * 2 >= most && threads[i]->count.waits * 2 >= waits;
    if (with * 8 > n) return;
    Alone &a = alone[who->count.busiest];
    if (most > a.iterations || waits > a.loads) a.threads = with;
    a.loads = std::max(a.loads, waits);
    a.iterations = std::max(a.iterations, most);
}

void meet_all(Thread *const *threads, size_t n, double bound, double cost, Kind kind) {
    Thread *slowest = threads[0];
    double sum = 0, began = threads[0]->count.began;
    for (size_t i = 0; i < n; i++) {
        Thread *t = threads[i];
        arrive(t);
        if (t->count.now > slowest->count.now) slowest = t;
        sum += t->count.now - t->count.began;
        began = std::min(began, t->count.began);
    }
    look_alone(threads, n);
    if (began + bound > slowest->count.now)
        spend(slowest, k_issue, began + bound - slowest->count.now);
    const double span = slowest->count.now - slowest->count.began;
    spend(slowest, kind, cost);
    const double at = slowest->count.now;
    const Segment *path =
        end_segment(slowest, span > 0 ? std::min(1.0, sum / (static_cast<double>(n) * span)) : 1);
    for (size_t i = 0; i < n; i++) {
        go_on(threads[i], at, path);
        threads[i]->count.callers = slowest->count.callers;
        threads[i]->count.most = 0;
    }
    meetings++;
}

} // namespace

extern "C" void emu_estimate(const char *name, double ns) {
    Estimate &e = estimates()[name];
    e.sum += ns;
    e.n++;
}

void count_begin() {
    segments.clear();
    flags.clear();
    alone.clear();
    by_entry.clear();
    functions.clear();
    functions.push_back({"the kernel", false, false, false, nullptr, {}, {}});
    last = 0;
    last_path = nullptr;
    stores = meetings = 0;
    memset(loads, 0, sizeof loads);
}

namespace {
// The thread's call of the group, number `times` of its own.
std::pair<double, double> &visit_of(Function &f, const Thread *t, uint32_t times) {
    const size_t i = static_cast<size_t>(times) * device.grid[0] + t->block->index;
    if (i >= f.visit.size()) f.visit.resize(i + device.grid[0]);
    return f.visit[i];
}

void begin_visit(Function &f, const Thread *t) {
    const size_t i = static_cast<size_t>(t->block->index) * device.threads_in_block + t->index;
    if (i >= f.times.size())
        f.times.resize(static_cast<size_t>(device.grid[0]) * device.threads_in_block);
    double &began = visit_of(f, t, f.times[i]++).first;
    began = std::max(began, t->count.now);
}

void end_visit(Function &f, const Thread *t) {
    const Count &c = t->count;
    const size_t i = static_cast<size_t>(t->block->index) * device.threads_in_block + t->index;
    double &ended = visit_of(f, t, f.times[i] - 1).second;
    ended = std::max(ended, std::max(c.own, c.now) - c.callers);
}

double longest_visit(const Function &f) {
    double ns = 0;
    for (const auto &v : f.visit) ns = std::max(ns, v.second - v.first);
    return ns;
}
} // namespace

void count_entry(Thread *t, const void *entry) {
    const uint32_t f = function_of(entry);
    Function &of = functions[f];
    const uint32_t caller = t->depth ? t->calls[std::min(t->depth, kCalls) - 1].function : 0;
    if (t->depth < kCalls) t->calls[t->depth].function = f;
    if (!of.helper) {
        t->count.caller = t->count.function;
        t->count.own = t->count.callers = 0;
        t->count.function = f;
        if (of.group) begin_visit(of, t);
        note(t, f, k_visit, 1);
    } else if (of.math) {
        compute_function(t, *of.math);
    } else if (of.name == "__fmaf_rn") {
        const bool chain = functions[caller].helper && functions[caller].name != "bk_dot4";
        if (chain && in_function(t)) return;
        if (chain)
            compute(t, latency().fma);
        else
            issue(t, 1);
        t->count.instructions += chain;
    }
}

void count_exit(Thread *t) {
    if (t->depth < kCalls) {
        Function &f = functions[t->calls[t->depth].function];
        if (f.group) end_visit(f, t);
    }
    for (unsigned i = std::min(t->depth, kCalls); i-- > 0;)
        if (!functions[t->calls[i].function].helper) {
            t->count.function = t->calls[i].function;
            return;
        }
    t->count.function = 0;
}

void count_access(Thread *t, uintptr_t at, unsigned bytes, bool write, const void *pc) {
    Count &c = t->count;
    const uintptr_t stack = reinterpret_cast<uintptr_t>(t->stack);
    if (at - stack < device.stack_stride) return; // a register
    follow(t, at);
    if (write) {
        arrive(t);
        issue(t, 1);
        stores++;
        functions[c.function].stores = true;
        if (at >= device.heap.low && at < device.heap.high) c.stored = c.now + latency().fence;
        return;
    }
    const uintptr_t own = reinterpret_cast<uintptr_t>(t->block->shared);
    const Latency &l = latency();
    Kind kind = k_device;
    double ns = l.device;
    if (at >= device.shared_space.low && at < device.shared_space.high) {
        kind = at - own < device.shared_stride ? k_near : k_remote;
        ns = kind == k_near ? l.shared : l.remote;
    } else if (at < device.heap.low || at >= device.heap.high) {
        return; // the kernel's constants
    }
    Recent &r = recent_of(c, pc);
    const unsigned behind = std::exchange(c.behind, 0u);
    if (r.times && r.at == at) return; // it is in a register still
    if (r.flying == kFlight) {
        arrive(t);
        r.flying = 0;
        r.waited = c.waited;
    }
    r.at = at;
    r.times++;
    r.flying++;
    if (r.times > c.most) {
        c.most = r.times;
        c.busiest = c.function;
    }
    loads[kind]++;
    issue(t, bytes > 8 ? 2 : 1);
    const double there = arrives(c, behind, ns);
    c.own = std::max(c.own, there);
    if (there > c.ready) {
        c.ready = there;
        c.slowest = kind;
    }
    uintptr_t value = 0;
    if (bytes == sizeof value) memcpy(&value, reinterpret_cast<const void *>(at), sizeof value);
    if ((value >= device.heap.low && value < device.heap.high) ||
        (value >= device.shared_space.low && value < device.shared_space.high))
        c.pointer[c.pointers++ % kPointers] = {value, there};
}

double count_copy(Thread *t, uintptr_t from) {
    const Latency &l = latency();
    const bool on_chip = from >= device.shared_space.low && from < device.shared_space.high;
    issue(t, 2);
    if (!from) return t->count.now;
    loads[on_chip ? k_near : k_device]++;
    const unsigned behind = std::exchange(t->count.behind, 0u);
    return arrives(t->count, behind, on_chip ? l.remote : l.device);
}
void count_then(Thread *t, int depth) {
    Count &c = t->count;
    for (unsigned i = 0; i < kDepth && depth < 0; i++) c.until[i] = c.done, c.begun[i] = 0;
    c.base = depth < 0 ? c.done : c.base;
    c.depth = depth < 0 ? 0 : std::min(static_cast<unsigned>(depth), kDepth - 1);
}

void count_behind(Thread *t, int loads) {
    t->count.behind = std::min(static_cast<unsigned>(loads), kDepth - 1);
}

void count_copied(Thread *t, double there) { spend(t, k_device, there - t->count.now); }

void count_flag(Thread *t, uintptr_t at, bool write) {
    const Latency &l = latency();
    const bool near = at - reinterpret_cast<uintptr_t>(t->block->shared) < device.shared_stride;
    if (near) {
        arrive(t);
        spend(t, k_near, write ? l.cycle : l.shared);
        return;
    }
    const bool on_chip = at >= device.shared_space.low && at < device.shared_space.high;
    if (write) {
        arrive(t);
        spend(t, k_grid, l.cycle);
        const double now = t->count.now;
        flags[at] = {now, now + (on_chip ? l.remote : l.travels), end_segment(t, 1)};
        return;
    }
    auto found = flags.find(at);
    // A thread that polls asks again and again: what it waits for is the flag, and one way back.
    if (t->count.polled == at && (found == flags.end() || found->second.at <= t->count.now)) return;
    t->count.polled = at;
    const double way = on_chip ? l.remote : l.device;
    if (found == flags.end() || found->second.at <= t->count.now) {
        // Loads of several flags are on their way together.
        t->count.ready = std::max(t->count.ready, t->count.now + way);
        t->count.slowest = k_grid;
        return;
    }
    const Flag &flag = found->second;
    go_on(t, flag.posted, flag.path);
    spend(t, k_grid, flag.at - flag.posted + way);
}

void count_fence(Thread *t, bool device_wide) {
    const Latency &l = latency();
    arrive(t);
    if (!device_wide) return;
    spend(t, k_grid, std::max(l.fence_idle, t->count.stored - t->count.now));
}

void count_atomic(Thread *t, uintptr_t at) {
    const Latency &l = latency();
    const bool near = at - reinterpret_cast<uintptr_t>(t->block->shared) < device.shared_stride;
    arrive(t);
    spend(t, near ? k_near : k_grid, near ? l.shared : l.device);
}

void count_block(Thread *const *threads, size_t n) {
    // No more instructions than the schedulers can begin.
    double sum = 0;
    for (size_t i = 0; i < n; i += device.width) {
        uint32_t most = 0;
        for (size_t j = i; j < n && j < i + device.width; j++)
            most = std::max(most, threads[j]->count.instructions);
        sum += most;
    }
    const Latency &l = latency();
    double stored = 0;
    for (size_t i = 0; i < n; i++) stored = std::max(stored, threads[i]->count.stored);
    meet_all(threads, n, sum / l.schedulers * l.cycle, l.block, k_block);
    for (size_t i = 0; i < n; i++) threads[i]->count.stored = stored;
}

void count_cluster(Thread *const *threads, size_t n) {
    meet_all(threads, n, 0, latency().cluster, k_cluster);
}

void count_warp(Thread *const *lanes, size_t n, bool matrix) {
    double at = 0;
    for (size_t i = 0; i < n; i++) {
        arrive(lanes[i]);
        at = std::max(at, lanes[i]->count.now);
    }
    const Latency &l = latency();
    for (size_t i = 0; i < n; i++) {
        Thread *t = lanes[i];
        spend(t, k_lanes, at - t->count.now);
        spend(t, k_shuffle, matrix ? l.matrix : l.shuffle);
        t->count.instructions += matrix ? 2 : 1;
    }
}

void count_end(Thread *t) {
    arrive(t);
    if (t->count.now <= last) return;
    last = t->count.now;
    last_path = end_segment(t, 1);
}

namespace {
struct Sum {
    double ns[kinds] = {}, all = 0, busy = 0;
};

void put_kinds(FILE *f, const double *ns) {
    const char *between = "";
    for (int k = 0; k < k_visit; k++) {
        if (ns[k] <= 0) continue;
        fprintf(f, "%s\"%s\": %.1f", between, kind_name[k], ns[k]);
        between = ", ";
    }
}
} // namespace

// A line of JSON.
void count_report(const char *path) {
    std::vector<Sum> of(functions.size());
    Sum total;
    for (const Segment *s = last_path; s; s = s->before)
        for (const Entry &e : s->entry) {
            of[e.function].ns[e.kind] += e.ns;
            if (e.kind == k_visit) continue;
            total.ns[e.kind] += e.ns;
            of[e.function].all += e.ns;
            of[e.function].busy += e.ns * s->busy;
        }
    FILE *f = fopen(path, "a");
    if (!f) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return;
    }
    fprintf(f,
            "{\"ns\": %.1f, \"blocks\": %u, \"threads\": %u, \"device_loads\": %llu, "
            "\"shared_loads\": %llu, \"remote_loads\": %llu, \"stores\": %llu, \"barriers\": %llu, "
            "\"by\": {",
            last, device.grid[0], device.threads_in_block, (unsigned long long)loads[k_device],
            (unsigned long long)loads[k_near], (unsigned long long)loads[k_remote],
            (unsigned long long)stores, (unsigned long long)meetings);
    put_kinds(f, total.ns);
    fprintf(f, "}, \"functions\": [");
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < of.size(); i++)
        if (of[i].all > 0) order.push_back(i);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return of[a].all > of[b].all; });
    for (size_t i = 0; i < order.size(); i++) {
        const Sum &s = of[order[i]];
        const std::string &name = functions[order[i]].name;
        fprintf(f, "%s{\"name\": \"%s\", \"times\": %.0f, \"ns\": %.1f, \"busy\": %.3f, ",
                i ? ", " : "", name.c_str(), s.ns[k_visit], s.all, s.busy / s.all);
        auto e = estimates().find(name);
        if (e != estimates().end() && functions[order[i]].stores) // it had something to do
            fprintf(f, "\"estimate\": %.1f, \"longest\": %.1f, ", e->second.sum / e->second.n,
                    longest_visit(functions[order[i]]));
        fprintf(f, "\"by\": {");
        put_kinds(f, s.ns);
        fprintf(f, "}}");
    }
    fprintf(f, "], \"alone\": [");
    const char *between = "";
    for (const auto &a : alone) {
        fprintf(f, "%s{\"name\": \"%s\", \"threads\": %u, \"loads\": %u, \"iterations\": %u}",
                between, functions[a.first].name.c_str(), a.second.threads, a.second.loads,
                a.second.iterations);
        between = ", ";
    }
    fprintf(f, "]}\n");
    fclose(f);
    segments.clear();
    flags.clear();
}

} // namespace emu
