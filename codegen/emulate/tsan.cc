// tsan.cc: the functions that instrumented text calls at every access (-fsanitize=thread, without
// its library).
#include "internal.h"
#include "driver.inc"

#include <cstring>

using namespace emu;

#define PC __builtin_return_address(0)
#define HOOK extern "C" __attribute__((visibility("hidden")))

static inline uintptr_t address(const volatile void *p) { return reinterpret_cast<uintptr_t>(p); }

static void plain(const void *p, unsigned bytes, bool write, const void *pc) {
    if (!device.current) return;
    if (device.config.count) count_access(device.current, address(p), bytes, write, pc);
    if (device.checking) access(address(p), bytes, write, Mode::plain, pc);
}

static void aligned(const void *p, unsigned bytes, bool write, const void *pc) {
    if (!device.current) return;
    if (device.config.count) count_access(device.current, address(p), bytes, write, pc);
    if (!device.checking) return;
    if (address(p) % bytes && device.config.bounds)
        report_fatal(EMU_MISALIGNED_ADDRESS,
                     where_is(device.current, pc) + ": misaligned: " + thread_name(device.current) +
                         (write ? " writes " : " reads ") + std::to_string(bytes) + " bytes at " +
                         describe_address(address(p)));
    access(address(p), bytes, write, Mode::plain, pc);
}

// An access to a flag. A thread that reads the same flags again and again yields to the others.
static void flag(const volatile void *p, unsigned bytes, bool write, const void *pc) {
    Thread *t = device.current;
    if (!t) return;
    sync_point();
    if (device.config.count && write) count_flag(t, address(p), true);
    if (device.checking) access(address(p), bytes, write, Mode::sync, pc);
    if (write) {
        device.idle = 0;
        t->spins = 0;
        if (device.checking) sync_release(t, address(p), false);
        return;
    }
    t->site = pc;
    uint64_t value = 0;
    memcpy(&value, const_cast<const void *>(p), bytes < 8 ? bytes : 8);
    Seen &s = t->seen[(address(p) >> 7 ^ address(p) >> 2) % kSeen];
    if (s.at == address(p) && s.value == value) {
        if (++t->spins > 2) yield(true);
    } else {
        device.idle = 0;
    }
    s.at = address(p);
    memcpy(&s.value, const_cast<const void *>(p), bytes < 8 ? bytes : 8);
    if (device.config.count) count_flag(t, address(p), false); /* others have run since */
    if (device.checking) sync_acquire(t, address(p));
}

#define SIZE(n)                                                                                    \
    HOOK void __tsan_read##n(void *p) { aligned(p, n, false, PC); }                                \
    HOOK void __tsan_write##n(void *p) { aligned(p, n, true, PC); }                                \
    HOOK void __tsan_read_write##n(void *p) {                                                      \
        aligned(p, n, false, PC);                                                                  \
        aligned(p, n, true, PC);                                                                   \
    }                                                                                              \
    HOOK void __tsan_unaligned_read##n(void *p) { plain(p, n, false, PC); }                        \
    HOOK void __tsan_unaligned_write##n(void *p) { plain(p, n, true, PC); }                        \
    HOOK void __tsan_unaligned_read_write##n(void *p) {                                            \
        plain(p, n, false, PC);                                                                    \
        plain(p, n, true, PC);                                                                     \
    }                                                                                              \
    HOOK void __tsan_volatile_read##n(void *p) { flag(p, n, false, PC); }                          \
    HOOK void __tsan_volatile_write##n(void *p) { flag(p, n, true, PC); }                          \
    HOOK void __tsan_unaligned_volatile_read##n(void *p) { flag(p, n, false, PC); }                \
    HOOK void __tsan_unaligned_volatile_write##n(void *p) { flag(p, n, true, PC); }
SIZE(1)
SIZE(2)
SIZE(4)
SIZE(8)
SIZE(16)

HOOK void __tsan_read_range(void *p, size_t n) {
    if (device.current && device.checking) access_range(address(p), n, false, PC);
}
HOOK void __tsan_write_range(void *p, size_t n) {
    if (device.current && device.checking) access_range(address(p), n, true, PC);
}
HOOK void __tsan_vptr_update(void *, void *) {}
HOOK void __tsan_vptr_read(void *) {}
HOOK void __tsan_init() {}

HOOK void __tsan_func_entry(void *pc) {
    Thread *t = device.current;
    if (!t) return;
    if (device.config.count) count_entry(t, PC);
    if (t->depth < kCalls) t->calls[t->depth].from = pc;
    t->depth++;
    char *here = static_cast<char *>(__builtin_frame_address(0));
    if (here < t->stack + kStackMargin)
        report_fatal(EMU_LAUNCH_FAILED, where_is(t, PC) + ": stack overflow: " + thread_name(t) +
                                            " has used the " + std::to_string(device.config.stack) +
                                            " bytes of its stack, " + std::to_string(t->depth) +
                                            " calls deep");
}
HOOK void __tsan_func_exit() {
    if (!device.current) return;
    device.current->depth--;
    if (device.config.count) count_exit(device.current);
}

// By words, as the device's compiler would.
static void count_range(const void *from, void *to, size_t n, const void *pc) {
    if (!device.current || !device.config.count) return;
    for (size_t i = 0; i < n; i += 16) {
        if (from) count_access(device.current, address(from) + i, 16, false, pc);
        count_access(device.current, address(to) + i, 16, true, pc);
    }
}

// The C library's functions as the text calls them; emulate.h renames them.
#define MEMORY(prefix)                                                                             \
    HOOK void *prefix##memcpy(void *to, const void *from, size_t n) {                              \
        count_range(from, to, n, PC);                                                              \
        if (device.current && device.checking) copy_range(address(to), address(from), n, PC);      \
        return memcpy(to, from, n);                                                                \
    }                                                                                              \
    HOOK void *prefix##memmove(void *to, const void *from, size_t n) {                             \
        count_range(from, to, n, PC);                                                              \
        if (device.current && device.checking) copy_range(address(to), address(from), n, PC);      \
        return memmove(to, from, n);                                                               \
    }                                                                                              \
    HOOK void *prefix##memset(void *to, int value, size_t n) {                                     \
        count_range(nullptr, to, n, PC);                                                           \
        if (device.current && device.checking) access_range(address(to), n, true, PC);             \
        return memset(to, value, n);                                                               \
    }
MEMORY(emu_)
MEMORY(__tsan_)
