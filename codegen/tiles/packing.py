"""Packing: a matrix B[k, n] stored as [N/NR][K][NR], in compiled constants and by code at run time.

A tile streams through its panel from the first byte to the last. The last panel is as wide as the
vectors that it needs; what its columns beyond N hold is never stored. For tiles with a dot product `group`
neighbours along k stand together, [K/group][NR][group], zeros behind the last of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir import dtypes
from ..text.emitter import Function, is_number, memory_type, vector_type
from ..text.memory import load_first
from ..text.shuffles import transpose


def padded(columns: int, lanes: int) -> int:
    """So many columns as whole vectors of lanes."""
    return -(-columns // lanes) * lanes


def pack_columns(
    matrix: np.ndarray, width: int, lanes: int, group: int = 1, widened: bool = False
) -> np.ndarray:
    """matrix [..., K, N] as [..., K' * N'] in panels of `width` columns, N' being N rounded up to lanes, K'
    being K rounded up to groups, whose elements stand in pairs where dot products have `widened` operands."""
    if group > 1:
        rows = _grouped(matrix, group)
        return pack_columns(in_pairs(rows, lanes) if widened else rows, width * group, lanes * group)
    *batch, depth, columns = matrix.shape
    total = padded(columns, lanes)
    result = np.zeros((*batch, depth * total), matrix.dtype)
    for first in range(0, columns, width):
        present, wide = min(width, columns - first), min(width, total - first)
        panel = result[..., depth * first : depth * (first + wide)]
        panel = panel.reshape(*batch, depth, wide)  # a view: the panel is contiguous
        panel[..., :present] = matrix[..., first : first + present]
    return result


def _grouped(matrix: np.ndarray, group: int) -> np.ndarray:
    """[..., K, N] → [..., K'/group, N * group], with zeros behind the last row."""
    *batch, depth, columns = matrix.shape
    count = padded(depth, group) // group
    rows = np.zeros((*batch, count * group, columns), matrix.dtype)
    rows[..., :depth, :] = matrix
    groups = rows.reshape(*batch, count, group, columns).swapaxes(-1, -2)
    return groups.reshape(*batch, count, columns * group)


def in_pairs(rows: np.ndarray, lanes: int) -> np.ndarray:
    """[..., columns * 4], where a column has four elements, as [..., vectors, 2, lanes, 2]: of each vector
    the elements 0 and 2 of its columns, then the elements 1 and 3; zeros behind the last column."""
    *batch, count = rows.shape
    vectors = -(-count // (4 * lanes))
    padding = [(0, 0)] * len(batch) + [(0, 4 * lanes * vectors - count)]
    fours = np.pad(rows, padding).reshape(*batch, vectors, lanes, 2, 2)
    return np.moveaxis(fours, -1, -3).reshape(*batch, 4 * lanes * vectors)


def pack_panel(
    f: Function,
    dtype: str,
    lanes: int,
    vectors: int,
    source: str,
    target: str,
    depth: int | str,
    k_stride: int | str,
    n_stride: int | str,
    columns: int | str,
    group: int = 1,
    whole: int = 1,
) -> str:
    """Writes a panel [depth][vectors * lanes] at `target` from the elements at
    source + k * k_stride + n * n_stride (bytes), of which the first `columns` columns exist; returns
    the address behind it. `group` neighbours along k stand together, and zeros fill the last `whole` of
    them up."""
    size, width = dtypes.itemsize(dtype), vectors * lanes
    dtype = f"int{8 * size}"  # only moved, so any type of the size will do
    if group > 1:
        end = _pack_groups(f, dtype, width, source, target, depth, k_stride, n_stride, columns, group)
        if whole <= group:
            return end
        behind = f.mul(f.round_down(f.add(depth, whole - 1), whole), width * size)
        with f.loop(f.mul(f.round_down(f.add(depth, group - 1), group), width * size), behind) as loop:
            f.store("i8", "0", f.offset(target, loop.index))
        return f.offset(target, behind)
    if str(n_stride) == str(size):
        _copy_rows(f, dtype, lanes, vectors, source, target, depth, k_stride, columns)
    else:
        _gather(f, dtype, lanes, vectors, source, target, depth, k_stride, n_stride, columns)
    return f.offset(target, f.mul(depth, width * size))


def _pack_groups(
    f: Function,
    dtype: str,
    width: int,
    source: str,
    target: str,
    depth: int | str,
    k_stride: int | str,
    n_stride: int | str,
    columns: int | str,
    group: int,
) -> str:
    """[depth / group][width][group]: a word holds a group of one column. Where neighbours along k are
    neighbours in memory it is read as it is."""
    size, last = dtypes.itemsize(dtype), f.sub(columns, 1)
    word, element = f"i{8 * size * group}", memory_type(dtype)
    groups, rest = f.divide(depth, group)

    def write(index: str, read: Callable[[str], str]) -> None:
        """One group of every column: `read` gives its word from the address of its first element."""
        row = f.offset(source, f.mul(f.mul(index, group), k_stride))
        out = f.offset(target, f.mul(index, width * group * size))
        with f.loop(0, width) as n:
            value = read(f.offset(row, f.mul(f.minimum(n.index, last), n_stride)))
            f.store(word, value, f.element(out, n.index, group * size), group * size)

    def several(at: str, count: int | str) -> str:
        """Of `count` elements, the others zero."""
        value = "0"
        for k in range(group if not is_number(count) else int(count)):
            place = f.offset(at, f.mul(f.minimum(k, f.sub(count, 1)), k_stride))
            one = f.cast("zext", f.load(element, place, size), word)
            if not is_number(count):
                one = f.select(f.compare("slt", k, count), word, one, "0")
            value = f.binary("or", value, f.binary("shl", one, 8 * size * k, word), word)
        return value

    whole = str(k_stride) == str(size)
    with f.loop(0, groups) as loop:
        write(loop.index, lambda at: f.load(word, at, size) if whole else several(at, group))
    if rest != "0":
        with f.loop(0, f.minimum(rest, 1)):
            write(groups, lambda at: several(at, rest))
    steps, _ = f.divide(f.add(depth, group - 1), group)
    return f.offset(target, f.mul(steps, width * group * size))


def _copy_rows(
    f: Function,
    dtype: str,
    lanes: int,
    vectors: int,
    source: str,
    target: str,
    depth: int | str,
    k_stride: int | str,
    columns: int | str,
) -> None:
    size = dtypes.itemsize(dtype)
    vector = vector_type(memory_type(dtype), lanes)
    with f.loop(0, depth) as loop:
        row = f.offset(source, f.mul(loop.index, k_stride))
        out = f.offset(target, f.mul(loop.index, vectors * lanes * size))
        for j in range(vectors):
            count = _left(f, columns, j * lanes)
            loaded = load_first(f, dtype, lanes, f.offset(row, j * lanes * size), count)
            f.store(vector, loaded, f.offset(out, j * lanes * size), lanes * size)


def _left(f: Function, columns: int | str, before: int) -> int | str:
    return columns - before if isinstance(columns, int) else f.sub(columns, before)


def _gather(
    f: Function,
    dtype: str,
    lanes: int,
    vectors: int,
    source: str,
    target: str,
    depth: int | str,
    k_stride: int | str,
    n_stride: int | str,
    columns: int | str,
) -> None:
    """Columns far apart: where a column is contiguous, squares of lanes x lanes are transposed; the
    rest goes one by one."""
    size, width, element = dtypes.itemsize(dtype), vectors * lanes, memory_type(dtype)
    vector = vector_type(element, lanes)
    last = f.sub(columns, 1)
    whole: int | str = 0
    if str(k_stride) == str(size):
        whole = f.round_down(depth, lanes)
        with f.loop(0, vectors) as j, f.loop(0, whole, lanes) as k:
            rows = []
            for lane in range(lanes):
                column = f.minimum(f.add(f.mul(j.index, lanes), lane), last)
                place = f.offset(f.offset(source, f.mul(column, n_stride)), f.mul(k.index, size))
                rows.append(f.load(vector, place, size))
            for lane, row in enumerate(transpose(f, rows, vector_type(element, lanes))):
                out = f.offset(target, f.mul(f.add(k.index, lane), width * size))
                f.store(vector, row, f.offset(out, f.mul(j.index, lanes * size)), lanes * size)
    with f.loop(whole, depth) as k, f.loop(0, width) as n:
        column = f.minimum(n.index, last)
        place = f.offset(f.offset(source, f.mul(column, n_stride)), f.mul(k.index, k_stride))
        out = f.element(target, f.add(f.mul(k.index, width), n.index), size)
        f.store(element, f.load(element, place, size), out, size)
