/* load_library.c: opens libraries made by `braid compile`. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/runtime.h"

/* Puts an input or output of the table into the public form. The strings stay the library's. */
static void library_io(const braid_io_v1 *from, braid_io *io) {
    bool optional = from->kind >= BRAID_IO_OPTIONAL_TENSOR;
    bool sequence = from->kind == BRAID_IO_SEQUENCE || from->kind == BRAID_IO_OPTIONAL_SEQUENCE;
    io->name = from->name;
    io->element = sequence ? BRAID_SEQUENCE : BRAID_TENSOR;
    io->kind = optional ? BRAID_OPTIONAL : io->element;
    io->dtype = (braid_dtype)from->dtype;
    io->rank = from->rank;
    io->dim = from->dim;
    io->dim_name = from->dim_name;
}

/* dlopen of a path with a slash. A name that is loaded already stands for the file that it was
 * then. If it has been written anew since, it is opened under another name for the same place, in
 * which slashes and dots write down the file's number; dlopen itself knows whether it is the same
 * file. */
static void *open_file(const char *path) {
    const int how = RTLD_NOW | RTLD_LOCAL;
    struct stat file;
    void *loaded = dlopen(path, how | RTLD_NOLOAD), *handle = NULL;
    if (!loaded) return dlopen(path, how);
    const char *base = strrchr(path, '/') + 1;
    char *name = stat(path, &file) == 0 ? malloc(strlen(path) + 2 * 64 + 1) : NULL;
    if (name) {
        char *end = mempcpy(name, path, (size_t)(base - path));
        for (uint64_t bits = (uint64_t)file.st_ino; bits; bits >>= 1)
            end = stpcpy(end, bits & 1 ? "./" : "/");
        strcpy(end, base);
        handle = dlopen(name, how);
        free(name);
    }
    dlclose(loaded);
    return handle;
}

braid_status rt_open_library(const char *path, struct braid_model *m, braid_error *e) {
    /* dlopen would search the system's folders for a name without a slash. */
    char *full = rt_text(strchr(path, '/') ? "%s" : "./%s", path);
    if (!full) return rt_fail(e, BRAID_MEMORY, "out of memory");
    m->handle = open_file(full);
    free(full);
    if (!m->handle) {
        const char *why = dlerror();
        return rt_fail(e, BRAID_IO, "%s: cannot be opened as a library: %s", path,
                       why ? why : "no reason given");
    }
    const braid_model_v1 *(*get)(void);
    *(void **)&get = dlsym(m->handle, "braid_model");
    if (!get) return rt_fail(e, BRAID_INPUT, "%s: not a library made by braid compile", path);
    const braid_model_v1 *lib = get();
    /* Old libraries, from before GPUs, have a shorter table. */
    if (!lib || lib->abi_version != BRAID_ABI_VERSION ||
        lib->struct_size < offsetof(braid_model_v1, device_type))
        return rt_fail(e, BRAID_UNSUPPORTED, "%s: made for version %u of the interface, not %d",
                       path, lib ? lib->abi_version : 0, BRAID_ABI_VERSION);
    memcpy(&m->table, lib, lib->struct_size < sizeof m->table ? lib->struct_size : sizeof m->table);
    if (!m->table.device_type) m->table.device_type = BRAID_DEVICE_CPU;
    m->lib = lib = &m->table;
    m->name = lib->name;
    m->target = lib->target;
    m->nin = lib->ninput;
    m->nout = lib->noutput;
    m->ncarry = lib->ncarry;
    m->carry_input = lib->carry_input;
    m->carry_output = lib->carry_output;
    m->in = calloc((size_t)m->nin + 1, sizeof *m->in);
    m->out = calloc((size_t)m->nout + 1, sizeof *m->out);
    if (!m->in || !m->out) return rt_fail(e, BRAID_MEMORY, "out of memory");
    for (int i = 0; i < m->nin; i++) library_io(&lib->input[i], &m->in[i]);
    for (int i = 0; i < m->nout; i++) library_io(&lib->output[i], &m->out[i]);
    return BRAID_OK;
}

bool rt_is_library(const char *path) {
    static const char elf[4] = {0x7f, 'E', 'L', 'F'};
    char magic[4] = "";
    FILE *f = fopen(path, "rbe");
    bool library = f && fread(magic, 1, 4, f) == 4 && memcmp(magic, elf, 4) == 0;
    if (f) fclose(f);
    return library;
}
