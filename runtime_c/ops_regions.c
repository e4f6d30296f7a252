/* SPDX-License-Identifier: Apache-2.0 */
/* ops_regions.c - RoiAlign and MaxRoiPool, which read regions of images of float32 or float64. */

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

/* The pixels of one axis that cells count and what these are weighed with, of each cell one after the other, and where
 * all of them lie. */
typedef struct onnxc_tap {
    int64_t pixel;
    double weight;
} onnxc_tap;

typedef struct onnxc_taps {
    onnxc_tap *taps;
    int64_t *begin, cells, first, end; /* cells + 1; first <= pixel < end */
} onnxc_taps;

static void onnxc_add_tap(onnxc_taps *x, int64_t cell, int64_t pixel, double weight, bool merged) {
    int64_t end = x->begin[cell + 1], k = end - 1;
    while (merged && k >= x->begin[cell] && x->taps[k].pixel != pixel && k > end - 3) k--; /* neighbours follow */
    if (merged && k >= x->begin[cell] && x->taps[k].pixel == pixel) x->taps[k].weight += weight;
    else x->taps[x->begin[cell + 1]++] = (onnxc_tap){pixel, weight};
    if (pixel < x->first) x->first = pixel;
    if (pixel >= x->end) x->end = pixel + 1;
}

/* The taps of so many samples a cell at `places`; memory is there for two taps a sample. greatest: each sample counts
 * by itself, with both neighbours; where some are outside, a tap without weight comes first, which is 0 whatever its
 * pixel is. */
static void onnxc_collect_taps(onnxc_taps *x, const onnxc_between_two *places, int64_t samples, int64_t length,
                               bool greatest) {
    x->first = length, x->end = x->begin[0] = 0;
    for (int64_t cell = 0; cell < x->cells; cell++, places += samples) {
        x->begin[cell + 1] = x->begin[cell];
        for (int64_t s = 0; greatest && s < samples; s++)
            if (!places[s].inside) {
                onnxc_add_tap(x, cell, places[s].low, 0, false);
                break;
            }
        for (int64_t s = 0; s < samples; s++) {
            double part = places[s].part;
            if (!places[s].inside) continue;
            onnxc_add_tap(x, cell, places[s].low, 1 - part, !greatest);
            if (greatest || part > 0) onnxc_add_tap(x, cell, places[s].high, part, !greatest);
        }
    }
}

/* Whether the first of taps is that of samples outside. */
static bool onnxc_has_outside(const onnxc_tap *taps, int64_t count) { return count > 0 && taps[0].weight == 0; }

enum {
    ONNXC_COLUMNS = 16, /* that are combined at a time */
    ONNXC_APART = 3     /* columns in whose time one is combined by itself */
};

#define ONNXC_NUMBER float
#define ONNXC_TYPED(name) name##_float
#include "region_cells.c"
#undef ONNXC_NUMBER
#undef ONNXC_TYPED
#define ONNXC_NUMBER double
#define ONNXC_TYPED(name) name##_double
#include "region_cells.c"
#undef ONNXC_NUMBER
#undef ONNXC_TYPED

/* All cells of all channels of an image. lines: as many numbers as its rows have. */
static void onnxc_combine_planes(const onnxc_images *x, int64_t image, const onnxc_taps *down, const onnxc_taps *across,
                                 void *lines, double share, char *to, bool greatest) {
    int64_t size = x->size * down->cells * across->cells;
    for (int64_t c = 0; c < x->channels; c++, to += size) {
        const char *plane = onnxc_plane(x, image, c);
        if (x->dtype == ONNXC_FLOAT32 && greatest)
            onnxc_combine_cells_float((const float *)plane, x->width, down, across, lines, 1, (float *)to, true);
        else if (x->dtype == ONNXC_FLOAT32)
            onnxc_combine_cells_float((const float *)plane, x->width, down, across, lines, (float)share, (float *)to,
                                      false);
        else
            onnxc_combine_cells_double((const double *)plane, x->width, down, across, lines, greatest ? 1 : share,
                                       (double *)to, greatest);
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
ONNXC_OPERATOR(roi_align) {
    onnxc_images x = onnxc_images_of(in);
    int64_t regions = in[1].dims[0], height = attributes[1], width = attributes[2];
    bool greatest = attributes[4] != 0, half = attributes[5] != 0;
    if (!onnxc_same_size(context, 4, in[1].dims[1]) || !onnxc_same_size(context, regions, in[2].dims[0]))
        return context->status;
    double scale = ONNXC_LOAD(float, in[3].data);
    int64_t dims[] = {regions, x.channels, height, width};
    char *y = onnxc_call_output(context, out, attributes[0], x.dtype, 4, dims);
    if (y == NULL) return context->status;
    onnxc_between_two *places = NULL;
    int64_t words;
    if (!onnxc_add(height, width, &words) || !onnxc_add(words, 2, &words))
        return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, height);
    int64_t *begin = onnxc_call_scratch(context, words, sizeof *begin);
    double *lines = onnxc_call_scratch(context, x.width, sizeof *lines);
    if (begin == NULL || lines == NULL) return context->status;
    onnxc_taps rising = {NULL, begin, height, 0, 0}, beside = {NULL, begin + height + 1, width, 0, 0};
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
        if (rows < 0 || columns < 0)
            return onnxc_fail_double(context, context->node, ONNXC_INVALID_VALUE, rows < 0 ? high : wide);
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
        onnxc_collect_taps(&rising, places, rows, x.height, greatest);
        onnxc_collect_taps(&beside, places + down, columns, x.width, greatest);
        double share = !greatest && rows * columns > 0 ? 1 / (double)(rows * columns) : 1;
        char *to = y + x.size * r * x.channels * height * width;
        onnxc_combine_planes(&x, image, &rising, &beside, lines, share, to, greatest);
    }
    return ONNXC_OK;
}

/* The pixels of each of a region's cells along one axis, clipped to the image: all together no more than the image has
 * and two more a cell. */
static void onnxc_collect_pixels(onnxc_taps *x, double start, double extent, int64_t length) {
    x->first = length, x->end = x->begin[0] = 0;
    for (int64_t cell = 0; cell < x->cells; cell++) {
        double from = start + floor((double)cell * extent / (double)x->cells);
        double to = start + ceil((double)(cell + 1) * extent / (double)x->cells);
        int64_t pixel = from > 0 ? from < (double)length ? (int64_t)from : length : 0;
        int64_t end = to > 0 ? to < (double)length ? (int64_t)to : length : 0;
        x->begin[cell + 1] = x->begin[cell];
        for (; pixel < end; pixel++) onnxc_add_tap(x, cell, pixel, 1, false);
    }
}

/* max_roi_pool: X [N, C, H, W], regions [R, 5] (image, x1, y1, x2, y2), float32 scale of the regions ->
 * [R, C, height, width], 0 where a cell is empty. Attributes: height, width. */
ONNXC_OPERATOR(max_roi_pool) {
    onnxc_images x = onnxc_images_of(in);
    int64_t regions = in[1].dims[0], height = attributes[1], width = attributes[2];
    if (!onnxc_same_size(context, 5, in[1].dims[1])) return context->status;
    double scale = ONNXC_LOAD(float, in[2].data);
    int64_t dims[] = {regions, x.channels, height, width};
    char *y = onnxc_call_output(context, out, attributes[0], x.dtype, 4, dims);
    int64_t words;
    if (!onnxc_add(height, width, &words) || !onnxc_add(words, 2, &words))
        return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, height);
    int64_t *begin = onnxc_call_scratch(context, words, sizeof *begin), room = 0;
    double *lines = onnxc_call_scratch(context, x.width, sizeof *lines);
    if (y == NULL || begin == NULL || lines == NULL) return context->status;
    onnxc_taps rising = {NULL, begin, height, 0, 0}, beside = {NULL, begin + height + 1, width, 0, 0};
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
        /* Cells overlap by less than a pixel at either end, or count one pixel each. */
        int64_t needed = words + words + x.height + x.width;
        if (needed > room) {
            room = needed;
            rising.taps = onnxc_call_scratch(context, room, sizeof *rising.taps);
            if (rising.taps == NULL) return context->status;
        }
        onnxc_collect_pixels(&rising, corner[1], high, x.height);
        beside.taps = rising.taps + rising.begin[height];
        onnxc_collect_pixels(&beside, corner[0], wide, x.width);
        char *to = y + x.size * r * x.channels * height * width;
        onnxc_combine_planes(&x, (int64_t)image, &rising, &beside, lines, 1, to, true);
    }
    return ONNXC_OK;
}
