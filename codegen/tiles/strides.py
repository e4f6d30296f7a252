"""Strides of dense arrays, of operands that repeat, and of axes that lie in memory like one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir import dims
from ...ir.dims import Dimension


def row_major(shape: Sequence[Dimension], step: Dimension = 1) -> tuple[Dimension, ...]:
    """From one element to the next along each axis of a dense array, in units of which an element has
    `step`."""
    strides: list[Dimension] = []
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def broadcast_stride(stride: Dimension, size: Dimension, whole: Dimension) -> Dimension:
    """The stride of an axis of `size` in a loop over `whole`: 0 where it repeats, chosen by the run where
    only it can tell."""
    return stride * (1 - dims.repeats(size, whole))


def continues(outer: Iterable[Dimension], inner: Iterable[Dimension], size: Dimension) -> bool:
    """Whether a loop whose operands have the strides `outer` goes on, for every one, where `size` steps of
    the loop inside it end, so that the two are one."""
    return all(dims.equal(o, i * size) is True for o, i in zip(outer, inner, strict=True))
