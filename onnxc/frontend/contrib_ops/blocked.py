"""com.microsoft.nchwc: convolutions and pools on images whose channels are in blocks, as ONNX Runtime's
optimiser saves them (level 3 and above).

How many channels a block has is no part of a model: it is what ONNX Runtime has on the machine that it runs
on, 16 where vectors have 512 bits, 8 where they have 256, else 4. Here the values between are plain images
whose channels are padded with zeros to whole blocks, which all that stands between in such models treats
alike; only the weights, which are stored in blocks, are put back in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from ...errors import UnsupportedError
from ...ir import dims, ops
from ...ir.graph import Value
from ...target import find_target
from ..onnx_ops import pooling, resize
from ..rules import onnx_op
from .fused import FusedConv
from .schema import Scale as Float

nchwc_op = partial(onnx_op, since=1, domain="com.microsoft.nchwc", outputs="Y", ranks={"*": 4})


@cache
def _native_block() -> int:
    """The channels of a block on this machine."""
    return max(4, min(16, find_target().vector_bits // 32))


def block_of(*channels: int) -> int:
    """The channels of a block where such counts of channels are whole blocks."""
    block = _native_block()
    while block > 4 and any(count % block for count in channels):
        block //= 2
    return block


def plain_weights(weights: np.ndarray, group: int) -> np.ndarray:
    """Weights [O, I, h, w], stored as [O / B, I / B, h, w, B, B'] or, where the image has fewer channels than
    a block or each channel has a filter of its own, as [O / B, I, h, w, B'], in the order of their shape."""
    outputs, inputs, *window = weights.shape
    depthwise = group > 1 and inputs == 1 and group == outputs
    block = block_of(outputs)
    if depthwise or (group == 1 and inputs < block):
        stored = weights.reshape(outputs // block, inputs, *window, block)
        return stored.transpose(0, 4, 1, 2, 3).reshape(weights.shape)
    block = block_of(outputs, inputs)
    stored = weights.reshape(outputs // block, inputs // block, *window, block, block)
    return stored.transpose(0, 5, 1, 4, 2, 3).reshape(weights.shape)


def _images(x: Value) -> None:
    if x.rank != 4:
        raise ops.TypeMismatch(f"its input is {x.type} where 4 axes are needed")


@nchwc_op()
def ReorderInput(b, X: Float, *, channels_last=0):
    _images(X)
    x = b.transpose(X, (0, 3, 1, 2)) if channels_last else X
    channels = x.shape[1]
    if not isinstance(channels, int):
        raise UnsupportedError(f"{channels} channels in blocks", "make the number of channels constant")
    missing = -channels % _native_block()
    if missing == 0:
        return x
    shape = (x.shape[0], missing, *x.shape[2:])
    return b.concat([x, b.broadcast(b.constant(0, x.dtype), shape)], 1)


@nchwc_op()
def ReorderOutput(b, X: Float, *, channels=0, channels_last=0):
    _images(X)
    if channels < 1 or dims.less(X.shape[1], channels):
        raise ops.TypeMismatch(f"{channels} channels cannot be taken of {X.type}")
    x = b.take(X, 1, 0, channels)
    return b.transpose(x, (0, 2, 3, 1)) if channels_last else x


@nchwc_op(ranks={"B": 1, "*": 4})
def Conv(
    b,
    X: Float,
    W: Float,
    B: Float | None = None,
    Sum: Float | None = None,
    *,
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    auto_pad="NOTSET",
    dilations: Sequence[int] | None = None,
    group=1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    weights = b.known(W)
    if weights is None:
        raise UnsupportedError("weights in blocks that are not constant")
    if weights.ndim != 4 or weights.shape[0] % 4:
        raise ops.TypeMismatch(f"weights of type {W.type} are not in blocks")
    return FusedConv(
        b,
        X,
        b.constant(plain_weights(weights, group)),
        B,
        Sum,
        activation=activation,
        activation_params=activation_params,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@nchwc_op()
def MaxPool(
    b,
    X: Float,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    storage_order=0,
    strides: Sequence[int] | None = None,
):
    found = pooling.MaxPool(
        b,
        X,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        storage_order=storage_order,
        strides=strides,
    )
    return found[0] if isinstance(found, tuple) else found


@nchwc_op()
def AveragePool(
    b,
    X: Float,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    count_include_pad=0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    return pooling.AveragePool(
        b,
        X,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@nchwc_op()
def GlobalMaxPool(b, X: Float):
    return pooling.GlobalMaxPool(b, X)


@nchwc_op()
def GlobalAveragePool(b, X: Float):
    return pooling.GlobalAveragePool(b, X)


@nchwc_op()
def Upsample(
    b,
    X: Float,
    *,
    coordinate_transformation_mode="asymmetric",
    mode="nearest",
    scales: Sequence[int] | None = None,
):
    """Nearest pixels downwards, or a mean of four."""
    factors = b.constant(np.array(scales or (1,) * X.rank, np.float32))
    return resize.Resize(
        b,
        X,
        None,
        factors,
        coordinate_transformation_mode=coordinate_transformation_mode,
        mode=mode,
        nearest_mode="floor",
    )
