/* linear.h: dense linear algebra that is no tensor expression (after extern.h). */
#ifndef BX_LINEAR_H
#define BX_LINEAR_H

/* in: x [.., m, m], floating. out: [..], determinants by LU with partial pivoting in double. */
BX_FN int bx_det_plan(const bx_tensor *in, const int64_t *param, int64_t *sym, int64_t *bytes) {
    int64_t m = in[0].dim[in[0].rank - 1];
    (void)param, (void)sym;
    bytes[1] = m * m * (int64_t)sizeof(double);
    return 0;
}
BX_FN int bx_det(const bx_tensor *in, const int64_t *param, bx_tensor *out, void *scratch) {
    int64_t m = in[0].dim[in[0].rank - 1], batch = bx_count(&out[0]);
    double *a = (double *)scratch;
    (void)param;
    for (int64_t b = 0; b < batch; b++) {
        double det = 1;
        for (int64_t i = 0; i < m * m; i++) a[i] = bx_getf(&in[0], b * m * m + i);
        for (int64_t c = 0; c < m && det != 0; c++) {
            int64_t p = c;
            for (int64_t r = c + 1; r < m; r++)
                if (fabs(a[r * m + c]) > fabs(a[p * m + c])) p = r;
            if (p != c) {
                for (int64_t i = c; i < m; i++) {
                    double v = a[p * m + i];
                    a[p * m + i] = a[c * m + i];
                    a[c * m + i] = v;
                }
                det = -det;
            }
            det *= a[c * m + c];
            if (det == 0) break;
            for (int64_t r = c + 1; r < m; r++) {
                double f = a[r * m + c] / a[c * m + c];
                for (int64_t i = c + 1; i < m; i++) a[r * m + i] -= f * a[c * m + i];
            }
        }
        bx_setf(&out[0], b, det);
    }
    return 0;
}

#endif
