/* SPDX-License-Identifier: Apache-2.0 */
/* matrix_tile.c - a product of a few rows and columns in vectors of ONNXC_LANES doubles; a part of ops_matrices.c. */

/* c [4, 8] += a [4, depth] * b [depth, 8], where rows of a and c are apart by `stride`. */
ONNXC_TILE_TARGET static void ONNXC_TYPED(onnxc_add_tile)(double *restrict c, const double *restrict a, int64_t stride,
                                                          const double *restrict b, int64_t depth) {
    typedef double lanes __attribute__((vector_size(8 * ONNXC_LANES)));
    enum { COLUMNS = ONNXC_TILE_COLUMNS / ONNXC_LANES };
    lanes sums[ONNXC_TILE_ROWS][COLUMNS];
#pragma GCC unroll 4
    for (int i = 0; i < ONNXC_TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < COLUMNS; j++) sums[i][j] = *(const lanes *)(c + i * stride + j * ONNXC_LANES);
    for (int64_t k = 0; k < depth; k++)
#pragma GCC unroll 4
        for (int i = 0; i < ONNXC_TILE_ROWS; i++)
#pragma GCC unroll 4
            for (int j = 0; j < COLUMNS; j++)
                sums[i][j] += a[i * stride + k] * *(const lanes *)(b + k * ONNXC_TILE_COLUMNS + j * ONNXC_LANES);
#pragma GCC unroll 4
    for (int i = 0; i < ONNXC_TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < COLUMNS; j++) *(lanes *)(c + i * stride + j * ONNXC_LANES) = sums[i][j];
}
