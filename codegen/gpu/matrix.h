/* matrix.h: products by the matrix units of a warp (after dots.h).
 *
 * bk_matrix_f16, _bf16, _tf32(c, a, b): adds 16 x BK_MATRIX_ROWS sums of products to those that the
 * warp's lanes have in c, four each. Operands are lines of 64 bytes: 16 of a (columns),
 * BK_MATRIX_ROWS of b (rows). Each lane has 16 bytes of a line of b, and of BK_MATRIX_A lines of a,
 * eight lines apart; in which order the lanes' bytes are multiplied does not matter, as it is the
 * same for a and b. All lanes of the warp call it. */
#ifndef BK_MATRIX_H
#define BK_MATRIX_H

#if BK_WARP == 32
#define BK_MATRIX_ROWS 8
#define BK_MATRIX_A 2
/* A lane's line of a and of b; which 16 bytes of it. Row and column of its sum i. */
static __device__ __forceinline__ int bk_matrix_line(void) { return bk_lane() / 4; }
static __device__ __forceinline__ int bk_matrix_part(void) { return bk_lane() % 4; }
static __device__ __forceinline__ int bk_matrix_row(int i) { return bk_lane() % 4 * 2 + i % 2; }
static __device__ __forceinline__ int bk_matrix_column(int i) { return bk_lane() / 4 + i / 2 * 8; }
#else
#define BK_MATRIX_ROWS 16
#define BK_MATRIX_A 1
static __device__ __forceinline__ int bk_matrix_line(void) { return bk_lane() % 16; }
static __device__ __forceinline__ int bk_matrix_part(void) { return bk_lane() / 16; }
static __device__ __forceinline__ int bk_matrix_row(int i) { return (void)i, bk_lane() % 16; }
static __device__ __forceinline__ int bk_matrix_column(int i) { return bk_lane() / 16 * 4 + i; }
#endif

#if defined BRAID_EMULATED
#define BK_MATRIX(TYPE)                                                                            \
    static __device__ __forceinline__ void bk_matrix_##TYPE(float *c, const uint4 *a,              \
                                                            const uint4 &b) {                      \
        emu_matrix_##TYPE(c, (const unsigned *)a, BK_MATRIX_A, (const unsigned *)&b);              \
    }
BK_MATRIX(f16)
BK_MATRIX(bf16)
BK_MATRIX(tf32)
#elif defined __CUDA_ARCH__
/* By instructions that multiply 32 bytes of each line. */
#define BK_MATRIX(TYPE, SHAPE)                                                                     \
    static __device__ __forceinline__ void bk_multiply_##TYPE(                                     \
        float *c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {  \
        asm("mma.sync.aligned." SHAPE ".row.col.f32." #TYPE "." #TYPE                              \
            ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                 \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                       \
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                               \
    }
#define BK_MATRIX_LINE(TYPE)                                                                       \
    static __device__ __forceinline__ void bk_matrix_##TYPE(float *c, const uint4 *a,              \
                                                            const uint4 &b) {                      \
        bk_multiply_##TYPE(c, a[0].x, a[1].x, a[0].y, a[1].y, b.x, b.y);                           \
        bk_multiply_##TYPE(c, a[0].z, a[1].z, a[0].w, a[1].w, b.z, b.w);                           \
    }
#if __CUDA_ARCH__ >= 800
BK_MATRIX(f16, "m16n8k16")
BK_MATRIX(bf16, "m16n8k16")
BK_MATRIX(tf32, "m16n8k8")
BK_MATRIX_LINE(bf16)
BK_MATRIX_LINE(tf32)
#else /* half as many steps at once */
static __device__ __forceinline__ void bk_multiply_f16(float *c, unsigned a0, unsigned a1,
                                                       unsigned a2, unsigned a3, unsigned b0,
                                                       unsigned b1) {
#define BK_HALF(A0, A1, B)                                                                         \
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, " \
        "%1, %2, %3};"                                                                             \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                           \
        : "r"(A0), "r"(A1), "r"(B))
    BK_HALF(a0, a1, b0);
    BK_HALF(a2, a3, b1);
#undef BK_HALF
}
#endif
BK_MATRIX_LINE(f16)
#elif defined __gfx908__ || defined __gfx90a__
typedef float bk_matrix_c __attribute__((ext_vector_type(4)));
/* The T with the bits of two words. */
template <typename T> static __device__ __forceinline__ T bk_matrix_bits(unsigned x, unsigned y) {
    const unsigned words[2] = {x, y};
    T t;
    memcpy(&t, words, sizeof t);
    return t;
}
#define BK_MATRIX(TYPE, VECTOR, MULTIPLY)                                                          \
    static __device__ __forceinline__ void bk_matrix_##TYPE(float *c, const uint4 *a,              \
                                                            const uint4 &b) {                      \
        bk_matrix_c sum = {c[0], c[1], c[2], c[3]};                                                \
        MULTIPLY(VECTOR, a->x, a->y, b.x, b.y)                                                     \
        MULTIPLY(VECTOR, a->z, a->w, b.z, b.w)                                                     \
        for (int i = 0; i < 4; i++) c[i] = sum[i];                                                 \
    }
typedef _Float16 bk_matrix_half __attribute__((ext_vector_type(4)));
#define BK_MULTIPLY_F16(V, a0, a1, b0, b1)                                                         \
    sum = __builtin_amdgcn_mfma_f32_16x16x16f16(bk_matrix_bits<V>(a0, a1),                         \
                                                bk_matrix_bits<V>(b0, b1), sum, 0, 0, 0);
BK_MATRIX(f16, bk_matrix_half, BK_MULTIPLY_F16)
#ifdef __gfx90a__
typedef short bk_matrix_brain __attribute__((ext_vector_type(4)));
#define BK_MULTIPLY_BF16(V, a0, a1, b0, b1)                                                        \
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(bk_matrix_bits<V>(a0, a1),                     \
                                                    bk_matrix_bits<V>(b0, b1), sum, 0, 0, 0);
#else /* half as many steps at once */
typedef short bk_matrix_brain __attribute__((ext_vector_type(2)));
#define BK_MULTIPLY_BF16(V, a0, a1, b0, b1)                                                        \
    sum = __builtin_amdgcn_mfma_f32_16x16x8bf16(bk_matrix_bits<V>(a0, 0),                          \
                                                bk_matrix_bits<V>(b0, 0), sum, 0, 0, 0);           \
    sum = __builtin_amdgcn_mfma_f32_16x16x8bf16(bk_matrix_bits<V>(a1, 0),                          \
                                                bk_matrix_bits<V>(b1, 0), sum, 0, 0, 0);
#endif
BK_MATRIX(bf16, bk_matrix_brain, BK_MULTIPLY_BF16)
#endif

/* Rounds to the 10 bits that the matrix units take. */
static __device__ __forceinline__ void bk_tf32(float *x) {
    const uint32_t u = bk_asu(*x);
    if ((u & 0x7f800000u) != 0x7f800000u) *x = bk_asf((u + 0x1000u) & 0xffffe000u);
}
static __device__ __forceinline__ void bk_tf32(float4 *x) {
    bk_tf32(&x->x), bk_tf32(&x->y), bk_tf32(&x->z), bk_tf32(&x->w);
}
#endif
