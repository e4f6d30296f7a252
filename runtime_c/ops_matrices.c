/* SPDX-License-Identifier: Apache-2.0 */
/* ops_matrices.c - determinants and inverses of matrices of any of the four common float types, as double.
 *
 * Columns are eliminated in place, above and below the diagonal, with the largest pivot: what was A is then its
 * inverse. Of many columns one half is eliminated and the other one brought up to date, by a product, then the other
 * way round ("Recursive Blocked Algorithms and Hybrid Data Structures for Dense Matrix Library Software", Elmroth et al.,
 * 2004): what is worked on fits some cache, whatever its size, and nearly all work is products. */

enum {
    ONNXC_TILE_ROWS = 4,     /* of a product ... */
    ONNXC_TILE_COLUMNS = 8,  /* ... in registers */
    ONNXC_DEPTH = 256,       /* that is added at a time: a strip of columns stays in the first cache */
    ONNXC_TALL = 64          /* rows by such depth stay in the second */
};

#define ONNXC_TYPED(name) name
#define ONNXC_TILE_TARGET
#define ONNXC_LANES 2
#include "matrix_tile.c"
#undef ONNXC_TYPED
#undef ONNXC_TILE_TARGET
#undef ONNXC_LANES
#if defined(ONNXC_FUSED)
#define ONNXC_TYPED(name) name##_fused
#define ONNXC_TILE_TARGET ONNXC_FUSED
#define ONNXC_LANES 4
#include "matrix_tile.c"
#undef ONNXC_TYPED
#undef ONNXC_TILE_TARGET
#undef ONNXC_LANES
#endif

typedef double onnxc_two __attribute__((vector_size(16)));
typedef void onnxc_tile(double *c, const double *a, int64_t stride, const double *b, int64_t depth);

/* The matrix that is worked on, with cells behind its rows and columns that nobody reads. */
typedef struct onnxc_matrix {
    double *a;
    int64_t n, stride; /* the stride is an odd multiple of 8: lines of a column lie in different sets of a cache */
    double *strips;    /* rows that are multiplied, in strips of columns */
    int64_t *pivots;   /* the row that each row was exchanged for */
    onnxc_tile *add;
    double determinant;
    bool singular;
} onnxc_matrix;

static onnxc_tile *onnxc_tile_of(const onnxc_context *context) {
#if defined(ONNXC_FUSED)
    if (onnxc_relies_on_fused(context->lowered)) return onnxc_add_tile_fused;
#endif
    (void)context;
    return onnxc_add_tile;
}

static int64_t onnxc_rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* Memory for matrices of n rows; false after an error. */
static bool onnxc_matrix_make(onnxc_context *context, onnxc_matrix *m, int64_t n) {
    int64_t stride = (onnxc_rounded_up(n, ONNXC_TILE_COLUMNS) / ONNXC_TILE_COLUMNS | 1) * ONNXC_TILE_COLUMNS;
    int64_t rows = onnxc_rounded_up(n, ONNXC_TILE_ROWS), halves = n > ONNXC_TILE_COLUMNS ? stride * stride / 4 : 0;
    *m = (onnxc_matrix){.n = n, .stride = stride, .add = onnxc_tile_of(context)};
    m->a = onnxc_call_scratch(context, rows * stride + halves, sizeof *m->a);
    m->pivots = onnxc_call_scratch(context, n, sizeof *m->pivots);
    if (m->a == NULL || m->pivots == NULL) return false;
    m->strips = m->a + rows * stride;
    memset(m->a, 0, (size_t)(rows * stride) * sizeof *m->a);
    return true;
}

/* Reads a matrix. */
static void onnxc_matrix_load(onnxc_matrix *m, int32_t dtype, const char *from) {
    int64_t size = onnxc_dtype_bytes(dtype);
    m->determinant = 1;
    m->singular = false;
    for (int64_t i = 0; i < m->n; i++, from += size * m->n) {
        double *row = m->a + i * m->stride;
        if (dtype == ONNXC_FLOAT32)
            for (int64_t j = 0; j < m->n; j++) row[j] = ONNXC_LOAD(float, from + 4 * j);
        else
            for (int64_t j = 0; j < m->n; j++) row[j] = onnxc_to_double(dtype, from + size * j);
    }
}

/* The row of the largest pivot for column k. */
static int64_t onnxc_pivot(const onnxc_matrix *m, int64_t k) {
    const double *column = m->a + k;
    int64_t pivot = k;
    double largest = fabs(column[k * m->stride]);
    for (int64_t i = k + 1; i < m->n; i++) {
        double here = fabs(column[i * m->stride]);
        if (here > largest || here != here) { /* NaN is none of what may be left out */
            pivot = i;
            largest = here;
        }
    }
    return pivot;
}

/* Eliminates up to 8 columns from `first` on, of the rows from `top` on and of those below them. Where a
 * pivot is 0, what comes is no numbers. */
static void onnxc_eliminate_few(onnxc_matrix *m, int64_t top, int64_t first, int64_t last) {
    for (int64_t k = first; k < last; k++) {
        int64_t pivot = m->pivots[k] = onnxc_pivot(m, k);
        double *row = m->a + k * m->stride;
        if (pivot != k) {
            onnxc_two *here = (onnxc_two *)row, *there = (onnxc_two *)(m->a + pivot * m->stride);
            for (int64_t j = 0; j < m->stride / 2; j++) {
                onnxc_two moved = here[j];
                here[j] = there[j];
                there[j] = moved;
            }
            m->determinant = -m->determinant;
        }
        double divisor = row[k];
        if (!m->singular) m->determinant *= divisor;
        m->singular |= divisor == 0;
        row[k] = 1;
        onnxc_two *begin = (onnxc_two *)(row + first), a = begin[0], b = begin[1], c = begin[2], d = begin[3];
        for (int64_t i = top < k ? top : k; i < m->n; i++) {
            double *line = m->a + i * m->stride, factor = line[k] / divisor;
            onnxc_two *to = (onnxc_two *)(line + first);
            line[k] = 0;
            to[0] -= factor * a;
            to[1] -= factor * b;
            to[2] -= factor * c;
            to[3] -= factor * d;
        }
        begin[0] = a / divisor;
        begin[1] = b / divisor;
        begin[2] = c / divisor;
        begin[3] = d / divisor;
    }
}

/* Brings columns [to, end) up to date with columns [first, last), which are eliminated: the rows of these pivots times
 * those columns are added to rows from `top` on, and take these rows' place. */
static void onnxc_substitute(const onnxc_matrix *m, int64_t top, int64_t first, int64_t last, int64_t to, int64_t end) {
    int64_t stride = m->stride, depth = last - first;
    double *strip = m->strips;
    for (int64_t j = to; j < end; j += ONNXC_TILE_COLUMNS)
        for (int64_t k = first; k < last; k++, strip += ONNXC_TILE_COLUMNS) {
            double *from = m->a + k * stride + j;
            memcpy(strip, from, ONNXC_TILE_COLUMNS * sizeof *strip);
            memset(from, 0, ONNXC_TILE_COLUMNS * sizeof *from);
        }
    for (int64_t k = 0; k < depth; k += ONNXC_DEPTH) {
        int64_t deep = depth - k < ONNXC_DEPTH ? depth - k : ONNXC_DEPTH;
        for (int64_t tall = top; tall < m->n; tall += ONNXC_TALL) {
            int64_t below = tall + ONNXC_TALL < m->n ? tall + ONNXC_TALL : m->n;
            for (int64_t j = to; j < end; j += ONNXC_TILE_COLUMNS)
                for (int64_t i = tall; i < below; i += ONNXC_TILE_ROWS)
                    m->add(m->a + i * stride + j, m->a + i * stride + first + k, stride,
                           m->strips + (j - to) * depth + k * ONNXC_TILE_COLUMNS, deep);
        }
    }
}

/* Eliminates columns [first, last), of the rows from `top` on; `first` and `top` are multiples of 8. */
static void onnxc_eliminate(onnxc_matrix *m, int64_t top, int64_t first, int64_t last) {
    int64_t columns = last - first;
    if (columns <= ONNXC_TILE_COLUMNS) {
        onnxc_eliminate_few(m, top, first, last);
        return;
    }
    int64_t middle = first + onnxc_rounded_up(columns / 2, ONNXC_TILE_COLUMNS);
    onnxc_eliminate(m, top, first, middle);
    onnxc_substitute(m, top, first, middle, middle, last);
    onnxc_eliminate(m, top, middle, last);
    onnxc_substitute(m, top, middle, last, first, middle);
}

/* The determinant, for which nothing above a panel of columns is eliminated, nor above a pivot of the last one. */
static double onnxc_determinant(onnxc_matrix *m) {
    int64_t n = m->n, first = 0, panel = onnxc_rounded_up(n / 16 + 1, ONNXC_TILE_COLUMNS);
    while (n - first > ONNXC_TILE_COLUMNS && !m->singular) {
        int64_t last = first + panel < n ? first + panel : n;
        onnxc_eliminate(m, first, first, last);
        onnxc_substitute(m, last, first, last, last, n);
        first = last;
    }
    if (!m->singular) onnxc_eliminate_few(m, n, first, n);
    return m->determinant + 0.0; /* 0 has no sign */
}

/* determinant: matrices [..., n, n] -> [...]. No attributes. */
ONNXC_OPERATOR(determinant) {
    int32_t outer = in->rank - 2, dtype = in->dtype;
    int64_t n = in->dims[outer], size = onnxc_dtype_bytes(dtype), count = onnxc_elements(outer, in->dims);
    if (!onnxc_same_size(context, n, in->dims[outer + 1])) return context->status;
    char *results = onnxc_call_output(context, out, attributes[0], dtype, outer, in->dims);
    onnxc_matrix m;
    if (results == NULL || (count > 0 && !onnxc_matrix_make(context, &m, n))) return context->status;
    for (int64_t k = 0; k < count; k++) {
        if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
        onnxc_matrix_load(&m, dtype, (const char *)in->data + size * n * n * k);
        onnxc_from_double(dtype, onnxc_determinant(&m), results + size * k);
    }
    return ONNXC_OK;
}

/* Writes the inverse of an eliminated matrix: exchanges of A's rows are exchanges of its columns, the last one first. */
static void onnxc_store_inverse(const onnxc_matrix *m, int64_t *columns, int32_t dtype, char *to) {
    int64_t size = onnxc_dtype_bytes(dtype);
    for (int64_t k = 0; k < m->n; k++) columns[k] = k;
    for (int64_t k = m->n - 1; k >= 0; k--) {
        int64_t moved = columns[k];
        columns[k] = columns[m->pivots[k]];
        columns[m->pivots[k]] = moved;
    }
    for (int64_t i = 0; i < m->n; i++, to += size * m->n) {
        const double *row = m->a + i * m->stride;
        if (dtype == ONNXC_FLOAT32)
            for (int64_t j = 0; j < m->n; j++) {
                float number = (float)row[columns[j]];
                memcpy(to + 4 * j, &number, sizeof number);
            }
        else
            for (int64_t j = 0; j < m->n; j++) onnxc_from_double(dtype, row[columns[j]], to + size * j);
    }
}

/* inverse: matrices [..., n, n] -> [..., n, n]. One that has no inverse gives infinities and NaN. No attributes. */
ONNXC_OPERATOR(inverse) {
    int32_t outer = in->rank - 2, dtype = in->dtype;
    int64_t n = in->dims[outer], bytes = onnxc_dtype_bytes(dtype) * n * n;
    int64_t count = n == 0 ? 0 : onnxc_elements(outer, in->dims); /* of nothing there may be very many */
    if (!onnxc_same_size(context, n, in->dims[outer + 1])) return context->status;
    char *results = onnxc_call_output(context, out, attributes[0], dtype, in->rank, in->dims);
    int64_t *columns = onnxc_call_scratch(context, n, sizeof *columns);
    onnxc_matrix m;
    if (results == NULL || columns == NULL || (count > 0 && !onnxc_matrix_make(context, &m, n))) return context->status;
    for (int64_t k = 0; k < count; k++) {
        if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
        onnxc_matrix_load(&m, dtype, (const char *)in->data + bytes * k);
        onnxc_eliminate(&m, 0, 0, n);
        onnxc_store_inverse(&m, columns, dtype, results + bytes * k);
    }
    return ONNXC_OK;
}
