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

/* What the samples of cells weigh the pixels of one axis with: of each cell those that count, one after the other.
 * `used`: the pixels that any cell counts, in the order of their slots. */
typedef struct onnxc_tap {
    int64_t slot;
    double weight;
} onnxc_tap;

typedef struct onnxc_taps {
    onnxc_tap *taps;
    int64_t *begin, *used, *slot_of, count; /* cells + 1; pixels; pixels, -1 where none counts it */
} onnxc_taps;

static void onnxc_add_tap(onnxc_taps *x, int64_t first, int64_t *end, int64_t pixel, double weight) {
    if (x->slot_of[pixel] < 0) x->used[x->slot_of[pixel] = x->count++] = pixel;
    int64_t slot = x->slot_of[pixel], k = *end - 1;
    while (k >= first && x->taps[k].slot != slot && k > *end - 3) k--; /* neighbours come one after the other */
    if (k >= first && x->taps[k].slot == slot) x->taps[k].weight += weight;
    else x->taps[(*end)++] = (onnxc_tap){slot, weight};
}

/* The taps of cells with so many samples each at `places`; memory is there for two taps a sample. */
static void onnxc_collect_taps(onnxc_taps *x, const onnxc_between_two *places, int64_t cells, int64_t samples,
                               int64_t length) {
    int64_t end = x->count = 0;
    for (int64_t k = 0; k < length; k++) x->slot_of[k] = -1;
    for (int64_t cell = 0; cell < cells; cell++) {
        int64_t first = x->begin[cell] = end;
        for (int64_t s = cell * samples; s < (cell + 1) * samples; s++) {
            if (!places[s].inside) continue;
            onnxc_add_tap(x, first, &end, places[s].low, 1 - places[s].part);
            if (places[s].part > 0) onnxc_add_tap(x, first, &end, places[s].high, places[s].part);
        }
    }
    x->begin[cells] = end;
}

enum { ONNXC_TOGETHER = 4 }; /* columns that are summed at a time */

/* The sums of all cells' samples in one plane: for a row of cells the columns that any counts are summed first
 * (`sums`, as many as are used and ONNXC_TOGETHER - 1 more), then those of each cell. */
static inline void onnxc_sum_cells(const onnxc_images *x, const char *plane, const onnxc_taps *down, int64_t height,
                                   const onnxc_taps *across, int64_t width, double *sums, double share, char *to,
                                   bool single) {
    for (int64_t row = 0; row < height; row++) {
        for (int64_t u = 0; u < across->count; u += ONNXC_TOGETHER) {
            double found[ONNXC_TOGETHER] = {0};
            int64_t pixel[ONNXC_TOGETHER];
            for (int64_t k = 0; k < ONNXC_TOGETHER; k++)
                pixel[k] = across->used[u + k < across->count ? u + k : u];
            for (int64_t t = down->begin[row]; t < down->begin[row + 1]; t++) {
                int64_t from = down->used[down->taps[t].slot] * x->width;
                for (int64_t k = 0; k < ONNXC_TOGETHER; k++)
                    found[k] += down->taps[t].weight * onnxc_pixel(x, plane, from + pixel[k], single);
            }
            memcpy(sums + u, found, sizeof found);
        }
        for (int64_t cell = 0; cell < width; cell++) {
            double found = 0;
            for (int64_t t = across->begin[cell]; t < across->begin[cell + 1]; t++)
                found += across->taps[t].weight * sums[across->taps[t].slot];
            onnxc_from_double(x->dtype, found * share, to + x->size * (row * width + cell));
        }
    }
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
    int64_t words, pixels;
    if (!onnxc_add(x.height, x.width, &pixels) || !onnxc_add(height, width, &words) ||
        !onnxc_add(words, 2, &words) || pixels > (INT64_MAX - words) / 2)
        return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, height);
    int64_t *memory = onnxc_call_scratch(context, words + 2 * pixels, sizeof *memory);
    double *sums = onnxc_call_scratch(context, x.width + ONNXC_TOGETHER, sizeof *sums);
    if (memory == NULL || sums == NULL) return context->status;
    onnxc_taps rising = {NULL, memory, memory + words, memory + words + pixels, 0};
    onnxc_taps beside = {NULL, rising.begin + height + 1, rising.used + x.height, rising.slot_of + x.height, 0};
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
            rising.taps = onnxc_call_scratch(context, room > 0 ? room : 1, 2 * sizeof *rising.taps);
            if (places == NULL || rising.taps == NULL) return context->status;
        }
        onnxc_place_samples(places, corner[1], high / (double)height, height, rows, x.height);
        onnxc_place_samples(places + down, corner[0], wide / (double)width, width, columns, x.width);
        beside.taps = rising.taps + 2 * down;
        if (!greatest) {
            onnxc_collect_taps(&rising, places, height, rows, x.height);
            onnxc_collect_taps(&beside, places + down, width, columns, x.width);
        }
        double share = rows * columns > 0 ? 1 / (double)(rows * columns) : 1;
        for (int64_t c = 0; c < x.channels; c++) {
            const char *plane = onnxc_plane(&x, image, c);
            char *to = y + x.size * (r * x.channels + c) * height * width;
            if (!greatest && x.dtype == ONNXC_FLOAT32)
                onnxc_sum_cells(&x, plane, &rising, height, &beside, width, sums, share, to, true);
            else if (!greatest)
                onnxc_sum_cells(&x, plane, &rising, height, &beside, width, sums, share, to, false);
            for (int64_t cell = 0; cell < height * width && greatest; cell++) {
                const onnxc_between_two *y_places = places + cell / width * rows;
                const onnxc_between_two *x_places = places + down + cell % width * columns;
                double found = onnxc_largest_neighbour(&x, plane, y_places, rows, x_places, columns);
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
