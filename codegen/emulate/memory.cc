// memory.cc: checks each access: bounds, initialization, races.
//
// Device memory is one reserved range, and the blocks' shared memory another. Each has a cell for
// every 4 bytes, with its last accesses, and a bit for every byte, which is set if it was ever
// written. Races are found as in FastTrack: a thread must know the last write of a word, and to
// write it also the reads since then.
#include "internal.h"
#include "driver.inc"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <link.h>
#include <map>
#include <sys/mman.h>
#include <unordered_map>

namespace emu {

namespace {

struct Read { // by some lanes of a warp, at about the same time
    uint32_t warp, time, pc;
    Mode mode;
    uint64_t lanes;
};
struct Flag { // a volatile or atomic word: what its last write makes known, and the writer's block
    Clock *wide, *block;
    uint32_t slot;
};

std::vector<std::vector<Read>> sets;
std::vector<uint32_t> sets_free;
struct Bytes {
    Cell cell[4];
};
std::vector<Bytes> splits;
std::unordered_map<uintptr_t, Flag> flags;
std::vector<uint64_t> known_races;

// The memory of the library's own image, which holds the constants of the text.
struct Segment {
    uintptr_t low, high;
    bool writable;
};
std::vector<Segment> segments;

int segment_of(struct dl_phdr_info *info, size_t, void *) {
    uintptr_t here = reinterpret_cast<uintptr_t>(&device);
    std::vector<Segment> all;
    bool mine = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &h = info->dlpi_phdr[i];
        if (h.p_type != PT_LOAD) continue;
        uintptr_t low = info->dlpi_addr + h.p_vaddr;
        all.push_back({low, low + h.p_memsz, (h.p_flags & PF_W) != 0});
        mine |= here >= low && here < low + h.p_memsz;
    }
    if (mine) segments = all;
    return mine;
}

bool in_library(uintptr_t at, size_t bytes) {
    if (segments.empty()) dl_iterate_phdr(segment_of, nullptr);
    for (const Segment &s : segments)
        if (at >= s.low && at + bytes <= s.high) return true;
    return false;
}

// ---- the device's heap
constexpr size_t kChunk = 256;
uint16_t *valid; // for each chunk, how many bytes from its start are allocated
struct Allocation {
    size_t bytes;
    unsigned number;
};
std::map<uintptr_t, Allocation> allocations;
std::map<uintptr_t, size_t> holes;
unsigned allocation_count;
size_t used;

bool heap_valid(uintptr_t at, size_t bytes) {
    size_t off = at - device.heap.low, in = off % kChunk, c = off / kChunk;
    while (in + bytes > kChunk) {
        if (valid[c++] != kChunk) return false;
        bytes -= kChunk - in;
        in = 0;
        if (c * kChunk >= device.heap.high - device.heap.low) return bytes == 0;
    }
    return bytes == 0 || valid[c] >= in + bytes;
}

void *reserve(size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

bool space_reserve(Space *s, size_t bytes) {
    void *p = reserve(bytes), *c = reserve(bytes / 4 * sizeof(Cell)), *w = reserve(bytes / 8 + 8);
    if (!p || !c || !w) return false;
    s->low = reinterpret_cast<uintptr_t>(p);
    s->high = s->low + bytes;
    s->cell = static_cast<Cell *>(c);
    s->written = static_cast<uint8_t *>(w);
    return true;
}

void space_free(Space *s) {
    if (!s->low) return;
    size_t bytes = s->high - s->low;
    munmap(reinterpret_cast<void *>(s->low), bytes);
    munmap(s->cell, bytes / 4 * sizeof(Cell));
    munmap(s->written, bytes / 8 + 8);
    *s = Space();
}

Space *space_of(uintptr_t at) {
    if (at - device.heap.low < device.heap.high - device.heap.low) return &device.heap;
    if (at - device.shared_space.low < device.shared_space.high - device.shared_space.low)
        return &device.shared_space;
    return nullptr;
}

// ---- written bits
bool all_written(const Space *s, uintptr_t at, size_t bytes) { // up to 16
    size_t off = at - s->low;
    uint32_t bits;
    memcpy(&bits, s->written + off / 8, 4);
    uint32_t want = ((1u << bytes) - 1) << off % 8;
    return (bits & want) == want;
}

bool any_written(const Space *s, uintptr_t at, size_t bytes) {
    for (size_t off = at - s->low, end = off + bytes; off < end; off++)
        if (s->written[off / 8] >> off % 8 & 1) return true;
    return false;
}

void set_written(Space *s, uintptr_t at, size_t bytes, bool on) {
    size_t off = at - s->low, end = off + bytes;
    for (; off < end && off % 8; off++)
        s->written[off / 8] = static_cast<uint8_t>(on ? s->written[off / 8] | 1 << off % 8
                                                      : s->written[off / 8] & ~(1 << off % 8));
    if (off + 8 <= end) {
        size_t n = (end - off) / 8;
        memset(s->written + off / 8, on ? 0xff : 0, n);
        off += n * 8;
    }
    for (; off < end; off++)
        s->written[off / 8] = static_cast<uint8_t>(on ? s->written[off / 8] | 1 << off % 8
                                                      : s->written[off / 8] & ~(1 << off % 8));
}

// ---- races
bool before(const Thread *t, uint32_t thread, uint32_t time) {
    if (time <= device.base) return true;
    if (thread == t->id) return time >= t->began;
    return clock_knows(t->clock, thread, time);
}

uint32_t new_set() {
    if (!sets_free.empty()) {
        uint32_t i = sets_free.back();
        sets_free.pop_back();
        sets[i].clear();
        return i;
    }
    sets.emplace_back();
    return static_cast<uint32_t>(sets.size() - 1);
}

bool has_set(const Cell &c) { return c.many && c.read_pc > device.base; }

void race(const Thread *t, uintptr_t at, unsigned bytes, bool write, Mode mode, const void *pc,
          uint32_t other, bool other_wrote, Mode other_mode, uint32_t other_pc) {
    uint64_t key = static_cast<uint64_t>(pc_pack(pc)) << 32 | other_pc;
    if (std::find(known_races.begin(), known_races.end(), key) != known_races.end()) return;
    known_races.push_back(key);
    static const char *const kind[] = {"", "", "volatile or atomic "};
    report(EMU_LAUNCH_FAILED,
           where_is(t, pc) + ": race: " + thread_name(t) + (write ? " writes " : " reads ") +
               std::to_string(bytes) + " bytes at " + describe_address(at) + " (" +
               kind[static_cast<int>(mode)] + (write ? "write" : "read") + "), and " +
               thread_name(&device.thread[other]) + (other_wrote ? " wrote" : " read") +
               " it, with nothing that orders them, at " + line_of(pc_unpack(other_pc)) + " (" +
               kind[static_cast<int>(other_mode)] + (other_wrote ? "write)" : "read)"));
}

void cell_read(Cell &c, Thread *t, Mode mode, uintptr_t at, unsigned bytes, const void *pc) {
    unsigned m = static_cast<unsigned>(mode);
    if (c.read_mode == m && !c.many && c.read_time == t->time && c.read_thread == t->id) return;
    if (c.write_mode && !(mode == Mode::sync && c.write_mode == m) &&
        !before(t, c.write_thread, c.write_time))
        race(t, at, bytes, false, mode, pc, c.write_thread, true, static_cast<Mode>(c.write_mode),
             c.write_pc);
    if (has_set(c)) {
        for (Read &r : sets[c.read_time])
            if (r.warp == t->warp->id && r.mode == mode) {
                if (r.time <= t->clock->warp[r.warp]) r.lanes = 0;
                r.lanes |= 1ull << t->lane;
                r.time = t->time;
                r.pc = pc_pack(pc);
                return;
            }
        sets[c.read_time].push_back({t->warp->id, t->time, pc_pack(pc), mode, 1ull << t->lane});
        return;
    }
    if (!c.read_mode || c.many || before(t, c.read_thread, c.read_time)) {
        c.many = 0;
        c.read_mode = m & 3;
        c.read_time = t->time;
        c.read_thread = t->id & 0xffffff;
        c.read_pc = pc_pack(pc);
        return;
    }
    uint32_t i = new_set();
    const Thread *o = &device.thread[c.read_thread];
    sets[i].push_back(
        {o->warp->id, c.read_time, c.read_pc, static_cast<Mode>(c.read_mode), 1ull << o->lane});
    c.many = 1;
    c.read_mode = 1;
    c.read_time = i;
    c.read_pc = device.now;
    cell_read(c, t, mode, at, bytes, pc);
}

void cell_write(Cell &c, Thread *t, Mode mode, uintptr_t at, unsigned bytes, const void *pc) {
    unsigned m = static_cast<unsigned>(mode);
    if (!c.read_mode && c.write_mode == m && c.write_time == t->time && c.write_thread == t->id)
        return;
    if (c.write_mode && !(mode == Mode::sync && c.write_mode == m) &&
        !before(t, c.write_thread, c.write_time))
        race(t, at, bytes, true, mode, pc, c.write_thread, true, static_cast<Mode>(c.write_mode),
             c.write_pc);
    if (has_set(c)) {
        uint32_t set = c.read_time;
        for (const Read r : sets[set]) {
            if ((mode == Mode::sync && r.mode == Mode::sync) || r.time <= t->clock->warp[r.warp])
                continue;
            const Warp *w = &device.warp[r.warp];
            for (unsigned l = 0; l < w->lanes; l++)
                if (r.lanes >> l & 1 && !before(t, w->thread[l].id, r.time)) {
                    race(t, at, bytes, true, mode, pc, w->thread[l].id, false, r.mode, r.pc);
                    break;
                }
        }
        sets_free.push_back(set);
    } else if (c.read_mode && !c.many && !(mode == Mode::sync && c.read_mode == m) &&
               !before(t, c.read_thread, c.read_time)) {
        race(t, at, bytes, true, mode, pc, c.read_thread, false, static_cast<Mode>(c.read_mode),
             c.read_pc);
    }
    c.many = 0;
    c.read_mode = 0;
    c.write_mode = m & 3;
    c.write_time = t->time;
    c.write_thread = t->id & 0xffffff;
    c.write_pc = pc_pack(pc);
}

// Splits the cell of a word into cells of its bytes, each with the accesses of the word so far.
Bytes &split(Cell &c) {
    if (c.split && c.write_time > device.base) return splits[c.read_time];
    if (c.split) c = Cell(); // of an earlier launch
    Bytes b;
    for (Cell &x : b.cell) {
        x = c;
        if (has_set(c)) {
            uint32_t i = new_set();
            sets[i] = sets[c.read_time];
            x.read_time = i;
        }
    }
    if (has_set(c)) sets_free.push_back(c.read_time);
    splits.push_back(b);
    c = Cell();
    c.split = 1;
    c.write_time = device.now;
    c.read_time = static_cast<uint32_t>(splits.size() - 1);
    return splits.back();
}

// ---- asynchronous copies
bool touches(uintptr_t at, size_t bytes, uintptr_t other, size_t others) {
    return other && at < other + others && other < at + bytes;
}

// Reports the access if a copy to this word of its range, or for a write from it, is on its way.
void check_copies(Cell &c, const Thread *t, uintptr_t word, uintptr_t at, size_t bytes, bool write,
                  const void *pc) {
    for (const Thread &o : device.thread)
        for (const Copy &copy : o.copies) {
            const bool to = touches(word, 4, copy.to, copy.bytes);
            if (!to && !(write && touches(word, 4, copy.from, copy.bytes))) continue;
            const uint64_t key = static_cast<uint64_t>(pc_pack(pc)) << 32 | pc_pack(copy.site);
            if (std::find(known_races.begin(), known_races.end(), key) != known_races.end()) return;
            known_races.push_back(key);
            report(EMU_LAUNCH_FAILED, where_is(t, pc) + ": race: " + thread_name(t) +
                                          (write ? " writes " : " reads ") + std::to_string(bytes) +
                                          " bytes at " + describe_address(at) +
                                          ", and an asynchronous copy " + (to ? "to" : "from") +
                                          " there that " + (&o == t ? "it" : thread_name(&o)) +
                                          " has begun at " + line_of(copy.site) + " is on its way");
            return;
        }
    c.coming = c.going = 0;
}

void mark_copy(const Copy &copy, bool coming) {
    const Space *to = space_of(copy.to), *from = space_of(copy.from);
    for (unsigned i = 0; i < copy.bytes; i += 4) {
        if (to) to->cell[(copy.to + i - to->low) / 4].coming = coming;
        if (from && coming) from->cell[(copy.from + i - from->low) / 4].going = 1;
    }
}

void check_races(Space *s, Thread *t, uintptr_t at, size_t bytes, bool write, Mode mode,
                 const void *pc) {
    auto one = write ? cell_write : cell_read;
    size_t off = at - s->low, end = off + bytes;
    unsigned n = static_cast<unsigned>(bytes);
    while (off < end) {
        Cell &c = s->cell[off / 4];
        size_t len = std::min(4 - off % 4, end - off);
        if (c.coming || (c.going && write))
            check_copies(c, t, s->low + off / 4 * 4, at, bytes, write, pc);
        if (len == 4 && !(c.split && c.write_time > device.base)) {
            if (c.split) c = Cell();
            one(c, t, mode, at, n, pc);
        } else {
            split(c);
            for (size_t i = 0; i < len; i++)
                one(splits[c.read_time].cell[off % 4 + i], t, mode, at, n, pc);
        }
        off += len;
    }
}

// Another block has accessed this word of t's, and t's block ends without having waited for that.
void outlived(const Thread *t, uintptr_t at, uint32_t other, bool wrote, uint32_t time,
              uint32_t pc) {
    const Thread *o = &device.thread[other];
    if (o->block == t->block || before(t, other, time)) return;
    report_fatal(EMU_ILLEGAL_ADDRESS, line_of(pc_unpack(pc)) +
                                          ": out of bounds: " + thread_name(o) +
                                          (wrote ? " wrote " : " read ") + describe_address(at) +
                                          ", which nothing keeps from ending before");
}

void cell_end(const Cell &c, const Thread *t, uintptr_t at) {
    if (c.write_mode) outlived(t, at, c.write_thread, true, c.write_time, c.write_pc);
    if (c.read_mode && !c.many) outlived(t, at, c.read_thread, false, c.read_time, c.read_pc);
    if (!has_set(c)) return;
    for (const Read &r : sets[c.read_time])
        for (unsigned l = 0; l < device.warp[r.warp].lanes; l++)
            if (r.lanes >> l & 1)
                outlived(t, at, device.warp[r.warp].thread[l].id, false, r.time, r.pc);
}

void uninitialized(const Thread *t, const Space *s, uintptr_t at, size_t bytes, const void *pc) {
    static std::vector<uint64_t> known;
    if (device.reports.empty()) known.clear();
    if (std::find(known.begin(), known.end(), pc_pack(pc)) != known.end()) return;
    known.push_back(pc_pack(pc));
    report(EMU_LAUNCH_FAILED, where_is(t, pc) + ": uninitialized: " + thread_name(t) + " reads " +
                                  std::to_string(bytes) + " bytes at " + describe_address(at) +
                                  (s == &device.heap ? ", which nothing has written"
                                                     : ", which no thread has written"));
}

// The space of an access, which must be in bounds; null if no more is to be checked. Only called in
// a fiber.
Space *check_bounds(Thread *t, uintptr_t at, size_t bytes, bool write, const void *pc) {
    if (at - reinterpret_cast<uintptr_t>(t->stack) < device.stack_stride) return nullptr;
    Space *s = space_of(at);
    bool good;
    std::string why;
    if (s == &device.heap) {
        good = heap_valid(at, bytes);
    } else if (s) {
        size_t off = at - s->low;
        const Block *b = off / device.shared_stride < device.slots
                             ? &device.slot[off / device.shared_stride]
                             : nullptr;
        good = b && b->resident && b->cluster == t->block->cluster && b->alive &&
               off % device.shared_stride + bytes <= device.shared;
    } else {
        good = !write && in_library(at, bytes);
        if (good) return nullptr;
    }
    if (good || !device.config.bounds) return good ? s : nullptr;
    report_fatal(EMU_ILLEGAL_ADDRESS, where_is(t, pc) + ": out of bounds: " + thread_name(t) +
                                          (write ? " writes " : " reads ") + std::to_string(bytes) +
                                          " bytes at " + describe_address(at));
}

} // namespace

void access(uintptr_t at, unsigned bytes, bool write, Mode mode, const void *pc) {
    Thread *t = device.current;
    if (device.preempt && --device.preempt == 0) preempt();
    Space *s = check_bounds(t, at, bytes, write, pc);
    if (!s) return;
    if (write) {
        if (mode == Mode::plain) device.idle = t->spins = 0; // other threads may see the change
        set_written(s, at, bytes, true);
    } else if (device.config.uninitialized && !all_written(s, at, bytes)) {
        uninitialized(t, s, at, bytes, pc);
    }
    if (device.config.races) check_races(s, t, at, bytes, write, mode, pc);
}

void access_range(uintptr_t at, size_t bytes, bool write, const void *pc) {
    Thread *t = device.current;
    if (!bytes) return;
    Space *s = check_bounds(t, at, bytes, write, pc);
    if (!s) return;
    if (write) {
        device.idle = t->spins = 0;
        set_written(s, at, bytes, true);
    } else if (device.config.uninitialized && !any_written(s, at, bytes)) {
        uninitialized(t, s, at, bytes, pc); // only if no byte is written: structs may have gaps
    }
    if (device.config.races) check_races(s, t, at, bytes, write, Mode::plain, pc);
}

void copy_range(uintptr_t to, uintptr_t from, size_t bytes, const void *pc) {
    access_range(from, bytes, false, pc);
    access_range(to, bytes, true, pc);
    Space *s = space_of(from), *d = space_of(to);
    if (!s || !d) return;
    for (size_t i = 0; i < bytes; i++)
        if (!any_written(s, from + i, 1)) set_written(d, to + i, 1, false);
}

void copy_begin(Thread *t, const Copy &copy) {
    if (copy.from) access_range(copy.from, copy.bytes, false, copy.site);
    Space *s = check_bounds(t, copy.to, copy.bytes, true, copy.site);
    if (!s || !device.config.races) return;
    check_races(s, t, copy.to, copy.bytes, true, Mode::plain, copy.site);
    mark_copy(copy, true);
}

void copy_end(const Copy &copy) {
    mark_copy(copy, false);
    if (copy.from)
        copy_range(copy.to, copy.from, copy.bytes, copy.site);
    else
        access_range(copy.to, copy.bytes, true, copy.site);
}

void shared_end(Thread *t) {
    const Block *b = t->block;
    if (device.cluster == 1 || !device.config.races) return;
    t->clock = clock_own(t->clock);
    for (unsigned i = 0; i < device.threads_in_block; i++) clock_join(t->clock, b->thread[i].clock);
    const uintptr_t low = reinterpret_cast<uintptr_t>(b->shared);
    for (size_t off = 0; off < device.shared; off += 4) {
        const Cell &c = device.shared_space.cell[(low - device.shared_space.low + off) / 4];
        if (!c.split)
            cell_end(c, t, low + off);
        else if (c.write_time > device.base)
            for (const Cell &byte : splits[c.read_time].cell) cell_end(byte, t, low + off);
    }
}

// ---- flags
static void merge(Clock **into, Clock *c) {
    if (!c) return;
    if (!*into) {
        *into = clock_share(c);
    } else {
        *into = clock_own(*into);
        clock_join(*into, c);
    }
}

void sync_release(Thread *t, uintptr_t at, bool keep) {
    auto f = flags.find(at);
    if (f == flags.end()) {
        if (!t->released[0]) return;
        f = flags.insert({at, {nullptr, nullptr, t->block->slot}}).first;
    }
    if (!keep) {
        clock_drop(f->second.wide);
        f->second.wide = nullptr;
    }
    if (!keep || f->second.slot != t->block->slot) {
        clock_drop(f->second.block);
        f->second.block = nullptr;
    }
    f->second.slot = t->block->slot;
    merge(&f->second.wide, t->released[1]);
    merge(&f->second.block, t->released[0]);
}

void sync_acquire(Thread *t, uintptr_t at) {
    auto f = flags.find(at);
    if (f == flags.end()) return;
    merge(&t->pending[1], f->second.wide);
    if (f->second.slot == t->block->slot) merge(&t->pending[0], f->second.block);
}

// ---- life
void memory_begin() {
    sets.clear();
    sets_free.clear();
    splits.clear();
    known_races.clear();
}

void memory_end() {
    for (auto &f : flags) {
        clock_drop(f.second.wide);
        clock_drop(f.second.block);
    }
    flags.clear();
}

void memory_forget() {
    for (const Space *s : {&device.heap, &device.shared_space})
        if (s->low) madvise(s->cell, (s->high - s->low) / 4 * sizeof(Cell), MADV_DONTNEED);
}

void memory_clear(uintptr_t at, size_t bytes) {
    Space *s = space_of(at);
    if (!s || !bytes) return;
    memset(&s->cell[(at - s->low) / 4], 0, (bytes + 3) / 4 * sizeof(Cell));
    set_written(s, at, bytes, false);
}

void memory_written(uintptr_t at, size_t bytes) {
    Space *s = space_of(at);
    if (s && bytes) set_written(s, at, bytes, true);
}

bool shared_reserve() {
    // A gap after each block's memory.
    size_t stride = (device.shared + 127) / 128 * 128 + 128;
    device.shared_stride = stride;
    size_t bytes = (stride * device.slots + 4095) / 4096 * 4096;
    if (device.shared_space.high - device.shared_space.low < bytes) {
        space_free(&device.shared_space);
        if (!space_reserve(&device.shared_space, bytes)) return false;
    }
    return true;
}

bool heap_reserve() {
    if (device.heap.low) return true;
    const char *text = getenv("BRAID_EMULATE_MEMORY");
    long mb = text ? atol(text) : 0;
    size_t bytes = static_cast<size_t>(mb > 0 ? mb : 4096) << 20;
    if (!space_reserve(&device.heap, bytes)) return false;
    valid = static_cast<uint16_t *>(reserve(bytes / kChunk * sizeof(uint16_t)));
    if (!valid) return false;
    holes[device.heap.low + kChunk] = bytes - kChunk;
    return true;
}

bool heap_alloc(uint64_t *at, size_t bytes) {
    // A free chunk stays after each allocation.
    if (bytes > device.heap.high - device.heap.low) return false;
    size_t need = (bytes + kChunk - 1) / kChunk * kChunk + kChunk;
    for (auto h = holes.begin(); h != holes.end(); ++h) {
        if (h->second < need) continue;
        uintptr_t low = h->first;
        size_t rest = h->second - need;
        holes.erase(h);
        if (rest) holes[low + need] = rest;
        allocations[low] = {bytes, ++allocation_count};
        used += need;
        size_t c = (low - device.heap.low) / kChunk;
        for (size_t n = bytes; n; c++) {
            size_t here = std::min(n, kChunk);
            valid[c] = static_cast<uint16_t>(here);
            n -= here;
        }
        *at = low;
        return true;
    }
    return false;
}

// Gives the whole pages of [p, p + n) back to the system, and clears the rest.
static void discard(void *p, size_t n) {
    uintptr_t low = reinterpret_cast<uintptr_t>(p), high = low + n;
    uintptr_t first = (low + 4095) / 4096 * 4096, last = high / 4096 * 4096;
    if (first >= last) {
        memset(p, 0, n);
        return;
    }
    memset(p, 0, first - low);
    madvise(reinterpret_cast<void *>(first), last - first, MADV_DONTNEED);
    memset(reinterpret_cast<void *>(last), 0, high - last);
}

bool heap_free(uint64_t at) {
    auto a = allocations.find(at);
    if (a == allocations.end()) return false;
    size_t size = (a->second.bytes + kChunk - 1) / kChunk * kChunk + kChunk;
    size_t off = at - device.heap.low;
    allocations.erase(a);
    used -= size;
    memset(&valid[off / kChunk], 0, size / kChunk * sizeof(uint16_t));
    discard(reinterpret_cast<void *>(at), size);
    discard(&device.heap.cell[off / 4], size / 4 * sizeof(Cell));
    discard(&device.heap.written[off / 8], size / 8);
    auto h = holes.insert({at, size}).first;
    auto next = std::next(h);
    if (next != holes.end() && h->first + h->second == next->first) {
        h->second += next->second;
        holes.erase(next);
    }
    if (h != holes.begin()) {
        auto prev = std::prev(h);
        if (prev->first + prev->second == h->first) {
            prev->second += h->second;
            holes.erase(h);
        }
    }
    return true;
}

bool heap_inside(uint64_t at, size_t bytes) {
    return at - device.heap.low < device.heap.high - device.heap.low && heap_valid(at, bytes);
}
size_t heap_size() { return device.heap.high - device.heap.low; }
size_t heap_used() { return used; }

std::string describe_address(uintptr_t at) {
    const Space *s = space_of(at);
    if (s == &device.heap) {
        auto a = allocations.upper_bound(at);
        if (a == allocations.begin()) return "device memory that is not allocated";
        --a;
        size_t off = at - a->first;
        std::string name = "device allocation " + std::to_string(a->second.number) + " of " +
                           std::to_string(a->second.bytes) + " bytes";
        if (off < a->second.bytes) return "byte " + std::to_string(off) + " of " + name;
        if (off < a->second.bytes + kChunk)
            return "byte " + std::to_string(off) + " of " + name + ", " +
                   std::to_string(off - a->second.bytes) + " after its end";
        return "device memory that is not allocated";
    }
    if (s) {
        size_t off = at - s->low, i = off / device.shared_stride;
        if (i < device.slots)
            return "byte " + std::to_string(off % device.shared_stride) +
                   " of the shared memory (" + std::to_string(device.shared) + " bytes) of block " +
                   std::to_string(device.slot[i].index) +
                   (device.slot[i].alive ? "" : ", which has ended");
    }
    if (at - reinterpret_cast<uintptr_t>(device.stacks) < device.stacks_bytes)
        return "the stack of another thread";
    if (in_library(at, 1)) return "a constant";
    char hex[32];
    snprintf(hex, sizeof hex, "address 0x%llx", static_cast<unsigned long long>(at));
    return hex;
}

// The library may be closed and opened again.
__attribute__((destructor)) static void memory_unmap() {
    if (valid) munmap(valid, heap_size() / kChunk * sizeof(uint16_t));
    space_free(&device.heap);
    space_free(&device.shared_space);
    if (device.stacks) munmap(device.stacks, device.stacks_bytes);
}

} // namespace emu
