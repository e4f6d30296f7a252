"""Models that leave every size of their inputs open, and inputs of other sizes for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx


def opened(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself, each size of whose inputs is now a variable of its own."""
    for port in proto.graph.input:
        for axis, size in enumerate(port.type.tensor_type.shape.dim):
            size.dim_param = f"{port.name}_{axis}"
    return proto


def resized(x: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(axis, x with one more element along it, with one alone, or with none), of every axis; what is added is
    what was last there, or 0."""
    for axis, size in enumerate(x.shape):
        for count in sorted({size + 1, 1, 0} - {size}):
            last = (
                x.take([-1], axis) if size else np.zeros((*x.shape[:axis], 1, *x.shape[axis + 1 :]), x.dtype)
            )
            yield axis, np.concatenate([x, last], axis).take(range(count), axis)
