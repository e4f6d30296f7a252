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

/* The plane of a channel of an image. */
static const char *onnxc_plane(const onnxc_images *x, int64_t image, int64_t channel) {
    return x->data + x->size * (image * x->channels + channel) * x->height * x->width;
}

/* An element of a plane. single: elements are float32, which whoever knows it reads at once. */
static inline double onnxc_pixel(const onnxc_images *x, const char *plane, int64_t index, bool single) {
    return single ? (double)((const float *)plane)[index] : onnxc_to_double(x->dtype, plane + x->size * index);
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

/* Where samples lie along an axis: between two pixels, which are one where nothing is behind the first; the
 * second's share. A sample that is not inside is 0. */
typedef struct onnxc_between_two {
    int64_t low, high;
    double part;
    bool inside;
} onnxc_between_two;

/* Those of all cells of a region, from `start` on, each cell of size `extent`. */
static void onnxc_place_samples(onnxc_between_two *places, double start, double extent, int64_t cells,
                                int64_t samples, int64_t length) {
    for (int64_t k = 0; k < cells * samples; k++) {
        double cell = start + (double)(k / samples) * extent;
        double at = cell + ((double)(k % samples) + 0.5) * extent / (double)samples;
        onnxc_between_two place = {0, 0, 0, false};
        place.inside = onnxc_between(at, length, &place.low, &place.part);
        place.high = place.part > 0 ? place.low + 1 : place.low;
        places[k] = place;
    }
}

/* The sum of a cell's samples in one plane. */
static inline double onnxc_sum_samples(const onnxc_images *x, const char *plane, const onnxc_between_two *y,
                                       int64_t rows, const onnxc_between_two *column, int64_t columns,
                                       bool single) {
    double found = 0;
    for (int64_t s = 0; s < rows; s++) {
        if (!y[s].inside) continue;
        int64_t top = y[s].low * x->width, below = y[s].high * x->width;
        double above = 0, beneath = 0;
        for (int64_t t = 0; t < columns; t++) {
            if (!column[t].inside) continue;
            int64_t low = column[t].low, high = column[t].high;
            double right = column[t].part, left = 1 - right;
            above += left * onnxc_pixel(x, plane, top + low, single)
                + right * onnxc_pixel(x, plane, top + high, single);
            beneath += left * onnxc_pixel(x, plane, below + low, single)
                + right * onnxc_pixel(x, plane, below + high, single);
        }
        found += (1 - y[s].part) * above + y[s].part * beneath;
    }
    return found;
}

/* The largest of the weighted neighbours of a cell's samples, as ONNX Runtime defines it. */
static double onnxc_largest_neighbour(const onnxc_images *x, const char *plane, const onnxc_between_two *y,
                                      int64_t rows, const onnxc_between_two *column, int64_t columns) {
    double found = 0;
    for (int64_t s = 0; s < rows; s++)
        for (int64_t t = 0; t < columns; t++) {
            double part[4] = {0, 0, 0, 0}, down = y[s].part, right = column[t].part;
            if (y[s].inside && column[t].inside) {
                int64_t top = y[s].low * x->width, below = y[s].high * x->width;
                part[0] = (1 - down) * (1 - right) * onnxc_pixel(x, plane, top + column[t].low, false);
                part[1] = (1 - down) * right * onnxc_pixel(x, plane, top + column[t].high, false);
                part[2] = down * (1 - right) * onnxc_pixel(x, plane, below + column[t].low, false);
                part[3] = down * right * onnxc_pixel(x, plane, below + column[t].high, false);
            }
            double most = fmax(fmax(part[0], part[1]), fmax(part[2], part[3]));
            found = s + t == 0 ? most : fmax(found, most);
        }
    return found;
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
    if (y == NULL) return context->status;
    onnxc_between_two *places = NULL;
    for (int64_t r = 0, room = 0; r < regions; r++) {
        double corner[4];
        int64_t image = ONNXC_LOAD(int64_t, (const char *)in[2].data + 8 * r);
        for (int k = 0; k < 4; k++)
            corner[k] = onnxc_to_double(in[1].dtype, (const char *)in[1].data + x.size * (4 * r + k))
                * scale - (half ? 0.5 : 0);
        double wide = corner[2] - corner[0], high = corner[3] - corner[1];
        if (!half) wide = fmax(wide, 1), high = fmax(high, 1);
        int64_t rows = onnxc_samples(high, height, attributes[3]), down, across, needed;
        int64_t columns = onnxc_samples(wide, width, attributes[3]);
        if (image < 0 || image >= x.count) return onnxc_raise(context, ONNXC_INDEX_OUT_OF_RANGE, image);
        if (rows < 0 || columns < 0) return onnxc_raise(context, ONNXC_INVALID_VALUE, r);
        if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
        if (x.height * x.width == 0) rows = columns = 0;
        if (!onnxc_multiply(rows, height, &down) || !onnxc_multiply(columns, width, &across) ||
            !onnxc_add(down, across, &needed))
            return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, r);
        if (needed > room || places == NULL) {
            room = needed > 2 * room ? needed : 2 * room;
            places = onnxc_call_scratch(context, room > 0 ? room : 1, sizeof *places);
            if (places == NULL) return context->status;
        }
        onnxc_place_samples(places, corner[1], high / (double)height, height, rows, x.height);
        onnxc_place_samples(places + down, corner[0], wide / (double)width, width, columns, x.width);
        double count = rows * columns > 0 ? (double)(rows * columns) : 1;
        for (int64_t c = 0; c < x.channels; c++) {
            const char *plane = onnxc_plane(&x, image, c);
            char *to = y + x.size * (r * x.channels + c) * height * width;
            for (int64_t cell = 0; cell < height * width; cell++) {
                const onnxc_between_two *above = places + cell / width * rows;
                const onnxc_between_two *beside = places + down + cell % width * columns;
                double found;
                if (greatest) found = onnxc_largest_neighbour(&x, plane, above, rows, beside, columns);
                else if (x.dtype != ONNXC_FLOAT32)
                    found = onnxc_sum_samples(&x, plane, above, rows, beside, columns, false) / count;
                else found = onnxc_sum_samples(&x, plane, above, rows, beside, columns, true) / count;
                onnxc_from_double(x.dtype, found, to + x.size * cell);
            }
        }
    }
    return ONNXC_OK;
}

/* Pixels along one axis, [begin, end). */
typedef struct onnxc_range {
    int64_t begin, end;
} onnxc_range;

/* Those of each of a region's cells, clipped to the image. */
static void onnxc_cells(onnxc_range *ranges, double start, double extent, int64_t cells, int64_t length) {
    for (int64_t cell = 0; cell < cells; cell++) {
        double from = start + floor((double)cell * extent / (double)cells);
        double to = start + ceil((double)(cell + 1) * extent / (double)cells);
        ranges[cell].begin = from > 0 ? from < (double)length ? (int64_t)from : length : 0;
        ranges[cell].end = to > 0 ? to < (double)length ? (int64_t)to : length : 0;
    }
}

/* The greatest pixel of a cell that is a number, 0 for an empty cell. */
static inline double onnxc_greatest(const onnxc_images *x, const char *plane, onnxc_range rows,
                                    onnxc_range columns, bool single) {
    double most = rows.begin < rows.end && columns.begin < columns.end ? -INFINITY : 0;
    for (int64_t row = rows.begin; row < rows.end; row++)
        for (int64_t column = columns.begin; column < columns.end; column++) {
            double pixel = onnxc_pixel(x, plane, row * x->width + column, single);
            most = pixel > most ? pixel : most;
        }
    return most;
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
    int64_t cells;
    if (!onnxc_add(height, width, &cells)) return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, height);
    onnxc_range *ranges = onnxc_call_scratch(context, cells, sizeof *ranges);
    if (y == NULL || ranges == NULL) return context->status;
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
        onnxc_cells(ranges, corner[1], high, height, x.height);
        onnxc_cells(ranges + height, corner[0], wide, width, x.width);
        for (int64_t c = 0; c < x.channels; c++) {
            const char *plane = onnxc_plane(&x, (int64_t)image, c);
            char *to = y + x.size * (r * x.channels + c) * height * width;
            for (int64_t cell = 0; cell < height * width; cell++) {
                onnxc_range rows = ranges[cell / width], columns = ranges[height + cell % width];
                double most = x.dtype == ONNXC_FLOAT32 ? onnxc_greatest(&x, plane, rows, columns, true)
                                                       : onnxc_greatest(&x, plane, rows, columns, false);
                onnxc_from_double(x.dtype, most, to + x.size * cell);
            }
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
