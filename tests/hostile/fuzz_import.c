/* fuzz_import.c: libFuzzer target: any bytes as a model. Build with -fsanitize=fuzzer. */
#include "frontend/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    Diag d = {0};
    jmp_buf jb;
    Arena *volatile a = arena_new(&d);
    d.top = &jb;
    if (setjmp(jb) == 0) {
        graph_import_memory(a, &d, bytes, n, "/nonexistent/model.onnx");
    } else {
        ASSERT(d.status != ST_OK && d.message[0]);
    }
    arena_free(a);
    return 0;
}
