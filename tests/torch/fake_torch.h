/* fake_torch.h: what a program sees of fake_torch.c. */
#ifndef FAKE_TORCH_H
#define FAKE_TORCH_H

#include "braid_model.h"

#include <setjmp.h>

typedef struct fake_tensor {
    int32_t dtype, device;
    int64_t rank, size[8], stride[8];
    size_t bytes;
    void *memory, *data; /* of the library's emulator */
} fake_tensor;

typedef struct fake_state {
    const braid_model_v1 *model; /* whose memory tensors have, by a session of it */
    void *session;
    char space[64], key[64], schema[256], message[1100]; /* as registered; the last error */
    void (*kernel)(uint64_t *, uint64_t, uint64_t);
    jmp_buf thrown; /* where an error goes */
    int alive;      /* tensors that were made and not deleted */
    int copies, streams, no_memory;
} fake_state;

#define FAKE __attribute__((visibility("default")))
extern FAKE fake_state fake;
/* A float32 tensor's dtype is 6; device 1 is the GPU. */
FAKE fake_tensor *fake_new(int dtype, int device, int64_t rank, const int64_t *size,
                           const int64_t *stride);
FAKE int64_t fake_count(const fake_tensor *t);
FAKE void fake_set(fake_tensor *t, const float *values);
FAKE void fake_get(const fake_tensor *t, float *values);

#endif
