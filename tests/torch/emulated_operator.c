/* emulated_operator.c: calls the operator of a library for an emulated GPU as PyTorch would, with
 * tensors in the emulator's memory.
 *
 *     emulated_operator LIBRARY    add of models_of_operators.py, with --torch t::add
 */
#include "fake_torch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int failed;
#define CHECK(e) ((e) ? (void)0 : (void)(failed++, printf("FAIL line %d: %s\n", __LINE__, #e)))

/* Calls it with tensors that it takes; whether it threw. */
static int call(fake_tensor *x, fake_tensor *y, fake_tensor **out) {
    uint64_t stack[2] = {(uintptr_t)x, (uintptr_t)y};
    out[0] = out[1] = NULL;
    if (setjmp(fake.thrown)) return 1;
    fake.kernel(stack, 2, 2);
    for (int i = 0; i < 2; i++) out[i] = (fake_tensor *)(uintptr_t)stack[i];
    return 0;
}

static fake_tensor *tensor(int64_t rows, int turned, float first) {
    const int64_t size[] = {rows, 4}, dense[] = {4, 1}, columns[] = {1, rows};
    fake_tensor *t = fake_new(6, 1, 2, size, turned ? columns : dense);
    float v[64];
    for (int i = 0; i < rows * 4; i++) v[i] = first + (float)i;
    fake_set(t, v);
    return t;
}

int main(int argc, char **argv) {
    void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
    const braid_model_v1 *(*get)(void) = NULL;
    if (library) *(void **)&get = dlsym(library, "braid_model");
    if (!get || !fake.kernel) {
        printf("FAIL %s: %s\n", argc > 1 ? argv[1] : "", library ? "no operator" : dlerror());
        return 1;
    }
    fake.model = get();
    CHECK(!fake.model->session_new(NULL, &fake.session));
    CHECK(!strcmp(fake.space, "t") && !strcmp(fake.key, "CUDA"));
    CHECK(!strcmp(fake.schema, "add(Tensor x, Tensor x_in) -> (Tensor, Tensor)"));
    fake_tensor *out[2];
    float v[128];
    for (int round = 0; round < 6; round++) {
        const int64_t rows = 1 + round, n = 4 * rows;
        const int copies = fake.copies, turned = round % 2;
        CHECK(!call(tensor(rows, 0, 1), tensor(rows, turned, 100), out));
        CHECK(fake.copies == copies + turned);
        if (!out[0] || !out[1]) return 1;
        fake_get(out[0], v);
        for (int i = 0; i < n; i++) CHECK(v[i] == 101 + 2 * (float)i);
        CHECK(out[1]->size[0] == 2 * rows && out[1]->size[1] == 4);
        fake_get(out[1], v);
        for (int i = 0; i < 2 * n; i++)
            CHECK(v[i] == (i < n ? 1 + (float)i : (float)(100 + i - n)));
        for (int i = 0; i < 2; i++) {
            fake.model->memory_free(out[i]->memory);
            fake.alive--;
        }
    }
    CHECK(fake.streams == 6);
    fake_tensor *wrong = tensor(3, 0, 0);
    wrong->device = 0;
    CHECK(call(wrong, tensor(3, 0, 0), out));
    CHECK(strstr(fake.message, "input 'x' is not on the cuda"));
    wrong = tensor(3, 0, 0);
    wrong->dtype = 7;
    CHECK(call(tensor(3, 0, 0), wrong, out));
    CHECK(strstr(fake.message, "input 'in': its element type is not supported"));
    CHECK(call(tensor(3, 0, 0), tensor(2, 0, 0), out));
    CHECK(strstr(fake.message, "named n, has size 2"));
    fake_tensor *x = tensor(3, 0, 0), *y = tensor(3, 0, 0);
    fake.no_memory = 1;
    CHECK(call(x, y, out));
    CHECK(strstr(fake.message, "no memory for output"));
    CHECK(fake.alive == 0);
    fake.model->session_free(fake.session);
    printf("%s: %d failed\n", fake.model->target, failed);
    return failed != 0;
}
