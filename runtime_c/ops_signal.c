/* SPDX-License-Identifier: Apache-2.0 */
/* ops_signal.c - Fourier transforms of a length that only the run knows, or that has large factors. The numpy twin is in
 * onnxc/ir/runtime_twins.py.
 *
 * Complex numbers are pairs of doubles. A transform takes a step for each factor of its length ("FFT algorithms for
 * vector computers", Swarztrauber, 1984, after Stockham): with p the factor, s the product of those before and m of those
 * that follow, to[k + s (p j + t)] = root^(s j t) * the sum over r of from[k + s (j + m r)] * root^(m s r t).
 *
 * Such a step takes p multiplications a number. Where some factor is large the whole transform is a convolution instead
 * ("A linear filtering approach to the computation of discrete Fourier transform", Bluestein, 1970), by transforms of a
 * power of two: j k = (j j + k k - (k - j) (k - j)) / 2, so that with chirp[k] = root^(k k / 2) bin k is chirp[k] times
 * the sum over j of x[j] chirp[j] / chirp[k - j]. */

enum { ONNXC_LARGE_FACTOR = 50 }; /* of which a step takes longer than the convolution */

/* roots: the powers of the length's first root, exp(-2 pi i k / n), or their conjugates. */
static void onnxc_fourier_roots(double *roots, int64_t n, bool inverse) {
    int64_t fine = 1;
    while (fine * fine < n) fine++;
    double whole = (inverse ? 2 : -2) * 3.14159265358979323846 / (double)n;
    for (int64_t k = 0; k < fine && k < n; k++) {
        roots[2 * k] = cos(whole * (double)k);
        roots[2 * k + 1] = sin(whole * (double)k);
    }
    for (int64_t start = fine; start < n; start += fine) {
        double cosine = cos(whole * (double)start), sine = sin(whole * (double)start);
        for (int64_t k = 0; k < fine && start + k < n; k++) {
            roots[2 * (start + k)] = cosine * roots[2 * k] - sine * roots[2 * k + 1];
            roots[2 * (start + k) + 1] = cosine * roots[2 * k + 1] + sine * roots[2 * k];
        }
    }
}

/* One number turned by a root. */
static inline void onnxc_turned(double *to, double real, double imaginary, const double *root) {
    to[0] = real * root[0] - imaginary * root[1];
    to[1] = real * root[1] + imaginary * root[0];
}

static void onnxc_fourier_fours(const double *from, double *to, const double *roots, int64_t m, int64_t s, bool inverse) {
    double sign = inverse ? -1 : 1;
    for (int64_t j = 0; j < m; j++) {
        const double *first = roots + 2 * (s * j), *second = roots + 2 * (2 * s * j), *third = roots + 2 * (3 * s * j);
        for (int64_t k = 0; k < s; k++) {
            const double *a = from + 2 * (k + s * j), *b = a + 2 * s * m, *c = b + 2 * s * m, *d = c + 2 * s * m;
            double *y = to + 2 * (k + 4 * s * j);
            double sum[2] = {a[0] + c[0], a[1] + c[1]}, other[2] = {b[0] + d[0], b[1] + d[1]};
            double less[2] = {a[0] - c[0], a[1] - c[1]}, turned[2] = {sign * (b[1] - d[1]), sign * (d[0] - b[0])};
            y[0] = sum[0] + other[0];
            y[1] = sum[1] + other[1];
            onnxc_turned(y + 2 * s, less[0] + turned[0], less[1] + turned[1], first);
            onnxc_turned(y + 4 * s, sum[0] - other[0], sum[1] - other[1], second);
            onnxc_turned(y + 6 * s, less[0] - turned[0], less[1] - turned[1], third);
        }
    }
}

static void onnxc_fourier_step(const double *from, double *to, const double *roots, int64_t p, int64_t m, int64_t s) {
    for (int64_t j = 0; j < m; j++)
        for (int64_t t = 0; t < p; t++)
            for (int64_t k = 0; k < s; k++) {
                double real = 0, imaginary = 0;
                for (int64_t r = 0, place = 0; r < p; r++) {
                    const double *x = from + 2 * (k + s * (j + m * r)), *root = roots + 2 * (m * s * place);
                    real += x[0] * root[0] - x[1] * root[1];
                    imaginary += x[0] * root[1] + x[1] * root[0];
                    place = place + t < p ? place + t : place + t - p; /* r t modulo p */
                }
                onnxc_turned(to + 2 * (k + s * (p * j + t)), real, imaginary, roots + 2 * (s * j * t));
            }
}

/* The next factor of m, from p on: 4 first, then 2, 3 and odd ones. */
static int64_t onnxc_fourier_factor(int64_t p, int64_t m) {
    while (m % p != 0) p = p == 4 ? 2 : p == 2 ? 3 : p * p < m ? p + 2 : m;
    return p;
}

/* Transforms n numbers at x, with as much memory at `other`; where they are then, NULL if the run is cancelled. */
static double *onnxc_fourier(onnxc_context *context, double *x, double *other, const double *roots, int64_t n,
                             bool inverse) {
    for (int64_t p = 4, m = n, s = 1; m > 1; s *= p) {
        if (onnxc_cancelled(context)) return NULL;
        p = onnxc_fourier_factor(p, m);
        m /= p;
        if (p == 4) onnxc_fourier_fours(x, other, roots, m, s, inverse);
        else onnxc_fourier_step(x, other, roots, p, m, s);
        double *swapped = x;
        x = other;
        other = swapped;
    }
    return x;
}

/* How many numbers are transformed for n: as many, or those of a convolution. */
static int64_t onnxc_fourier_size(int64_t n) {
    int64_t largest = 1, size = 1;
    for (int64_t p = 4, m = n; m > 1; m /= p) largest = p = onnxc_fourier_factor(p, m);
    if (largest < ONNXC_LARGE_FACTOR) return n;
    while (size < 2 * n - 1) size *= 2;
    return size;
}

/* What a convolution of n numbers multiplies with: the chirp, and the transform of what it is divided by. */
typedef struct onnxc_chirp {
    double *chirp, *filter;
    int64_t n, size;
} onnxc_chirp;

/* Fills both, with memory for 2 size numbers at x; false if the run is cancelled. The filter brings numbers back from
 * their transform, which is why it is divided by the size. */
static bool onnxc_chirp_make(onnxc_context *context, const onnxc_chirp *c, double *x, const double *roots,
                             bool inverse) {
    int64_t n = c->n, size = c->size;
    onnxc_fourier_roots(x, 2 * n, inverse);
    for (int64_t k = 0, square = 0; k < n; k++) { /* modulo 2 n, so that angles are exact */
        memcpy(c->chirp + 2 * k, x + 2 * square, 2 * sizeof *x);
        square += 2 * k + 1;
        square -= square < 2 * n ? 0 : 2 * n;
    }
    memset(x, 0, (size_t)(2 * size) * sizeof *x);
    for (int64_t k = 0; k < n; k++) {
        double *above = x + 2 * k, *below = x + 2 * (k == 0 ? 0 : size - k);
        above[0] = below[0] = c->chirp[2 * k] / (double)size;
        above[1] = below[1] = -c->chirp[2 * k + 1] / (double)size;
    }
    const double *found = onnxc_fourier(context, x, x + 2 * size, roots, size, false);
    if (found != NULL) memcpy(c->filter, found, (size_t)(2 * size) * sizeof *found);
    return found != NULL;
}

/* Transforms n numbers at x, zeros behind them up to the size, as `onnxc_fourier` does. The transform back is the
 * conjugate of the conjugates' transform. */
static double *onnxc_fourier_convolved(onnxc_context *context, double *x, double *other, const double *roots,
                                       const onnxc_chirp *c) {
    for (int64_t k = 0; k < c->n; k++) onnxc_turned(x + 2 * k, x[2 * k], x[2 * k + 1], c->chirp + 2 * k);
    double *bins = onnxc_fourier(context, x, other, roots, c->size, false);
    if (bins == NULL) return NULL;
    for (int64_t k = 0; k < c->size; k++) {
        onnxc_turned(bins + 2 * k, bins[2 * k], bins[2 * k + 1], c->filter + 2 * k);
        bins[2 * k + 1] = -bins[2 * k + 1];
    }
    double *sums = onnxc_fourier(context, bins, bins == x ? other : x, roots, c->size, false);
    for (int64_t k = 0; sums != NULL && k < c->n; k++)
        onnxc_turned(sums + 2 * k, sums[2 * k], -sums[2 * k + 1], c->chirp + 2 * k);
    return sums;
}

/* fourier: x [..., times, 1 or 2], int64 length n >= times or 0 -> all n bins [..., n, 2], of the numbers with zeros behind
 * them; the sums alone where it is the inverse. Attributes: 1 for the inverse; 1 for what is one-sided: the first
 * n / 2 + 1 bins, or the real numbers [..., n, 1] that have such bins. */
ONNXC_OPERATOR(fourier) {
    int32_t rank = in->rank;
    int64_t n = ONNXC_LOAD(int64_t, in[1].data), times = in->dims[rank - 2], parts = in->dims[rank - 1];
    bool inverse = attributes[1] != 0, halved = attributes[2] != 0;
    if ((n < times && n != 0) || n < 0 || n > INT64_MAX / 256 || (parts != 1 && parts != 2)) return onnxc_raise(context, ONNXC_INVALID_VALUE, n);
    int64_t dims[ONNXC_MAX_RANK], rows = onnxc_elements(rank - 2, in->dims);
    memcpy(dims, in->dims, (size_t)rank * sizeof *dims);
    int64_t bins = dims[rank - 2] = halved && !inverse ? n / 2 + 1 : n;
    int64_t width = dims[rank - 1] = halved && inverse ? 1 : 2;
    double *results = onnxc_call_output(context, out, attributes[0], ONNXC_FLOAT64, rank, dims);
    if (results == NULL) return context->status;
    if (n == 0 || rows == 0) { /* sums of nothing, if any */
        memset(results, 0, (size_t)(rows * bins * width) * sizeof *results);
        return ONNXC_OK;
    }
    int64_t size = onnxc_fourier_size(n);
    bool convolved = size != n;
    double *roots = onnxc_call_scratch(context, 6 * size + (convolved ? 2 * (size + n) : 0), sizeof *roots);
    if (roots == NULL) return context->status;
    double *given = roots + 2 * size, *other = given + 2 * size, *filter = other + 2 * size; /* a convolution's */
    onnxc_chirp chirp = {.filter = filter, .chirp = filter + 2 * size, .n = n, .size = size};
    onnxc_fourier_roots(roots, size, inverse && !convolved);
    if (convolved && !onnxc_chirp_make(context, &chirp, given, roots, inverse)) return ONNXC_CANCELLED;
    const double *x = in->data;
    for (int64_t row = 0; row < rows; row++, x += times * parts) {
        if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
        memset(given, 0, (size_t)(2 * size) * sizeof *given);
        for (int64_t t = 0; t < times; t++) {
            given[2 * t] = x[parts * t];
            given[2 * t + 1] = parts == 2 ? x[2 * t + 1] : 0;
        }
        for (int64_t t = 1; t < times && t < n - t && halved && inverse; t++) {
            given[2 * (n - t)] = given[2 * t];
            given[2 * (n - t) + 1] = -given[2 * t + 1];
        }
        const double *found = convolved ? onnxc_fourier_convolved(context, given, other, roots, &chirp)
                                        : onnxc_fourier(context, given, other, roots, n, inverse);
        if (found == NULL) return ONNXC_CANCELLED;
        for (int64_t k = 0; k < bins; k++, results += width)
            for (int64_t part = 0; part < width; part++) results[part] = found[2 * k + part];
    }
    return ONNXC_OK;
}
