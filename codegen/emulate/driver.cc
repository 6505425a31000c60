// driver.cc: the functions of the emulated driver (driver.inc).
#include "driver.inc"
#include "internal.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>

using namespace emu;

// A kernel compiled with emulate.h is in a section whose name tells its warp width.
extern "C" {
extern char __start_emu_warp_64[] __attribute__((weak, visibility("hidden")));
extern char __start_emu_warp_32[] __attribute__((weak, visibility("hidden")));
void braid_kernel(void *) __attribute__((weak));
}

namespace {

struct Function {
    void (*kernel)(void *);
    size_t shared; // upper bound of what a launch may ask for, bytes
    int cluster_any;
};
struct Object { // a context, module, stream or event
    int kind;
};
enum { o_context = 0x4354, o_module, o_stream, o_event };

std::recursive_mutex lock;
using Hold = std::lock_guard<std::recursive_mutex>;
bool begun;
Object context{o_context};
thread_local Object *current;
int retained;
size_t stack_limit = 1024;
thread_local char *last_report;                   // of this thread's last launch
std::vector<std::unique_ptr<Function>> functions; // until the library is closed

const size_t kSharedDefault = 48 << 10;

// The limits of the emulated device. It is small, so that a grid that fills it runs quickly.
struct Limits {
    unsigned threads_per_unit, blocks_per_unit, threads_per_block;
    size_t shared_per_unit, shared_per_block;
    int major, minor;
};
Limits cuda = {256, 2, 256, 100 << 10, 99 << 10, 9, 0};
Limits hip = {256, 2, 256, 64 << 10, 64 << 10, 9, 0};
unsigned warp_width() { return __start_emu_warp_64 ? 64 : 32; }
Limits &limits() { return warp_width() == 64 ? hip : cuda; }
unsigned units_by_default = 4;

long number(const char *name, long low, long high, long otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < low || value > high) {
        fprintf(stderr, "%s=%s: expected a number from %ld to %ld\n", name, text, low, high);
        return otherwise;
    }
    return value;
}

Config configuration() {
    Config c;
    c.seed = static_cast<uint64_t>(number("BRAID_EMULATE_SEED", 0, 1L << 40, 0));
    c.units = static_cast<unsigned>(number("BRAID_EMULATE_UNITS", 1, 1024, units_by_default));
    c.reports = static_cast<unsigned>(number("BRAID_EMULATE_REPORTS", 1, 1000, 1));
    c.order = Order::fair;
    const char *s = getenv("BRAID_EMULATE_SCHEDULE");
    if (s && !strcmp(s, "random"))
        c.order = Order::random;
    else if (s && !strcmp(s, "adversarial"))
        c.order = Order::adversarial;
    else if (s && *s && strcmp(s, "fair") != 0)
        fprintf(stderr, "BRAID_EMULATE_SCHEDULE=%s: expected fair, random or adversarial\n", s);
    const char *checks = getenv("BRAID_EMULATE_CHECKS");
    bool all = !checks || !*checks || !strcmp(checks, "on");
    c.bounds = all || strstr(checks, "bounds");
    c.uninitialized = all || strstr(checks, "uninitialized");
    c.races = all || strstr(checks, "races");
    const char *count = getenv("BRAID_EMULATE_COUNT");
    c.count = count && *count ? count : nullptr;
    // At -O0 the host's frames are several times as large as the device's.
    c.stack = (256 << 10) + 16 * stack_limit;
    return c;
}

// How many blocks fit on one multiprocessor.
unsigned occupancy(size_t threads, size_t shared) {
    const Limits &l = limits();
    if (!threads || threads > l.threads_per_block || shared > l.shared_per_block) return 0;
    size_t warps = (threads + warp_width() - 1) / warp_width();
    size_t n = l.threads_per_unit / (warps * warp_width());
    if (shared && l.shared_per_unit / shared < n) n = l.shared_per_unit / shared;
    return static_cast<unsigned>(n < l.blocks_per_unit ? n : l.blocks_per_unit);
}

int check_context() { return !begun ? EMU_NOT_INITIALIZED : current ? 0 : EMU_INVALID_CONTEXT; }
bool is(const void *handle, int kind) {
    return handle && static_cast<const Object *>(handle)->kind == kind;
}
bool stream_good(const void *stream) {
    // NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are the default streams.
    return reinterpret_cast<uintptr_t>(stream) <= 2 || is(stream, o_stream);
}

int launch(Function *f, const unsigned *grid, const unsigned *block, unsigned cluster,
           size_t shared, bool cooperative, void *stream, void **params, void **extra) {
    Hold hold(lock);
    if (int e = check_context()) return e;
    if (!f || !f->kernel || !stream_good(stream)) return EMU_INVALID_HANDLE;
    if (!params || extra || !cluster) return EMU_INVALID_VALUE;
    for (int i = 0; i < 3; i++)
        if (!grid[i] || !block[i] || grid[i] > 0x7fffffff) return EMU_INVALID_VALUE;
    uint64_t blocks = static_cast<uint64_t>(grid[0]) * grid[1] * grid[2];
    uint64_t threads = static_cast<uint64_t>(block[0]) * block[1] * block[2];
    if (blocks > 0x7fffffff || grid[0] % cluster) return EMU_INVALID_VALUE;
    if (threads > limits().threads_per_block) return EMU_INVALID_VALUE;
    if (shared > f->shared) return EMU_INVALID_VALUE;
    if (cluster > 1 && (warp_width() == 64 || cluster > 8)) return EMU_INVALID_VALUE;
    device.config = configuration();
    unsigned fit = occupancy(threads, shared);
    if (!fit) return EMU_OUT_OF_RESOURCES;
    uint64_t resident = static_cast<uint64_t>(fit) * device.config.units / cluster * cluster;
    if (!resident) return EMU_OUT_OF_RESOURCES;
    if (cooperative && blocks > resident) return EMU_COOPERATIVE_TOO_LARGE;
    if (blocks < resident) resident = blocks;

    Launch l;
    l.kernel = f->kernel;
    memcpy(&l.argument, params[0], sizeof l.argument);
    for (int i = 0; i < 3; i++) l.grid[i] = grid[i], l.block[i] = block[i];
    l.cluster = cluster;
    l.shared = shared;
    l.resident = static_cast<unsigned>(resident);
    auto start = [l]() -> int {
        Hold alone(lock);
        device.width = warp_width();
        device.checking =
            device.config.bounds || device.config.uninitialized || device.config.races;
        free(last_report);
        last_report = nullptr;
        if (!run(l)) return EMU_OUT_OF_MEMORY;
        if (device.reports.empty()) return EMU_SUCCESS;
        last_report = strdup(device.reports[0].text.c_str());
        return device.reports[0].error;
    };
    return capture_step(stream, start) ? EMU_SUCCESS : start();
}

std::map<uintptr_t, size_t> pinned; // host memory that the device can reach
bool pinned_inside(const void *p, size_t bytes) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    auto next = pinned.upper_bound(at);
    if (next == pinned.begin()) return false;
    --next;
    return at + bytes <= next->first + next->second;
}

int copy(uint64_t device_to, void *to, uint64_t device_from, const void *from, size_t bytes,
         void *stream) {
    Hold hold(lock);
    if (int e = check_context()) return e;
    if (!stream_good(stream)) return EMU_INVALID_HANDLE;
    if (!bytes) return EMU_SUCCESS;
    if (device_to && !heap_inside(device_to, bytes)) return EMU_INVALID_VALUE;
    if (device_from && !heap_inside(device_from, bytes)) return EMU_INVALID_VALUE;
    if (device_to) to = reinterpret_cast<void *>(device_to);
    if (device_from) from = reinterpret_cast<const void *>(device_from);
    if (!to || !from) return EMU_INVALID_VALUE;
    if (capture_on(stream) && ((!device_to && !pinned_inside(to, bytes)) ||
                               (!device_from && !pinned_inside(from, bytes))))
        return EMU_INVALID_VALUE;
    auto step = [=]() -> int {
        memmove(to, from, bytes);
        if (device_to) memory_written(device_to, bytes);
        return EMU_SUCCESS;
    };
    return capture_step(stream, step) ? EMU_SUCCESS : step();
}

int make(void **handle, int kind) {
    if (int e = check_context()) return e;
    if (!handle) return EMU_INVALID_VALUE;
    *handle = new Object{kind};
    return EMU_SUCCESS;
}
int unmake(void *handle, int kind) {
    if (int e = check_context()) return e;
    if (!is(handle, kind)) return EMU_INVALID_HANDLE;
    Object *o = static_cast<Object *>(handle);
    o->kind = 0;
    delete o;
    return EMU_SUCCESS;
}

} // namespace

const char *emu_last_report(void) { return last_report ? last_report : ""; }

static const struct {
    int error;
    const char *name, *text;
} errors[] = {
    {EMU_SUCCESS, "SUCCESS", "no error"},
    {EMU_INVALID_VALUE, "INVALID_VALUE", "invalid argument"},
    {EMU_OUT_OF_MEMORY, "OUT_OF_MEMORY", "out of memory"},
    {EMU_NOT_INITIALIZED, "NOT_INITIALIZED", "initialization error"},
    {EMU_INVALID_DEVICE, "INVALID_DEVICE", "invalid device ordinal"},
    {EMU_INVALID_CONTEXT, "INVALID_CONTEXT", "invalid device context"},
    {EMU_INVALID_HANDLE, "INVALID_HANDLE", "invalid resource handle"},
    {EMU_NOT_FOUND, "NOT_FOUND", "named symbol not found"},
    {EMU_ILLEGAL_ADDRESS, "ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {EMU_OUT_OF_RESOURCES, "LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {EMU_LAUNCH_TIMEOUT, "LAUNCH_TIMEOUT", "the launch does not end"},
    {EMU_MISALIGNED_ADDRESS, "MISALIGNED_ADDRESS", "misaligned address"},
    {EMU_LAUNCH_FAILED, "LAUNCH_FAILED", "unspecified launch failure"},
    {EMU_COOPERATIVE_TOO_LARGE, "COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
};
static int error_text(int error, bool name, const char **text) {
    *text = nullptr;
    for (const auto &e : errors)
        if (e.error == error) *text = name ? e.name : e.text;
    return *text ? EMU_SUCCESS : EMU_INVALID_VALUE;
}
int emu_get_error_string(int error, const char **text) { return error_text(error, false, text); }
int emu_get_error_name(int error, const char **text) { return error_text(error, true, text); }

void emu_device_like(unsigned units, unsigned threads, size_t shared) {
    Limits &l = limits();
    if (units <= units_by_default) return; // the small one, on which two blocks share a unit
    units_by_default = units;
    l.blocks_per_unit = 1;
    l.threads_per_unit = l.threads_per_block = threads;
    l.shared_per_unit = l.shared_per_block = shared;
}

int emu_init(unsigned flags) {
    Hold hold(lock);
    if (flags) return EMU_INVALID_VALUE;
    if (!heap_reserve()) return EMU_OUT_OF_MEMORY;
    begun = true;
    return EMU_SUCCESS;
}
int emu_driver_get_version(int *version) {
    *version = 13000;
    return EMU_SUCCESS;
}
int emu_device_get_count(int *count) {
    if (!begun) return EMU_NOT_INITIALIZED;
    *count = 1;
    return EMU_SUCCESS;
}
int emu_device_get(int *dev, int ordinal) {
    if (!begun) return EMU_NOT_INITIALIZED;
    if (ordinal) return EMU_INVALID_DEVICE;
    *dev = 0;
    return EMU_SUCCESS;
}
int emu_device_get_name(char *name, int size, int dev) {
    if (dev) return EMU_INVALID_DEVICE;
    if (size > 0)
        snprintf(name, static_cast<size_t>(size), "emulated %s device",
                 warp_width() == 64 ? "HIP" : "CUDA");
    return EMU_SUCCESS;
}
int emu_device_get_attribute(int *value, int attribute, int dev) {
    if (dev) return EMU_INVALID_DEVICE;
    const Limits &l = limits();
    switch (attribute) {
    case 1: // threads per block
    case 2:
    case 3:
    case 4: *value = static_cast<int>(l.threads_per_block); break;
    case 5: *value = 0x7fffffff; break; // grid
    case 6:
    case 7: *value = 65535; break;
    case 8: *value = kSharedDefault; break; // shared memory per block, without asking for more
    case 10: *value = static_cast<int>(warp_width()); break;
    case 12:
    case 82: *value = 65536; break;   // registers
    case 13: *value = 1000000; break; // clock rate, kHz
    case 16: *value = static_cast<int>(configuration().units); break;
    case 38: *value = 4 << 20; break; // L2
    case 39: *value = static_cast<int>(l.threads_per_unit); break;
    case 41: *value = 1; break; // unified addressing
    case 75: *value = l.major; break;
    case 76: *value = l.minor; break;
    case 81: *value = static_cast<int>(l.shared_per_unit); break;
    case 95: *value = 1; break; // cooperative launch
    case 97: *value = static_cast<int>(l.shared_per_block); break;
    case 106: *value = static_cast<int>(l.blocks_per_unit); break;
    case 111: *value = 0; break;
    case 115: *value = 1; break;                  // memory pools
    case 120: *value = warp_width() == 32; break; // cluster launch
    default: return EMU_INVALID_VALUE;
    }
    return EMU_SUCCESS;
}
int emu_device_total_mem(size_t *bytes, int dev) {
    if (dev) return EMU_INVALID_DEVICE;
    *bytes = heap_size();
    return EMU_SUCCESS;
}

int emu_device_primary_ctx_retain(void **ctx, int dev) {
    Hold hold(lock);
    if (!begun) return EMU_NOT_INITIALIZED;
    if (dev) return EMU_INVALID_DEVICE;
    retained++;
    *ctx = &context;
    return EMU_SUCCESS;
}
int emu_device_primary_ctx_release(int dev) {
    Hold hold(lock);
    if (dev) return EMU_INVALID_DEVICE;
    if (!retained) return EMU_INVALID_CONTEXT;
    retained--;
    return EMU_SUCCESS;
}
int emu_ctx_set_current(void *ctx) {
    if (ctx && !is(ctx, o_context)) return EMU_INVALID_CONTEXT;
    current = static_cast<Object *>(ctx);
    return EMU_SUCCESS;
}
int emu_ctx_get_current(void **ctx) {
    *ctx = current;
    return EMU_SUCCESS;
}
static thread_local std::vector<Object *> *pushed;
int emu_ctx_push_current(void *ctx) {
    if (!is(ctx, o_context)) return EMU_INVALID_CONTEXT;
    if (!pushed) pushed = new std::vector<Object *>;
    pushed->push_back(current);
    current = static_cast<Object *>(ctx);
    return EMU_SUCCESS;
}
int emu_ctx_pop_current(void **ctx) {
    if (!pushed || pushed->empty()) return EMU_INVALID_CONTEXT;
    if (ctx) *ctx = current;
    current = pushed->back();
    pushed->pop_back();
    if (pushed->empty()) {
        delete pushed;
        pushed = nullptr;
    }
    return EMU_SUCCESS;
}
int emu_ctx_get_device(int *dev) {
    if (int e = check_context()) return e;
    *dev = 0;
    return EMU_SUCCESS;
}
int emu_ctx_synchronize(void) { return check_context(); }
int emu_ctx_set_limit(int limit, size_t value) {
    Hold hold(lock);
    if (int e = check_context()) return e;
    if (limit == 0) {
        if (value > 1 << 20) return EMU_INVALID_VALUE;
        stack_limit = value;
    }
    return EMU_SUCCESS;
}
int emu_ctx_get_limit(size_t *value, int limit) {
    if (int e = check_context()) return e;
    *value = limit == 0 ? stack_limit : 0;
    return EMU_SUCCESS;
}

int emu_module_load_data(void **module, const void *) { return make(module, o_module); }
int emu_module_unload(void *module) { return unmake(module, o_module); }
int emu_module_get_function(void **function, void *module, const char *name) {
    Hold hold(lock);
    if (int e = check_context()) return e;
    if (!is(module, o_module)) return EMU_INVALID_HANDLE;
    void (*kernel)(void *) = nullptr;
    if (!strcmp(name, "braid_kernel")) kernel = braid_kernel;
    Dl_info info;
    if (!kernel && dladdr(&context, &info)) {
        void *self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (!self) self = dlopen(nullptr, RTLD_LAZY);
        if (self) {
            *reinterpret_cast<void **>(&kernel) = dlsym(self, name);
            dlclose(self);
        }
    }
    if (!kernel) return EMU_NOT_FOUND;
    for (const auto &f : functions)
        if (f->kernel == kernel) {
            *function = f.get();
            return EMU_SUCCESS;
        }
    functions.emplace_back(new Function{kernel, kSharedDefault, 0});
    *function = functions.back().get();
    return EMU_SUCCESS;
}
int emu_func_get_attribute(int *value, int attribute, void *function) {
    const Function *f = static_cast<const Function *>(function);
    if (!f) return EMU_INVALID_HANDLE;
    switch (attribute) {
    case 0: *value = static_cast<int>(limits().threads_per_block); break;
    case 8: *value = static_cast<int>(f->shared); break;
    case 1: // static shared, constant, local bytes
    case 2:
    case 3: *value = 0; break;
    case 4: *value = 32; break; // registers
    case 5:
    case 6: *value = limits().major * 10 + limits().minor; break;
    default: return EMU_INVALID_VALUE;
    }
    return EMU_SUCCESS;
}
int emu_func_set_attribute(void *function, int attribute, int value) {
    Hold hold(lock);
    Function *f = static_cast<Function *>(function);
    if (!f) return EMU_INVALID_HANDLE;
    if (attribute == 8) {
        if (value < 0 || static_cast<size_t>(value) > limits().shared_per_block)
            return EMU_INVALID_VALUE;
        f->shared = static_cast<size_t>(value);
    }
    return EMU_SUCCESS;
}
int emu_occupancy_max_active_blocks(int *blocks, void *function, int threads, size_t shared) {
    const Function *f = static_cast<const Function *>(function);
    if (!f) return EMU_INVALID_HANDLE;
    if (threads <= 0) return EMU_INVALID_VALUE;
    *blocks =
        shared > f->shared ? 0 : static_cast<int>(occupancy(static_cast<size_t>(threads), shared));
    return EMU_SUCCESS;
}

int emu_mem_alloc(uint64_t *at, size_t bytes) {
    Hold hold(lock);
    if (int e = check_context()) return e;
    if (!bytes) return EMU_INVALID_VALUE;
    if (capture_forbids()) return EMU_CAPTURE_UNSUPPORTED;
    return heap_alloc(at, bytes) ? EMU_SUCCESS : EMU_OUT_OF_MEMORY;
}
int emu_mem_free(uint64_t at) {
    Hold hold(lock);
    if (int e = check_context()) return e;
    if (capture_forbids()) return EMU_CAPTURE_UNSUPPORTED;
    return !at || heap_free(at) ? EMU_SUCCESS : EMU_INVALID_VALUE;
}
int emu_mem_alloc_async(uint64_t *at, size_t bytes, void *stream) {
    return stream_good(stream) ? emu_mem_alloc(at, bytes) : EMU_INVALID_HANDLE;
}
int emu_mem_free_async(uint64_t at, void *stream) {
    return stream_good(stream) ? emu_mem_free(at) : EMU_INVALID_HANDLE;
}
int emu_mem_get_info(size_t *available, size_t *total) {
    if (int e = check_context()) return e;
    *total = heap_size();
    *available = heap_size() - heap_used();
    return EMU_SUCCESS;
}
int emu_mem_host_alloc(void **memory, size_t bytes, unsigned) {
    if (int e = check_context()) return e;
    if (!bytes) return EMU_INVALID_VALUE;
    Hold hold(lock);
    if (capture_forbids()) return EMU_CAPTURE_UNSUPPORTED;
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (*memory) pinned[reinterpret_cast<uintptr_t>(*memory)] = bytes;
    return *memory ? EMU_SUCCESS : EMU_OUT_OF_MEMORY;
}
int emu_mem_free_host(void *memory) {
    Hold hold(lock);
    if (capture_forbids()) return EMU_CAPTURE_UNSUPPORTED;
    pinned.erase(reinterpret_cast<uintptr_t>(memory));
    free(memory);
    return EMU_SUCCESS;
}
int emu_memcpy_htod_async(uint64_t to, const void *from, size_t bytes, void *stream) {
    return to || !bytes ? copy(to, nullptr, 0, from, bytes, stream) : EMU_INVALID_VALUE;
}
int emu_memcpy_dtoh_async(void *to, uint64_t from, size_t bytes, void *stream) {
    return from || !bytes ? copy(0, to, from, nullptr, bytes, stream) : EMU_INVALID_VALUE;
}
int emu_memcpy_dtod_async(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    return (to && from) || !bytes ? copy(to, nullptr, from, nullptr, bytes, stream)
                                  : EMU_INVALID_VALUE;
}
int emu_memcpy_htod(uint64_t to, const void *from, size_t bytes) {
    return emu_memcpy_htod_async(to, from, bytes, nullptr);
}
int emu_memcpy_dtoh(void *to, uint64_t from, size_t bytes) {
    return emu_memcpy_dtoh_async(to, from, bytes, nullptr);
}
int emu_memcpy_dtod(uint64_t to, uint64_t from, size_t bytes) {
    return emu_memcpy_dtod_async(to, from, bytes, nullptr);
}
template <class T> static int fill(uint64_t to, T value, size_t count, void *stream) {
    Hold hold(lock);
    if (int e = check_context()) return e;
    if (!stream_good(stream)) return EMU_INVALID_HANDLE;
    if (!count) return EMU_SUCCESS;
    if (to % sizeof(T) || !heap_inside(to, count * sizeof(T))) return EMU_INVALID_VALUE;
    auto step = [=]() -> int {
        for (size_t i = 0; i < count; i++) reinterpret_cast<T *>(to)[i] = value;
        memory_written(to, count * sizeof(T));
        return EMU_SUCCESS;
    };
    return capture_step(stream, step) ? EMU_SUCCESS : step();
}
int emu_memset_d8_async(uint64_t to, unsigned char value, size_t count, void *stream) {
    return fill(to, value, count, stream);
}
int emu_memset_d32_async(uint64_t to, unsigned value, size_t count, void *stream) {
    return fill(to, value, count, stream);
}
int emu_memset_d8(uint64_t to, unsigned char value, size_t count) {
    return emu_memset_d8_async(to, value, count, nullptr);
}
int emu_memset_d32(uint64_t to, unsigned value, size_t count) {
    return emu_memset_d32_async(to, value, count, nullptr);
}

int emu_stream_create(void **stream, unsigned) { return make(stream, o_stream); }
int emu_stream_destroy(void *stream) { return unmake(stream, o_stream); }
static int stream_check(const void *stream) {
    if (int e = check_context()) return e;
    return stream_good(stream) ? EMU_SUCCESS : EMU_INVALID_HANDLE;
}
int emu_stream_synchronize(void *stream) {
    return capture_forbids() ? EMU_CAPTURE_UNSUPPORTED : stream_check(stream);
}
int emu_stream_query(void *stream) { return stream_check(stream); }
int emu_stream_wait_event(void *stream, void *event, unsigned) {
    return is(event, o_event) ? stream_check(stream) : EMU_INVALID_HANDLE;
}
int emu_event_create(void **event, unsigned) { return make(event, o_event); }
int emu_event_destroy(void *event) { return unmake(event, o_event); }
int emu_event_record(void *event, void *stream) {
    if (capture_forbids()) return EMU_CAPTURE_UNSUPPORTED;
    return is(event, o_event) ? stream_check(stream) : EMU_INVALID_HANDLE;
}
int emu_event_synchronize(void *event) {
    if (capture_forbids()) return EMU_CAPTURE_UNSUPPORTED;
    return is(event, o_event) ? EMU_SUCCESS : EMU_INVALID_HANDLE;
}
int emu_event_query(void *event) {
    if (capture_forbids()) return EMU_CAPTURE_UNSUPPORTED;
    return is(event, o_event) ? EMU_SUCCESS : EMU_INVALID_HANDLE;
}
int emu_event_elapsed_time(float *milliseconds, void *start, void *end) {
    if (!is(start, o_event) || !is(end, o_event)) return EMU_INVALID_HANDLE;
    *milliseconds = 0;
    return EMU_SUCCESS;
}

int emu_launch_kernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                      unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                      void **extra) {
    unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    return launch(static_cast<Function *>(function), grid, block, 1, shared, false, stream, params,
                  extra);
}
int emu_launch_cooperative_kernel(void *function, unsigned gx, unsigned gy, unsigned gz,
                                  unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                  void *stream, void **params) {
    unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    return launch(static_cast<Function *>(function), grid, block, 1, shared, true, stream, params,
                  nullptr);
}

static bool attributes(const emu_launch_config *c, unsigned *cluster, bool *cooperative) {
    *cluster = 1;
    *cooperative = false;
    for (unsigned i = 0; i < c->attributes; i++) {
        const emu_launch_attribute *a = &c->attribute[i];
        if (a->id == EMU_LAUNCH_COOPERATIVE) *cooperative = a->value.cooperative != 0;
        if (a->id == EMU_LAUNCH_CLUSTER_DIMENSION) {
            if (a->value.cluster.y > 1 || a->value.cluster.z > 1) return false; // along x only
            *cluster = a->value.cluster.x;
        }
    }
    return true;
}
int emu_launch_kernel_ex(const void *config, void *function, void **params, void **extra) {
    const emu_launch_config *c = static_cast<const emu_launch_config *>(config);
    unsigned grid[3] = {c->grid_x, c->grid_y, c->grid_z};
    unsigned block[3] = {c->block_x, c->block_y, c->block_z};
    unsigned cluster;
    bool cooperative;
    if (!attributes(c, &cluster, &cooperative)) return EMU_INVALID_VALUE;
    return launch(static_cast<Function *>(function), grid, block, cluster, c->shared, cooperative,
                  c->stream, params, extra);
}
int emu_occupancy_max_potential_cluster_size(int *size, void *function, const void *) {
    if (!function) return EMU_INVALID_HANDLE;
    *size = warp_width() == 32 ? 8 : 1;
    return EMU_SUCCESS;
}
int emu_occupancy_max_active_clusters(int *clusters, void *function, const void *config) {
    const emu_launch_config *c = static_cast<const emu_launch_config *>(config);
    unsigned cluster;
    bool cooperative;
    if (!function) return EMU_INVALID_HANDLE;
    if (!attributes(c, &cluster, &cooperative) || !cluster) return EMU_INVALID_VALUE;
    unsigned fit = occupancy(static_cast<size_t>(c->block_x) * c->block_y * c->block_z, c->shared);
    *clusters = static_cast<int>(fit * configuration().units / cluster);
    return EMU_SUCCESS;
}
