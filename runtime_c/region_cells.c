/* SPDX-License-Identifier: Apache-2.0 */
/* region_cells.c - what cells of regions make of images of one type, ONNXC_NUMBER; a part of ops_regions.c. */

/* The sum of two numbers, or the greater one: the first where they do not compare. */
static inline ONNXC_NUMBER ONNXC_TYPED(onnxc_combined)(ONNXC_NUMBER a, ONNXC_NUMBER b, bool greatest) {
    return greatest ? b > a ? b : a : a + b;
}

/* `count` columns of a plane from its row 0 at `plane` on, each as what taps along it make of it. */
ONNXC_HERE void ONNXC_TYPED(onnxc_combine_rows)(const ONNXC_NUMBER *plane, int64_t pitch, const onnxc_tap *taps,
                                                int64_t rows, int64_t count, ONNXC_NUMBER *to, bool greatest) {
    ONNXC_NUMBER found[ONNXC_COLUMNS];
    bool outside = greatest && onnxc_has_outside(taps, rows);
    const ONNXC_NUMBER *begin = plane + taps[0].pixel * pitch;
    for (int64_t k = 0; k < count; k++)
        found[k] = greatest && !outside ? (ONNXC_NUMBER)taps[0].weight * begin[k] : 0;
    for (int64_t t = greatest; t < rows; t++) {
        const ONNXC_NUMBER *from = plane + taps[t].pixel * pitch;
        ONNXC_NUMBER weight = (ONNXC_NUMBER)taps[t].weight;
        for (int64_t k = 0; k < count; k++)
            found[k] = ONNXC_TYPED(onnxc_combined)(found[k], weight * from[k], greatest);
    }
    for (int64_t k = 0; k < count; k++) to[k] = found[k];
}

/* All cells of a plane: for a row of cells first the columns from the first that any counts to the last (`lines`, as
 * long as the plane's rows), many at a time, or those alone that any counts where they are few, then each cell. A cell
 * that counts none is 0. */
ONNXC_HERE void ONNXC_TYPED(onnxc_combine_cells)(const ONNXC_NUMBER *plane, int64_t width, const onnxc_taps *down,
                                                 const onnxc_taps *across, ONNXC_NUMBER *lines, ONNXC_NUMBER share,
                                                 ONNXC_NUMBER *to, bool greatest) {
    int64_t together = width >= ONNXC_COLUMNS ? ONNXC_COLUMNS : width >= 4 ? 4 : 1;
    int64_t counted = across->begin[across->cells];
    bool few = ONNXC_APART * counted < across->end - across->first;
    for (int64_t row = 0; row < down->cells; row++) {
        const onnxc_tap *taps = down->taps + down->begin[row];
        int64_t rows = down->begin[row + 1] - down->begin[row];
        for (int64_t t = 0; few && t < counted && rows > 0; t++) {
            int64_t at = across->taps[t].pixel;
            ONNXC_TYPED(onnxc_combine_rows)(plane + at, width, taps, rows, 1, lines + at, greatest);
        }
        for (int64_t column = across->first; !few && column < across->end && rows > 0; column += together) {
            int64_t at = column < width - together ? column : width - together;
            const ONNXC_NUMBER *from = plane + at;
            ONNXC_NUMBER *line = lines + at;
            if (together == ONNXC_COLUMNS)
                ONNXC_TYPED(onnxc_combine_rows)(from, width, taps, rows, ONNXC_COLUMNS, line, greatest);
            else if (together == 4) ONNXC_TYPED(onnxc_combine_rows)(from, width, taps, rows, 4, line, greatest);
            else ONNXC_TYPED(onnxc_combine_rows)(from, width, taps, rows, 1, line, greatest);
        }
        for (int64_t cell = 0; cell < across->cells; cell++) {
            int64_t first = across->begin[cell], end = rows > 0 ? across->begin[cell + 1] : first;
            bool outside = greatest && onnxc_has_outside(across->taps + first, end - first);
            ONNXC_NUMBER found = 0;
            if (greatest && first < end && !outside)
                found = (ONNXC_NUMBER)across->taps[first].weight * lines[across->taps[first].pixel];
            for (int64_t t = first + greatest; t < end; t++) {
                ONNXC_NUMBER weight = (ONNXC_NUMBER)across->taps[t].weight;
                found = ONNXC_TYPED(onnxc_combined)(found, weight * lines[across->taps[t].pixel], greatest);
            }
            *to++ = found * share;
        }
    }
}
