/* gpu_driver.c: see gpu_driver.h. GPU_NAMES: 0 CUDA's, 1 HIP's, in a shared library; 2 the
 * emulator's. */
#include "tests/unit/gpu_driver.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "codegen/emulate/driver.inc"

GpuDriver gpu_driver = {.devices = 2,
                        .capability = 90,
                        .arch = "gfx90a:sramecc+:xnack-",
                        .cooperative = 1,
                        .processors = 4,
                        .blocks = 2,
                        .shared = 65536,
                        .room = (int64_t)1 << 30,
                        .fail_with = 1};
#define D gpu_driver
enum { MEMORY, HOST, MODULE, STREAM, EVENT, GRAPH };

/* Everything that was made and not freed. */
typedef struct Thing {
    struct Thing *next;
    int kind;
    size_t bytes;
    char *data;
} Thing;
static Thing *things;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char primary[8];
static int retained[8];
static _Thread_local void *stack[16];
static _Thread_local int depth;

void gpu_driver_context(void *context) {
    depth = 0;
    if (context) stack[depth++] = context;
}
void *gpu_driver_primary(int device) { return &primary[device]; }

/* 0, or the result that this call fails with. */
static int call(void) {
    pthread_mutex_lock(&lock);
    int r = ++D.calls == D.fail_at ? D.fail_with : 0;
    pthread_mutex_unlock(&lock);
    return r;
}
static int wrong(void) {
    D.bad++;
    return EMU_INVALID_VALUE;
}
static Thing *find(int kind, const void *p, size_t bytes) {
    Thing *t = things;
    while (t && (t->kind != kind || (const char *)p < t->data ||
                 (const char *)p + bytes > t->data + t->bytes))
        t = t->next;
    return t;
}
static void *make(int kind, size_t bytes) {
    Thing *t = malloc(sizeof *t);
    void *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!t || !data) abort();
    memset(data, 0xcc, bytes < 1 << 16 ? bytes : 1 << 16);
    pthread_mutex_lock(&lock);
    *t = (Thing){things, kind, bytes, data};
    things = t;
    D.alive++;
    if (kind == MEMORY) D.room -= (int64_t)bytes;
    pthread_mutex_unlock(&lock);
    return data;
}
static int drop(int kind, const void *p) {
    int r = EMU_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (Thing **at = &things; *at; at = &(*at)->next) {
        Thing *t = *at;
        if (t->kind != kind || t->data != p) continue;
        *at = t->next;
        if (kind == MEMORY) D.room += (int64_t)t->bytes;
        free(t->data);
        free(t);
        D.alive--;
        r = 0;
        break;
    }
    if (r || !depth) D.bad++;
    pthread_mutex_unlock(&lock);
    return r;
}
/* Device memory of so many bytes is there, a context is current, and the stream is one. */
static int check(uint64_t p, size_t bytes, void *stream) {
    pthread_mutex_lock(&lock);
    int good = depth && (!p || find(MEMORY, (void *)(uintptr_t)p, bytes)) &&
               (!stream || find(STREAM, stream, 0));
    pthread_mutex_unlock(&lock);
    D.last_stream = stream;
    return good ? 0 : wrong();
}
static int forbidden(void);
static int made(int kind, void **to, size_t bytes) {
    int r = kind == GRAPH ? 0 : forbidden();
    if (!r) r = call();
    if (r) return r;
    if (!depth) return wrong();
    if (kind == MEMORY && (int64_t)bytes > D.room) return EMU_OUT_OF_MEMORY;
    *to = make(kind, bytes);
    return 0;
}

int emu_get_error_string(int error, const char **text) {
    *text = error == 1     ? "invalid argument"
            : error == 2   ? "out of memory"
            : error == 700 ? "an illegal memory access was encountered"
                           : "some error";
    return 0;
}
const char *emu_last_report(void) { return ""; }
int emu_init(unsigned flags) { return flags ? wrong() : call(); }
int emu_device_get_count(int *count) {
    *count = D.devices;
    return call();
}
int emu_device_get(int *device, int ordinal) {
    *device = ordinal;
    return ordinal >= 0 && ordinal < D.devices ? call() : wrong();
}
int emu_device_get_name(char *name, int size, int device) {
    strncpy(name, device ? "Second" : "First", (size_t)size);
    return call();
}
int emu_device_get_attribute(int *value, int attribute, int device) {
    static const int number[3][4] = {{16, 95, 12, 97}, {63, 10, 71, 74}, {16, 95, 12, 97}};
    const int *a = number[GPU_NAMES], r = call();
    if (r) return r;
    if (device < 0 || device >= D.devices) return wrong();
    *value = attribute == a[0]   ? D.processors
             : attribute == a[1] ? D.cooperative
             : attribute == a[2] ? 65536
             : attribute == a[3] ? D.shared
             : attribute == 75   ? D.capability / 10
             : attribute == 76   ? D.capability % 10
                                 : wrong();
    return 0;
}
int emu_device_primary_ctx_retain(void **context, int device) {
    int r = call();
    if (r) return r;
    retained[device]++;
    D.alive++;
    *context = &primary[device];
    return 0;
}
int emu_device_primary_ctx_release(int device) {
    if (retained[device] <= 0) return wrong();
    retained[device]--;
    D.alive--;
    return 0;
}
int emu_ctx_get_current(void **context) {
    *context = depth ? stack[depth - 1] : NULL;
    return call();
}
int emu_ctx_push_current(void *context) {
    int r = call();
    if (r) return r;
    if (!context || depth == 16) return wrong();
    stack[depth++] = context;
    D.alive++;
    return 0;
}
int emu_ctx_pop_current(void **context) {
    if (!depth) return wrong();
    *context = stack[--depth];
    D.alive--;
    return 0;
}
int emu_ctx_get_device(int *device) {
    if (!depth) return wrong();
    char *at = stack[depth - 1];
    *device = at >= primary && at < primary + 8 ? (int)(at - primary)
                                                : 1; /* another one is on the second */
    return call();
}
int emu_module_load_data(void **module, const void *image) {
    return image ? made(MODULE, module, 1) : wrong();
}
int emu_module_unload(void *module) { return drop(MODULE, module); }
int emu_module_get_function(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(name, "braid_kernel") ? wrong() : call();
}
int emu_func_get_attribute(int *value, int attribute, void *function) {
    (void)function;
    *value = attribute == 0 ? 1024 : attribute == 4 ? 40 : 0;
    return attribute == 0 || attribute == 1 || attribute == 4 ? call() : wrong();
}
int emu_func_set_attribute(void *function, int attribute, int value) {
    (void)function;
    return attribute != 8 || value > D.shared ? wrong() : call();
}
int emu_occupancy_max_active_blocks(int *blocks, void *function, int threads, size_t shared) {
    *blocks = D.blocks;
    return !function || threads < 1 || (int64_t)shared > D.shared ? wrong() : call();
}
int emu_mem_alloc(uint64_t *address, size_t bytes) {
    void *p;
    int r = bytes ? made(MEMORY, &p, bytes) : wrong();
    if (!r) *address = (uintptr_t)p;
    return r;
}
int emu_mem_free(uint64_t address) { return drop(MEMORY, (void *)(uintptr_t)address); }
int emu_mem_host_alloc(void **memory, size_t bytes, unsigned flags) {
    return flags || !bytes ? wrong() : made(HOST, memory, bytes);
}
int emu_mem_free_host(void *memory) { return drop(HOST, memory); }
/* ---- graphs: an allocation that begins with how many steps follow ---------------------------- */
#define STEPS 32
typedef struct Graph {
    int n;
    GpuStep step[STEPS];
} Graph;
static Graph *capturing;
static void *captured;
static int strict;

int gpu_driver_step(void *stream, const GpuStep *step) {
    if (!capturing || stream != captured) return step->run(step->data);
    if (capturing->n == STEPS) abort();
    capturing->step[capturing->n++] = *step;
    return 0;
}
int emu_stream_is_capturing(void *stream, int *status) {
    *status = capturing && stream == captured;
    return check(0, 0, stream) ? 1 : call();
}
/* Whether the call is forbidden while any stream is captured in mode 0. */
static int forbidden(void) { return capturing && strict ? wrong() : 0; }
int emu_stream_begin_capture(void *stream, int mode) {
    void *graph;
    if (D.no_capture) return 801;
    if (!stream || (mode != 2 && mode != 0) || capturing) return wrong();
    strict = mode == 0;
    int r = made(GRAPH, &graph, sizeof(Graph));
    if (r) return r;
    capturing = graph;
    capturing->n = 0;
    captured = stream;
    return 0;
}
int emu_stream_end_capture(void *stream, void **graph) {
    if (!capturing || stream != captured) return wrong();
    int r = call();
    if (r) drop(GRAPH, capturing);
    *graph = r ? NULL : capturing;
    capturing = NULL;
    return r;
}
int emu_graph_instantiate(void **exec, void *graph, unsigned long long flags) {
    if (flags || !find(GRAPH, graph, 0)) return wrong();
    int r = made(GRAPH, exec, sizeof(Graph));
    if (!r) memcpy(*exec, graph, sizeof(Graph));
    D.graphs += !r;
    return r;
}
int emu_graph_launch(void *exec, void *stream) {
    int r = call();
    if (r) return r;
    if (check(0, 0, stream) || !find(GRAPH, exec, 0) || (capturing && stream == captured))
        return wrong();
    const Graph *g = exec;
    D.graph_launches++;
    for (int i = 0; i < g->n && !r; i++) r = g->step[i].run(g->step[i].data);
    return r;
}
int emu_graph_exec_destroy(void *exec) { return drop(GRAPH, exec); }
int emu_graph_destroy(void *graph) { return drop(GRAPH, graph); }

int gpu_driver_call(void) { return call(); }
int gpu_driver_alive(int change) {
    D.alive += change;
    return 0;
}
int gpu_driver_memory(const void *p, size_t bytes) { return find(MEMORY, p, bytes) != NULL; }

/* A copy, or a fill with `value` where `from` is NULL, that is done or kept in a graph. */
typedef struct Move {
    void *to;
    const void *from;
    size_t bytes;
    int value;
} Move;
static int move(const void *data) {
    Move m;
    memcpy(&m, data, sizeof m);
    if (m.from)
        memcpy(m.to, m.from, m.bytes);
    else
        memset(m.to, m.value, m.bytes);
    return 0;
}
/* A graph must not keep memory of the host that is not the driver's. */
static int enqueue(void *stream, Move m, const void *host) {
    GpuStep step = {.run = move};
    if (capturing && stream == captured && host && !find(HOST, host, m.bytes)) return wrong();
    memcpy(step.data, &m, sizeof m);
    return gpu_driver_step(stream, &step);
}
int emu_memcpy_htod_async(uint64_t to, const void *from, size_t bytes, void *stream) {
    int r = check(to, bytes, stream);
    if (!r) r = call();
    if (!r) r = enqueue(stream, (Move){(void *)(uintptr_t)to, from, bytes, 0}, from);
    D.copies++;
    return r;
}
int emu_memcpy_dtoh_async(void *to, uint64_t from, size_t bytes, void *stream) {
    int r = check(from, bytes, stream);
    if (!r) r = call();
    if (!r) r = enqueue(stream, (Move){to, (void *)(uintptr_t)from, bytes, 0}, to);
    D.copies++;
    return r;
}
int emu_memcpy_dtod_async(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    int r = check(from, bytes, stream);
    if (!r) r = check(to, bytes, stream);
    if (!r) r = call();
    if (!r)
        r = enqueue(stream, (Move){(void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes, 0}, NULL);
    D.copies++;
    return r;
}
int emu_memset_d8_async(uint64_t to, unsigned char value, size_t count, void *stream) {
    int r = check(to, count, stream);
    if (!r) r = call();
    if (!r) r = enqueue(stream, (Move){(void *)(uintptr_t)to, NULL, count, value}, NULL);
    D.fills++;
    return r;
}
int emu_stream_create(void **stream, unsigned flags) {
    return flags == 1 ? made(STREAM, stream, 1) : wrong();
}
int emu_stream_destroy(void *stream) { return drop(STREAM, stream); }
int emu_stream_synchronize(void *stream) {
    D.waits++;
    return check(0, 0, stream) || forbidden() ? 1 : call();
}
int emu_stream_wait_event(void *stream, void *event, unsigned flags) {
    return check(0, 0, stream) || flags || !find(EVENT, event, 0) ? wrong() : call();
}
int emu_event_create(void **event, unsigned flags) {
    return flags == 2 ? made(EVENT, event, 1) : wrong();
}
int emu_event_destroy(void *event) { return drop(EVENT, event); }
int emu_event_record(void *event, void *stream) {
    return check(0, 0, stream) || !find(EVENT, event, 0) || forbidden() ? wrong() : call();
}
int emu_event_synchronize(void *event) {
    D.waits++;
    return !find(EVENT, event, 0) || forbidden() ? wrong() : call();
}
int emu_event_query(void *event) {
    int r = find(EVENT, event, 0) && !forbidden() ? call() : wrong();
    return r ? r : D.busy ? 600 : 0;
}
/* Blocks of a cluster, when c is a configuration as it should be; else 0. */
static int cluster_of(const emu_launch_config *c) {
    int n = 0, cooperative = 0;
    for (unsigned i = 0; i < c->attributes; i++) {
        const emu_launch_attribute *a = &c->attribute[i];
        if (a->id == EMU_LAUNCH_COOPERATIVE) cooperative = a->value.cooperative;
        if (a->id == EMU_LAUNCH_CLUSTER_DIMENSION && a->value.cluster.y * a->value.cluster.z == 1)
            n = (int)a->value.cluster.x;
    }
    return cooperative && n > 0 && c->grid_x % (unsigned)n == 0 ? n : 0;
}
int emu_occupancy_max_active_clusters(int *clusters, void *function, const void *config) {
    const emu_launch_config *c = config;
    const int n = cluster_of(c);
    if (n) *clusters = D.blocks * D.processors / n;
    return !function || !n || (int)c->shared > D.shared ? wrong() : call();
}
int emu_launch_kernel_ex(const void *config, void *function, void **params, void **extra) {
    const emu_launch_config *c = config;
    const int n = cluster_of(c);
    D.cluster = n;
    if (!n || extra) return wrong();
    return emu_launch_cooperative_kernel(function, c->grid_x, c->grid_y, c->grid_z, c->block_x,
                                         c->block_y, c->block_z, c->shared, c->stream, params);
}
typedef struct Launch {
    void *argument;
    int grid;
} Launch;
static int launch(const void *data) {
    Launch l;
    memcpy(&l, data, sizeof l);
    return D.kernel(l.argument, l.grid);
}
int emu_launch_cooperative_kernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y, unsigned block_z,
                                  unsigned shared, void *stream, void **params) {
    int r = call();
    if (r) return r;
    if (check(0, 0, stream) || !find(MODULE, function, 0) ||
        grid_y * grid_z * block_y * block_z != 1 || !block_x || (int)shared > D.shared)
        return wrong();
    if ((int)grid_x > D.blocks * D.processors) return EMU_COOPERATIVE_TOO_LARGE;
    D.launches++;
    if (!D.kernel) return EMU_LAUNCH_FAILED;
    GpuStep step = {.run = launch};
    Launch l = {.grid = (int)grid_x};
    memcpy(&l.argument, params[0], sizeof l.argument);
    memcpy(step.data, &l, sizeof l);
    return gpu_driver_step(stream, &step);
}

int emu_none(int device, unsigned *flags, int *active);
int emu_none(int device, unsigned *flags, int *active) { /* the state of a device's own context */
    *flags = 0;
    *active = retained[device] > 0;
    return call();
}

#if GPU_NAMES < 2
#include "codegen/text/gpu/calls.inc"
#define GPU_TEXT(x) #x
#define GPU_EXPORT(name, parameters, emulator)                                                     \
    __attribute__((visibility("default"))) int name parameters                                     \
        __attribute__((alias(GPU_TEXT(emulator))));
#if GPU_NAMES == 0
#define GPU_CALL(field, parameters, cuda, hip, emulator) GPU_EXPORT(cuda, parameters, emulator)
#else
#define GPU_CALL(field, parameters, cuda, hip, emulator) GPU_EXPORT(hip, parameters, emulator)
#endif
BK_DRIVER(GPU_CALL)
BK_GRAPH(GPU_CALL)
#endif
#if GPU_NAMES == 1
int hipGetDevicePropertiesR0600(void *properties, int device);
int hipGetDevicePropertiesR0600(void *properties, int device) {
    (void)device;
    strcpy((char *)properties + 1160, D.arch);
    return call();
}
#endif
