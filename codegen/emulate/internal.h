// internal.h: the emulator's own data: fibers, blocks, clocks, shadow memory.
//
// One launch at a time uses the device (driver.cc holds a lock), on the caller's OS thread. Each
// CUDA thread is a fiber. Exactly one runs at a time, and only calls into the emulator switch.
#ifndef BRAID_EMULATE_INTERNAL_H
#define BRAID_EMULATE_INTERNAL_H
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace emu {

struct Block;
struct Warp;

// ---- clocks (clock.cc)
// Time is a single counter of the device. An access has the time at which its thread last
// synchronized. A clock says which accesses are known to have happened before: for each warp, all
// up to a time; for some single threads, up to a later time.
struct Later {
    uint32_t thread, time;
};
struct Clock {
    uint32_t refs;
    std::vector<Later> later;
    uint32_t warp[1]; // an entry for each warp
};

Clock *clock_share(Clock *c);
void clock_drop(Clock *c);
// Returns a clock to change: c itself if nobody else shares it, else a copy that replaces it.
Clock *clock_own(Clock *c);
void clock_join(Clock *into, const Clock *from); // from may be null
void clock_learn(Clock *into, uint32_t thread, uint32_t time);
// `into` now knows all accesses of the warp up to this time.
void clock_learn_warp(Clock *into, uint32_t warp, uint32_t time);
bool clock_knows(const Clock *c, uint32_t thread, uint32_t time);
Clock *clock_first(); // at the beginning of a launch

// ---- threads
enum class State : uint8_t { ready, barrier, cluster, warp, exited };

struct Seen { // the value of a volatile word when a thread last read it
    uintptr_t at;
    uint64_t value;
};
struct Call {
    const void *from;
    uint32_t function; // what was called, as count.cc numbers it
};
constexpr size_t kStackMargin = 32 << 10; // bytes above the guard, for the emulator's functions
constexpr unsigned kSeen = 16, kCalls = 192;

// ---- the critical path (count.cc)
struct Entry { // what a function takes of a segment, by kind
    uint32_t function;
    uint8_t kind;
    float ns;
};
struct Segment { // of a thread's way, up to where others waited for it
    const Segment *before;
    std::vector<Entry> entry;
    float busy; // how much of the time the other threads that met there were at work
};
struct Recent { // an instruction that loads
    const void *pc;
    uintptr_t at;
    uint32_t times, flying; // since threads met; since the thread waited for its loads:
    uint32_t met, waited;   // the counts of both then
};
struct Pointer { // that was loaded, and when it is there
    uintptr_t to;
    double ready;
};
constexpr unsigned kEntries = 24, kRecent = 64, kWays = 8, kFlight = 8, kPointers = 8, kDepth = 8;
struct Count {
    double now, began; // ns
    double ready, done,
        chain;   // loads are there; what is computed is; of that, elementary functions
    double base; // what all functions wait for is there
    double until[kDepth], begun[kDepth]; // functions of a depth end; what its instructions take
    unsigned depth;                      // of the next function
    double there[kDepth];                // loads with so many others before them have arrived
    unsigned behind;                     // loads that the next load waits for
    double own;                          // loads of `function` are there
    double callers;                      // ns that it waited for loads of its caller
    uint32_t caller;
    const Segment *path;
    Entry entry[kEntries];
    Recent recent[kRecent];
    uint32_t met, waited; // times
    Pointer pointer[kPointers];
    unsigned pointers;
    uintptr_t polled;
    unsigned used;
    uint32_t function, busiest; // that runs; that did something most often
    uint32_t instructions, waits, most;
    double stored; // until then a fence waits for the block's stores
    uint8_t slowest;
};

struct Copy {           // an asynchronous copy that a thread has begun
    uintptr_t to, from; // from 0: zeros
    unsigned bytes;
    const void *site;
    uint32_t group;
    double there; // when it has arrived, ns
};

struct Thread {
    void *context; // Boost's, while it does not run
    uint32_t id;   // index among the resident threads
    uint32_t index, lane;
    uint32_t x, y, z;
    Block *block;
    Warp *warp;
    State state;
    bool delayed;   // held back by an adversarial schedule
    bool arrived;   // arrived at the cluster's barrier, but not yet waiting
    uint32_t began; // the device's time when it began
    uint32_t time;  // of its accesses
    Clock *clock;
    // Fences: [0] within the block, [1] for the whole device. `released` is what a flag written now
    // makes known; `pending` is what flags read since the last fence will make known.
    Clock *released[2];
    Clock *pending[2];
    Clock *joined; // of the cluster's barrier, until it has waited
    unsigned spins;
    Seen seen[kSeen];
    char *stack;       // its low end
    const void *site;  // the call of the last synchronization
    uint64_t site_key; // the site together with its callers
    uint64_t result;   // of the last synchronization
    std::vector<Copy> copies;
    uint32_t committed; // groups of copies
    Count count;
    unsigned depth;
    Call calls[kCalls];
};

// A vote, shuffle or __syncwarp that lanes wait at; there is one for each mask.
struct Meeting {
    uint64_t mask, arrived;
    int kind;
    const void *site;
    uint64_t site_key;
    unsigned first; // the lane that arrived first
};
struct Warp {
    Block *block;
    uint32_t id; // in clocks
    unsigned lanes;
    Thread *thread;
    uint64_t exited;
    std::vector<Meeting> meeting;
    uint64_t value[64];
    unsigned from[64];
};

struct Cluster {
    unsigned blocks;
    unsigned arrived, alive;
    Clock *clock;
    std::vector<Later> at; // threads, and the times at which they arrived
    std::vector<uint32_t> after;
};

struct Block {
    uint32_t index; // in the grid
    uint32_t x, y, z;
    uint32_t slot;
    bool resident;
    unsigned alive;
    char *shared;
    Cluster *cluster;
    unsigned rank;
    Thread *thread;
    Warp *warp;
    unsigned waiting; // threads at the block barrier
    int kind;
    const void *site;
    uint64_t site_key;
    Thread *first;
    int sum, any, all;
};

// ---- memory (memory.cc)
enum class Mode : uint8_t { none, plain, sync }; // sync: volatile or atomic

// The last write of a word and the reads since. If bytes of a word are accessed separately, each
// has its own cell. Several unordered reads are in a set. `coming`: a copy to the word is on its
// way; `going`: one from it may be.
struct Cell {
    uint32_t write_time, write_pc;
    uint32_t read_time, read_pc; // or the index of a set of reads
    uint32_t write_thread : 24, write_mode : 2, split : 1, coming : 1;
    uint32_t read_thread : 24, read_mode : 2, many : 1, going : 1;
};

struct Space {
    uintptr_t low, high;
    Cell *cell;       // for every 4 bytes
    uint8_t *written; // a bit for every byte
};

void access(uintptr_t at, unsigned bytes, bool write, Mode mode, const void *pc);
void access_range(uintptr_t at, size_t bytes, bool write, const void *pc);
void copy_range(uintptr_t to, uintptr_t from, size_t bytes, const void *pc);
// The thread begins an asynchronous copy, and waits for it. Between, the place is nobody's.
void copy_begin(Thread *t, const Copy &copy);
void copy_end(const Copy &copy);
// The last thread of a block ends: reports another block's access to its shared memory that is not
// ordered before the end of any of its threads.
void shared_end(Thread *t);
void sync_release(Thread *t, uintptr_t at, bool keep);
void sync_acquire(Thread *t, uintptr_t at);
void memory_begin(); // at the beginning of a launch
void memory_end();
void memory_forget();                          // forgets all times, because the clock begins anew
bool shared_reserve();                         // for device.slots blocks of device.shared bytes
void memory_clear(uintptr_t at, size_t bytes); // marks it as never written and never accessed
void memory_written(uintptr_t at, size_t bytes);
bool heap_reserve();
bool heap_alloc(uint64_t *at, size_t bytes);
bool heap_free(uint64_t at);
bool heap_inside(uint64_t at, size_t bytes);
size_t heap_size();
size_t heap_used();
std::string describe_address(uintptr_t at);

// ---- the critical path (count.cc), if config.count
void count_begin();
void count_entry(Thread *t, const void *entry); // a function begins, before t->depth counts it
void count_exit(Thread *t);
void count_access(Thread *t, uintptr_t at, unsigned bytes, bool write, const void *pc);
double count_copy(Thread *t, uintptr_t from); // an asynchronous copy begins; when it has arrived
void count_copied(Thread *t, double there);   // from 0: of zeros
void count_then(Thread *t, int depth);
void count_behind(Thread *t, int loads);
void count_flag(Thread *t, uintptr_t at, bool write);
void count_fence(Thread *t, bool device_wide);
void count_atomic(Thread *t, uintptr_t at);
void count_block(Thread *const *threads, size_t n);
void count_cluster(Thread *const *threads, size_t n);
void count_warp(Thread *const *lanes, size_t n, bool matrix);
void count_end(Thread *t);
void count_report(const char *path); // adds a line

// ---- capture (graph.cc)
bool capture_on(const void *stream);
// Whether a capture forbids the call that is made, which ends it.
bool capture_forbids();
// Records the step for a graph if the stream is captured; returns false if the caller must run it.
bool capture_step(const void *stream, std::function<int()> step);

// ---- reports (report.cc)
struct Report {
    int error; // EMU_…
    std::string text;
};
std::string line_of(const void *pc);                   // FILE:LINE (FUNCTION)
std::string symbol_of(const void *pc);                 // of the function there, as it is linked
std::string where_is(const Thread *t, const void *pc); // with the callers
bool same_line(const void *a, const void *b);
std::string thread_name(const Thread *t);
uint32_t pc_pack(const void *pc);
const void *pc_unpack(uint32_t pc);

// ---- the run (run.cc)
enum class Order { fair, random, adversarial };
struct Config {
    Order order;
    uint64_t seed;
    unsigned units;
    bool bounds, uninitialized, races;
    unsigned reports;  // the launch ends after so many
    const char *count; // the file for the critical path; null: it is not counted
    size_t stack;      // bytes of each thread
};

struct Device { // with the launch that runs
    Config config;
    Thread *current; // null outside a kernel
    bool checking;
    unsigned width; // lanes of a warp
    unsigned warps_in_block, threads_in_block;
    unsigned grid[3], block[3], cluster;
    unsigned slots, warps, threads;
    size_t shared;
    std::vector<Thread> thread;
    std::vector<Warp> warp;
    std::vector<Block> slot;
    std::vector<Cluster> clusters;
    uint32_t now;     // the time
    uint32_t base;    // accesses up to this time belong to earlier launches
    uint64_t idle;    // switches since the last change that other threads can see
    uint32_t preempt; // accesses until the next preemption, 0: never
    char *stacks;
    size_t stacks_bytes, stack_stride;
    Space heap, shared_space;
    size_t shared_stride;
    void *main; // the scheduler's context while a fiber runs
    uint64_t random;
    std::vector<Report> reports;
    bool stop;
    void (*kernel)(void *);
};
extern Device device;

struct Launch {
    void (*kernel)(void *);
    void *argument;
    unsigned grid[3], block[3], cluster;
    size_t shared;
    unsigned resident; // blocks that run at the same time
};
bool run(const Launch &launch); // false: out of memory
// Lets other threads run; `spinning`: this one cannot go on before another one changes something.
void yield(bool spinning);
void preempt();
// Called where threads synchronize: the schedule may switch to another thread.
void sync_point();
void wait(State state); // until thread_ready
void thread_ready(Thread *t);
uint64_t random_next();
// Records a report; the kernel goes on unless config.reports is reached.
void report(int error, const std::string &text);
// The same for an error after which the kernel cannot go on.
[[noreturn]] void report_fatal(int error, const std::string &text);

// ---- synchronization (sync.cc)
void thread_exit();

} // namespace emu
#endif
