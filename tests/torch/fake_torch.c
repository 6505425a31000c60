/* fake_torch.c: the entry points of PyTorch that an operator for a GPU calls, for
 * emulated_operator.c: a tensor is a record, and its memory is the emulator's. Built as
 * libtorch_cpu.so. */
#include "fake_torch.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_state fake;
enum { CPU = 0, CUDA = 1, FLOAT32 = 6 };

fake_tensor *fake_new(int dtype, int device, int64_t rank, const int64_t *size,
                      const int64_t *stride) {
    fake_tensor *t = calloc(1, sizeof *t);
    size_t span = 1;
    *t = (fake_tensor){.dtype = dtype, .device = device, .rank = rank};
    for (int64_t i = 0; i < rank; i++) {
        t->size[i] = size[i];
        t->stride[i] = stride[i];
        span += (size_t)(size[i] ? size[i] - 1 : 0) * (size_t)stride[i];
    }
    t->bytes = span * 4;
    if (fake.model->memory_new(fake.session, t->bytes, &t->memory, &t->data, fake.message, 1024))
        abort();
    fake.alive++;
    return t;
}
/* Element `at` of a tensor, in row-major order: its place in memory. */
static size_t place(const fake_tensor *t, int64_t at) {
    size_t p = 0;
    for (int64_t i = t->rank - 1; i >= 0; i--) {
        p += (size_t)(at % t->size[i]) * (size_t)t->stride[i];
        at /= t->size[i];
    }
    return p;
}
int64_t fake_count(const fake_tensor *t) {
    int64_t n = 1;
    for (int64_t i = 0; i < t->rank; i++) n *= t->size[i];
    return n;
}
static void copy(int way, void *to, const void *from, size_t bytes) {
    if (fake.model->memory_copy(fake.session, NULL, way | BRAID_COPY_WAIT, to, from, bytes,
                                fake.message, 1024))
        abort();
}
void fake_set(fake_tensor *t, const float *values) {
    for (int64_t i = 0; i < fake_count(t); i++)
        copy(BRAID_COPY_IN, (float *)t->data + place(t, i), &values[i], sizeof *values);
}
void fake_get(const fake_tensor *t, float *values) {
    for (int64_t i = 0; i < fake_count(t); i++)
        copy(BRAID_COPY_OUT, &values[i], (const float *)t->data + place(t, i), sizeof *values);
}

#define SHOWN __attribute__((visibility("default")))
SHOWN int32_t aoti_torch_device_type_cuda(void);
SHOWN int32_t aoti_torch_device_type_cuda(void) { return CUDA; }
SHOWN int32_t aoti_torch_dtype_float32(void);
SHOWN int32_t aoti_torch_dtype_float32(void) { return FLOAT32; }
#define CALL(name, ...)                                                                            \
    SHOWN int32_t name(__VA_ARGS__);                                                               \
    SHOWN int32_t name(__VA_ARGS__)
CALL(aoti_torch_library_init_fragment, const char *space, const char *file, uint32_t line,
     void **library) {
    (void)file, (void)line;
    snprintf(fake.space, sizeof fake.space, "%s", space);
    *library = &fake;
    return 0;
}
CALL(aoti_torch_library_init_impl, const char *space, const char *key, const char *file,
     uint32_t line, void **library) {
    (void)file, (void)line;
    snprintf(fake.key, sizeof fake.key, "%s", key);
    *library = &fake;
    return strcmp(space, fake.space) != 0;
}
CALL(aoti_torch_library_def, void *library, const char *schema) {
    snprintf(fake.schema, sizeof fake.schema, "%s", schema);
    return library != &fake;
}
CALL(aoti_torch_library_impl, void *library, const char *name,
     void (*kernel)(uint64_t *, uint64_t, uint64_t)) {
    (void)name;
    fake.kernel = kernel;
    return library != &fake;
}
CALL(aoti_torch_get_data_ptr, fake_tensor *t, void **to) { return *to = t->data, 0; }
CALL(aoti_torch_get_dim, fake_tensor *t, int64_t *to) { return *to = t->rank, 0; }
CALL(aoti_torch_get_sizes, fake_tensor *t, int64_t **to) { return *to = t->size, 0; }
CALL(aoti_torch_get_strides, fake_tensor *t, int64_t **to) { return *to = t->stride, 0; }
CALL(aoti_torch_get_dtype, fake_tensor *t, int32_t *to) { return *to = t->dtype, 0; }
CALL(aoti_torch_get_device_type, fake_tensor *t, int32_t *to) { return *to = t->device, 0; }
CALL(aoti_torch_get_device_index, fake_tensor *t, int32_t *to) { return (void)t, *to = 0, 0; }
CALL(aoti_torch_empty_strided, int64_t rank, const int64_t *size, const int64_t *stride,
     int32_t dtype, int32_t device, int32_t index, fake_tensor **to) {
    if (index || fake.no_memory) return 1;
    *to = fake_new(dtype, device, rank, size, stride);
    return 0;
}
CALL(aoti_torch_copy_, fake_tensor *to, fake_tensor *from, int32_t later) {
    (void)later;
    const int64_t n = fake_count(from);
    float *values = calloc((size_t)n + 1, sizeof *values);
    fake_get(from, values);
    fake_set(to, values);
    free(values);
    fake.copies++;
    return 0;
}
CALL(aoti_torch_delete_tensor_object, fake_tensor *t) {
    fake.model->memory_free(t->memory);
    free(t);
    fake.alive--;
    return 0;
}
CALL(aoti_torch_get_current_cuda_stream, int32_t index, void **to) {
    fake.streams++;
    *to = NULL;
    return index != 0;
}
SHOWN void aoti_torch_check(_Bool good, const char *f, const char *file, uint32_t line,
                            const char *text);
SHOWN void aoti_torch_check(_Bool good, const char *f, const char *file, uint32_t line,
                            const char *text) {
    (void)file, (void)line;
    if (good) return;
    snprintf(fake.message, sizeof fake.message, "%s: %s", f, text);
    longjmp(fake.thrown, 1);
}
