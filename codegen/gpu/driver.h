/* driver.h: the GPU driver of the host's text: entry points that are looked up when the first
 * session begins, so that the library loads where there is no driver.
 *
 * Pasted after entry.h and calls.h. BK_BACKEND is the row of bk_backends: 0 CUDA, 1 HIP, 2 the
 * emulator, whose functions (codegen/emulate/driver.h, pasted before) are linked into the library.
 * Backends differ by that row and by the names in BK_DRIVER; handles are pointers, device addresses
 * uint64_t, and results int, 0 for success, everywhere: that is how the drivers' own types are
 * passed.
 */
#include <dlfcn.h>
#include <pthread.h>

/* Names that a driver may lack: what is for clusters, too, where there are none. */
#if BK_CLUSTER > 1
#define BK_OPTIONAL " "
#else
#define BK_OPTIONAL                                                                                \
    " hipDrvGetErrorString hip_none hip_no_launch hip_no_clusters cuLaunchKernelEx "               \
    "cuOccupancyMaxActiveClusters "
#endif

typedef struct bk_driver {
#define BK_FIELD(field, parameters, cuda, hip, emulator) int(*field) parameters;
    BK_DRIVER(BK_FIELD)
#undef BK_FIELD
    /* HIP: a device's properties, whose layout depends on the version; the name of its architecture
     * lies at arch_at. And the text of an error, in versions without error_text. */
    int (*properties)(void *properties, int device);
    size_t arch_at;
    const char *(*error_string)(int error);
} bk_driver;

/* Numbers of attributes and flags: CUDA's are the emulator's too; those of functions, streams,
 * events and errors are the same everywhere. */
typedef struct bk_backend {
    const char *name;       /* of the driver */
    const char *library[5]; /* the first that can be opened */
    int multiprocessors, cooperative, registers,
        shared; /* device attributes; of a block are registers, shared */
} bk_backend;

static const bk_backend bk_backends[] = {
    {"CUDA", {"libcuda.so.1", "libcuda.so"}, 16, 95, 12, 97},
    {"HIP",
     {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
     63,
     10,
     71,
     74},
    {"emulated", {NULL}, 16, 95, 12, 97},
};
static const bk_backend *const bk_backend_now = &bk_backends[BK_BACKEND];
enum {
    BK_CC_MAJOR = 75, /* device attributes */
    BK_CC_MINOR = 76,
    BK_FUNCTION_THREADS = 0, /* attributes of functions */
    BK_FUNCTION_SHARED = 1,
    BK_FUNCTION_REGISTERS = 4,
    BK_FUNCTION_DYNAMIC = 8,
    BK_STREAM_NON_BLOCKING = 1,
    BK_EVENT_UNTIMED = 2,
    BK_E_MEMORY = 2, /* results */
    BK_E_NO_DEVICE = 100,
    BK_E_NO_BINARY = 209,
    BK_E_NOT_READY = 600
};

/* Set once, under bk_lock. */
static pthread_mutex_t bk_lock = PTHREAD_MUTEX_INITIALIZER;
static const bk_driver *bk_driver_open; /* NULL: not yet */

#if BK_BACKEND == 2
static int bk_driver_find(bk_driver *d, char *message, size_t size) {
    (void)message, (void)size;
#define emu_none NULL
#define BK_FIELD(field, parameters, cuda, hip, emulator) .field = emulator,
    *d = (bk_driver){BK_DRIVER(BK_FIELD)};
#undef BK_FIELD
    return BK_ST_OK;
}
#else
/* The library of one of these names: the one that the process already has, else the first that
 * there is. */
static void *bk_open(const char *const name[5]) {
    void *p = NULL;
    for (int load = 0; !p && load < 2; load++)
        for (int i = 0; !p && i < 5 && name[i]; i++)
            p = dlopen(name[i], RTLD_NOW | RTLD_LOCAL | (load ? 0 : RTLD_NOLOAD));
    return p;
}

static int bk_driver_find(bk_driver *d, char *message, size_t size) {
    static const struct {
        size_t at;
        const char *name[2];
    } row[] = {
#define BK_FIELD(field, parameters, cuda, hip, emulator)                                           \
    {offsetof(bk_driver, field), {#cuda, #hip}},
        BK_DRIVER(BK_FIELD)
#undef BK_FIELD
    };
    const bk_backend *b = bk_backend_now;
    const int hip = BK_BACKEND == 1;
    void *library = bk_open(b->library);
    memset(d, 0, sizeof *d);
    if (!library) {
        bk_say(message, size, "no %s driver on this machine (%s)", b->name, b->library[0]);
        return BK_ST_IO;
    }
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const char *name = row[i].name[hip];
        char key[80];
        void *p = dlsym(library, name);
        snprintf(key, sizeof key, " %s ", name);
        if (!p && !strstr(BK_OPTIONAL, key)) {
            bk_say(message, size, "the %s driver is too old: it has no %s", b->name, name);
            dlclose(library);
            return BK_ST_IO;
        }
        memcpy((char *)d + row[i].at, &p, sizeof p);
    }
    if (hip) {
        static const struct {
            const char *name;
            size_t at;
        } properties[] = {{"hipGetDevicePropertiesR0600", 1160}, {"hipGetDeviceProperties", 396}};
        for (int i = 0; i < 2 && !d->properties; i++) {
            *(void **)&d->properties = dlsym(library, properties[i].name);
            d->arch_at = properties[i].at;
        }
        *(void **)&d->error_string = dlsym(library, "hipGetErrorString");
    }
    return BK_ST_OK; /* the library stays open: drivers cannot be closed */
}
#endif

/* What the driver says of a result that is not 0. */
static const char *bk_error_text(const bk_driver *d, int error) {
    const char *text = NULL;
    if (d->error_text) d->error_text(error, &text);
    if (!text && d->error_string) text = d->error_string(error);
    return text ? text : "unknown error";
}

/* Opens the driver when it is not; bk_lock is held. */
static int bk_driver_begin(char *message, size_t size) {
    static bk_driver d;
    if (bk_driver_open) return BK_ST_OK;
    int st = bk_driver_find(&d, message, size);
    if (st) return st;
    int r = d.init(0);
    if (r) {
        bk_say(message, size, "the %s driver cannot be used: %s", bk_backend_now->name,
               bk_error_text(&d, r));
        return BK_ST_IO;
    }
    bk_driver_open = &d;
    return BK_ST_OK;
}
