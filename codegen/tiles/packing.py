"""Panels: a matrix B[k, n] stored as [N/NR][K][NR], in compiled constants and by code at run time.

A tile streams through its panel from the first byte to the last. The last panel is as wide as the
vectors that it needs; what its columns beyond N hold is never stored.
"""

from __future__ import annotations

import numpy as np

from ...ir import dtypes
from ..text.emitter import Function, memory_type, vector_type
from ..text.memory import load_first
from ..text.shuffles import transpose


def padded(columns: int, lanes: int) -> int:
    return -(-columns // lanes) * lanes


def pack_columns(matrix: np.ndarray, width: int, lanes: int) -> np.ndarray:
    """matrix [..., K, N] as [..., K * N'] in panels of `width` columns, N' being N rounded up to lanes."""
    *batch, depth, columns = matrix.shape
    total = padded(columns, lanes)
    result = np.zeros((*batch, depth * total), matrix.dtype)
    for first in range(0, columns, width):
        present, wide = min(width, columns - first), min(width, total - first)
        panel = result[..., depth * first : depth * (first + wide)]
        panel = panel.reshape(*batch, depth, wide)  # a view: the panel is contiguous
        panel[..., :present] = matrix[..., first : first + present]
    return result


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
) -> str:
    """Writes a panel [depth][vectors * lanes] at `target` from the elements at
    source + k * k_stride + n * n_stride (bytes), of which the first `columns` columns exist; returns
    the address behind it."""
    size, width = dtypes.itemsize(dtype), vectors * lanes
    dtype = f"int{8 * size}"  # only moved, so any type of the size will do
    if str(n_stride) == str(size):
        _copy_rows(f, dtype, lanes, vectors, source, target, depth, k_stride, columns)
    else:
        _gather(f, dtype, lanes, vectors, source, target, depth, k_stride, n_stride, columns)
    return f.offset(target, f.mul(depth, width * size))


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
