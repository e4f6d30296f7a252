/* SPDX-License-Identifier: Apache-2.0 */
/* ops_regions.c - RoiAlign and MaxRoiPool, which read regions of images, determinants and inverses.
 *
 * Any of the four common float types: elements are computed with as double. */

typedef struct onnxc_images {
    const char *data;
    int32_t dtype;
    int64_t size, count, channels, height, width;
} onnxc_images;

static onnxc_images onnxc_images_of(const onnxc_value *x) {
    return (onnxc_images){x->data, x->dtype, onnxc_dtype_bytes(x->dtype),
                          x->dims[0], x->dims[1], x->dims[2], x->dims[3]};
}

static double onnxc_pixel(const onnxc_images *x, int64_t image, int64_t channel, int64_t y, int64_t column) {
    int64_t index = ((image * x->channels + channel) * x->height + y) * x->width + column;
    return onnxc_to_double(x->dtype, x->data + x->size * index);
}

/* Where a point lies between the pixels of one axis: low + part. False when it is outside. */
static bool onnxc_between(double at, int64_t length, int64_t *low, double *part) {
    if (!(at >= -1 && at <= (double)length)) return false;
    if (at < 0) at = 0;
    *low = (int64_t)at;
    *part = at - (double)*low;
    if (*low >= length - 1) *low = length - 1, *part = 0;
    return true;
}

/* Takes one sample of every channel into `sums`: its value, or for `greatest` the largest of the four
 * weighted neighbours, as ONNX Runtime defines it. */
static void onnxc_sample(const onnxc_images *x, int64_t image, double y, double column, bool greatest,
                         bool first, double *sums) {
    int64_t top = 0, left = 0;
    double down = 0, right = 0;
    bool inside = onnxc_between(y, x->height, &top, &down) && onnxc_between(column, x->width, &left, &right);
    int64_t below = down > 0 ? top + 1 : top, beside = right > 0 ? left + 1 : left;
    for (int64_t c = 0; c < x->channels; c++) {
        double part[4] = {0, 0, 0, 0};
        if (inside) {
            part[0] = (1 - down) * (1 - right) * onnxc_pixel(x, image, c, top, left);
            part[1] = (1 - down) * right * onnxc_pixel(x, image, c, top, beside);
            part[2] = down * (1 - right) * onnxc_pixel(x, image, c, below, left);
            part[3] = down * right * onnxc_pixel(x, image, c, below, beside);
        }
        if (!greatest) {
            sums[c] += part[0] + part[1] + part[2] + part[3];
            continue;
        }
        double most = fmax(fmax(part[0], part[1]), fmax(part[2], part[3]));
        sums[c] = first ? most : fmax(sums[c], most);
    }
}

/* Samples of a cell along one axis: as many as asked for, else one a pixel; -1 for a region that is no
 * number or out of all proportion. */
static int64_t onnxc_samples(double extent, int64_t cells, int64_t asked) {
    double needed = ceil(extent / (double)cells);
    if (asked > 0) return asked;
    return needed >= 0 && needed <= 1 << 20 ? (int64_t)needed : needed < 0 ? 0 : -1;
}

/* roi_align: X [N, C, H, W], regions [R, 4] (x1, y1, x2, y2), int64 image of each region [R], float32
 * scale of the regions -> [R, C, height, width]. Attributes: height, width, samples along each axis of
 * a cell (0: by size), 1 for the greatest instead of the mean, 1 for pixel centres at one half. */
ONNXC_OPERATOR(roi_align)(onnxc_context *context, const onnxc_value *in, int32_t in_count,
                          onnxc_value *out, int32_t out_count, const int64_t *attributes) {
    (void)in_count, (void)out_count;
    onnxc_images x = onnxc_images_of(in);
    int64_t regions = in[1].dims[0], height = attributes[1], width = attributes[2];
    bool greatest = attributes[4] != 0, half = attributes[5] != 0;
    double scale = ONNXC_LOAD(float, in[3].data);
    int64_t dims[] = {regions, x.channels, height, width};
    char *y = onnxc_call_output(context, out, attributes[0], x.dtype, 4, dims);
    double *sums = onnxc_call_scratch(context, x.channels, sizeof *sums);
    if (y == NULL || sums == NULL) return context->status;
    for (int64_t r = 0; r < regions; r++) {
        double corner[4];
        int64_t image = ONNXC_LOAD(int64_t, (const char *)in[2].data + 8 * r);
        for (int k = 0; k < 4; k++)
            corner[k] = onnxc_to_double(in[1].dtype, (const char *)in[1].data + x.size * (4 * r + k))
                * scale - (half ? 0.5 : 0);
        double wide = corner[2] - corner[0], high = corner[3] - corner[1];
        if (!half) wide = fmax(wide, 1), high = fmax(high, 1);
        int64_t rows = onnxc_samples(high, height, attributes[3]);
        int64_t columns = onnxc_samples(wide, width, attributes[3]);
        if (image < 0 || image >= x.count) return onnxc_raise(context, ONNXC_INDEX_OUT_OF_RANGE, image);
        if (rows < 0 || columns < 0) return onnxc_raise(context, ONNXC_INVALID_VALUE, r);
        if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
        double cell_high = high / (double)height, cell_wide = wide / (double)width;
        double count = rows * columns > 0 ? (double)(rows * columns) : 1;
        for (int64_t cell = 0; cell < height * width; cell++) {
            double above = corner[1] + (double)(cell / width) * cell_high;
            double before = corner[0] + (double)(cell % width) * cell_wide;
            memset(sums, 0, (size_t)(8 * x.channels));
            for (int64_t s = 0; s < rows * columns && x.height * x.width > 0; s++)
                onnxc_sample(&x, image, above + ((double)(s / columns) + 0.5) * cell_high / (double)rows,
                             before + ((double)(s % columns) + 0.5) * cell_wide / (double)columns,
                             greatest, s == 0, sums);
            for (int64_t c = 0; c < x.channels; c++)
                onnxc_from_double(x.dtype, greatest ? sums[c] : sums[c] / count,
                                  y + x.size * ((r * x.channels + c) * height * width + cell));
        }
    }
    return ONNXC_OK;
}

/* A cell's pixels along one axis, clipped to the image: [*begin, *end). */
static void onnxc_cell(double start, double extent, int64_t cells, int64_t cell, int64_t length,
                       int64_t *begin, int64_t *end) {
    double from = start + floor((double)cell * extent / (double)cells);
    double to = start + ceil((double)(cell + 1) * extent / (double)cells);
    *begin = from > 0 ? from < (double)length ? (int64_t)from : length : 0;
    *end = to > 0 ? to < (double)length ? (int64_t)to : length : 0;
}

/* max_roi_pool: X [N, C, H, W], regions [R, 5] (image, x1, y1, x2, y2), float32 scale of the regions ->
 * [R, C, height, width], 0 where a cell is empty. Attributes: height, width. */
ONNXC_OPERATOR(max_roi_pool)(onnxc_context *context, const onnxc_value *in, int32_t in_count,
                             onnxc_value *out, int32_t out_count, const int64_t *attributes) {
    (void)in_count, (void)out_count;
    onnxc_images x = onnxc_images_of(in);
    int64_t regions = in[1].dims[0], height = attributes[1], width = attributes[2];
    double scale = ONNXC_LOAD(float, in[2].data);
    int64_t dims[] = {regions, x.channels, height, width};
    char *y = onnxc_call_output(context, out, attributes[0], x.dtype, 4, dims);
    if (y == NULL) return context->status;
    for (int64_t r = 0; r < regions; r++) {
        double corner[4];
        double image = onnxc_to_double(in[1].dtype, (const char *)in[1].data + x.size * 5 * r);
        for (int k = 0; k < 4; k++)
            corner[k] = round(scale * onnxc_to_double(
                in[1].dtype, (const char *)in[1].data + x.size * (5 * r + k + 1)));
        if (!(image >= 0 && image < (double)x.count))
            return onnxc_raise(context, ONNXC_INDEX_OUT_OF_RANGE, image < 0 ? -1 : x.count);
        double wide = fmax(corner[2] - corner[0] + 1, 1), high = fmax(corner[3] - corner[1] + 1, 1);
        if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
        for (int64_t cell = 0; cell < x.channels * height * width; cell++) {
            int64_t top, bottom, left, right, channel = cell / (height * width);
            onnxc_cell(corner[1], high, height, cell / width % height, x.height, &top, &bottom);
            onnxc_cell(corner[0], wide, width, cell % width, x.width, &left, &right);
            double most = top < bottom && left < right ? -INFINITY : 0;
            for (int64_t row = top; row < bottom; row++)
                for (int64_t column = left; column < right; column++)
                    most = fmax(most, onnxc_pixel(&x, (int64_t)image, channel, row, column));
            onnxc_from_double(x.dtype, most, y + x.size * (r * x.channels * height * width + cell));
        }
    }
    return ONNXC_OK;
}

/* The determinant of an n x n matrix, which is destroyed: elimination with the largest pivot. */
static double onnxc_determinant(double *a, int64_t n) {
    double result = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
        if (a[pivot * n + k] == 0) return 0;
        if (pivot != k) result = -result;
        for (int64_t j = k; j < n && pivot != k; j++) {
            double moved = a[k * n + j];
            a[k * n + j] = a[pivot * n + j];
            a[pivot * n + j] = moved;
        }
        result *= a[k * n + k];
        for (int64_t i = k + 1; i < n; i++) {
            double factor = a[i * n + k] / a[k * n + k];
            for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
        }
    }
    return result;
}

/* determinant: matrices [..., n, n] -> [...]. No attributes. */
ONNXC_OPERATOR(determinant)(onnxc_context *context, const onnxc_value *in, int32_t in_count,
                            onnxc_value *out, int32_t out_count, const int64_t *attributes) {
    (void)in_count, (void)out_count;
    int32_t outer = in->rank - 2, dtype = in->dtype;
    int64_t n = in->dims[outer], size = onnxc_dtype_bytes(dtype);
    int64_t count = onnxc_elements(outer, in->dims);
    if (in->dims[outer + 1] != n) return onnxc_raise(context, ONNXC_DIMS_MISMATCH, in->dims[outer + 1]);
    char *results = onnxc_call_output(context, out, attributes[0], dtype, outer, in->dims);
    double *a = onnxc_call_scratch(context, n * n, sizeof *a);
    if (results == NULL || a == NULL) return context->status;
    for (int64_t m = 0; m < count; m++) {
        for (int64_t i = 0; i < n * n; i++)
            a[i] = onnxc_to_double(dtype, (const char *)in->data + size * (n * n * m + i));
        onnxc_from_double(dtype, onnxc_determinant(a, n), results + size * m);
    }
    return ONNXC_OK;
}

/* The inverse of an n x n matrix, which is destroyed: both are eliminated together, with the largest pivot. A matrix
   that has none gives infinities and NaN. */
static void onnxc_invert(double *a, double *inverse, int64_t n) {
    for (int64_t i = 0; i < n * n; i++) inverse[i] = i / n == i % n;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
        double factor = 1 / a[pivot * n + k];
        for (int64_t j = 0; j < n; j++) {
            double moved = a[k * n + j], other = inverse[k * n + j];
            a[k * n + j] = a[pivot * n + j] * factor;
            inverse[k * n + j] = inverse[pivot * n + j] * factor;
            if (pivot == k) continue;
            a[pivot * n + j] = moved;
            inverse[pivot * n + j] = other;
        }
        for (int64_t i = 0; i < n; i++) {
            double times = a[i * n + k];
            for (int64_t j = 0; j < n && i != k; j++) {
                a[i * n + j] -= times * a[k * n + j];
                inverse[i * n + j] -= times * inverse[k * n + j];
            }
        }
    }
}

/* inverse: matrices [..., n, n] -> [..., n, n]. No attributes. */
ONNXC_OPERATOR(inverse)(onnxc_context *context, const onnxc_value *in, int32_t in_count, onnxc_value *out,
                        int32_t out_count, const int64_t *attributes) {
    (void)in_count, (void)out_count;
    int32_t outer = in->rank - 2, dtype = in->dtype;
    int64_t n = in->dims[outer], size = onnxc_dtype_bytes(dtype), count = onnxc_elements(outer, in->dims);
    if (in->dims[outer + 1] != n) return onnxc_raise(context, ONNXC_DIMS_MISMATCH, in->dims[outer + 1]);
    char *results = onnxc_call_output(context, out, attributes[0], dtype, in->rank, in->dims);
    double *a = onnxc_call_scratch(context, 2 * n * n, sizeof *a);
    if (results == NULL || a == NULL) return context->status;
    for (int64_t m = 0; m < count; m++) {
        for (int64_t i = 0; i < n * n; i++)
            a[i] = onnxc_to_double(dtype, (const char *)in->data + size * (n * n * m + i));
        onnxc_invert(a, a + n * n, n);
        for (int64_t i = 0; i < n * n; i++)
            onnxc_from_double(dtype, a[n * n + i], results + size * (n * n * m + i));
    }
    return ONNXC_OK;
}
