/* winograd.h: the transforms of F(2 x 2, 3 x 3): four neighbouring sums over 3 x 3 windows from 16
 * products.
 *
 * With d the 4 x 4 elements that the four windows cover, the products are of B'dB and the
 * transformed weights, and A'mA are the sums; each for many channels at once. */

/* Elements (y, x) to (y + 3, x + 3) of `in`, n channels each (whole vectors), to v, v + step, ….
 * Rows beyond `last_y` and columns beyond `last_x` do not exist; sums that depend on them are not
 * wanted. */
BK_KERNEL void bx_winograd_in(float *restrict v, int64_t step, const float *restrict in, int64_t y,
                              int64_t x, int64_t last_y, int64_t last_x, int64_t y_step,
                              int64_t x_step, int64_t n) {
    const float *p[4];
    int64_t at[4];
    for (int i = 0; i < 4; i++) {
        p[i] = in + bk_mini(y + i, last_y) * y_step;
        at[i] = bk_mini(x + i, last_x) * x_step;
    }
    for (int64_t c = 0; c < n; c += BK_VEC) {
        bk_vf t[4][4];
        for (int j = 0; j < 4; j++) {
            const bk_vf d0 = bk_loadv(p[0] + at[j] + c), d1 = bk_loadv(p[1] + at[j] + c);
            const bk_vf d2 = bk_loadv(p[2] + at[j] + c), d3 = bk_loadv(p[3] + at[j] + c);
            t[0][j] = d0 - d2;
            t[1][j] = d1 + d2;
            t[2][j] = d2 - d1;
            t[3][j] = d1 - d3;
        }
        for (int i = 0; i < 4; i++) {
            bk_storev(v + (4 * i + 0) * step + c, t[i][0] - t[i][2]);
            bk_storev(v + (4 * i + 1) * step + c, t[i][1] + t[i][2]);
            bk_storev(v + (4 * i + 2) * step + c, t[i][2] - t[i][1]);
            bk_storev(v + (4 * i + 3) * step + c, t[i][1] - t[i][3]);
        }
    }
}

/* The four sums of n lanes (whole vectors), row by row, from the products at m, m + step, …. */
BK_KERNEL void bx_winograd_out(float *restrict s, const float *restrict m, int64_t step,
                               int64_t n) {
    for (int64_t c = 0; c < n; c += BK_VEC) {
        bk_vf t[2][4];
        for (int j = 0; j < 4; j++) {
            const bk_vf m0 = bk_loadv(m + j * step + c), m1 = bk_loadv(m + (4 + j) * step + c);
            const bk_vf m2 = bk_loadv(m + (8 + j) * step + c),
                        m3 = bk_loadv(m + (12 + j) * step + c);
            t[0][j] = m0 + m1 + m2;
            t[1][j] = m1 - m2 - m3;
        }
        for (int i = 0; i < 2; i++) {
            bk_storev(s + 2 * i * n + c, t[i][0] + t[i][1] + t[i][2]);
            bk_storev(s + (2 * i + 1) * n + c, t[i][1] - t[i][2] - t[i][3]);
        }
    }
}

/* One of the 16 products at a time, for large weights that are read once: element i of the
 * transformed elements of `tiles` tiles, the first of which is tile `first` of rows of `across`
 * tiles from (y, x) on. */
BK_KERNEL void bx_winograd_in_one(float *restrict v, int i, const float *restrict in, int64_t first,
                                  int64_t tiles, int64_t across, int64_t y, int64_t x,
                                  int64_t last_y, int64_t last_x, int64_t y_step, int64_t x_step,
                                  int64_t n) {
    static const int8_t from[4] = {0, 1, 2, 1}, with[4] = {2, 2, 1, 3}, sign[4] = {-1, 1, -1, -1};
    const float sy = sign[i / 4], sx = sign[i % 4];
    for (int64_t t = first; t < first + tiles; t++, v += n) {
        const int64_t ty = y + t / across * 2, tx = x + t % across * 2;
        const float *a = in + bk_mini(ty + from[i / 4], last_y) * y_step,
                    *b = in + bk_mini(ty + with[i / 4], last_y) * y_step;
        const int64_t l = bk_mini(tx + from[i % 4], last_x) * x_step,
                      r = bk_mini(tx + with[i % 4], last_x) * x_step;
        for (int64_t c = 0; c < n; c += BK_VEC)
            bk_storev(v + c, (bk_loadv(a + l + c) + sy * bk_loadv(b + l + c)) +
                                 sx * (bk_loadv(a + r + c) + sy * bk_loadv(b + r + c)));
    }
}

/* Takes product i of `tiles` tiles, n lanes each, into their four sums. */
BK_KERNEL void bx_winograd_add(float *restrict s, int i, const float *restrict m, int64_t tiles,
                               int64_t n) {
    static const int8_t part[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};
    for (int q = 0; q < 4; q++) {
        const int k = part[q / 2][i / 4] * part[q % 2][i % 4];
        if (k == 0) continue;
        for (int64_t t = 0; t < tiles; t++) {
            float *restrict to = s + (4 * t + q) * n;
            for (int64_t c = 0; c < n; c += BK_VEC) {
                const bk_vf x = bk_loadv(m + t * n + c), old = bk_loadv(to + c);
                bk_storev(to + c, k > 0 ? old + x : old - x);
            }
        }
    }
}
