"""Import rules of convolutions and pools: attributes become the pads, strides and sizes of Conv and
Pool.

Integer forms subtract the zero points first, so that padding stays zero. Spatial sizes may be
symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.graph import Value
from ...records import dataclass
from ..rules import onnx_op
from .common import (
    along,
    generate,
    integers,
    one_of,
    require,
    require_least,
    scalar,
    wide,
    with_channels,
    with_length,
    with_shape,
    zeros,
)
from .quantization import centred, quantised, refuse_bad_scale

# Windows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """Where a kernel is laid over the spatial axes; pads are (before..., after...)."""

    kernel: tuple[Dimension, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dimension, ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def extents(self) -> tuple[Dimension, ...]:
        """How far the kernel reaches along each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations))

    def padding(self, axis: int) -> Dimension:
        return self.pads[axis] + self.pads[axis + self.rank]

    def sizes(self, image: Sequence[Dimension], round_up: bool = False) -> tuple[Dimension, ...]:
        """The number of windows along each axis, none where the padded image lacks a stride at most. Rounding
        up, the last must still start inside the image or before it, and may be greater than the image."""
        found = []
        for axis, (size, extent, stride) in enumerate(zip(image, self.extents, self.strides)):
            padded = size + self.padding(axis)
            free = padded - extent
            count = dims.floor_divide(free, stride) + 1
            if round_up:
                starts = dims.floor_divide(size + self.pads[axis] - 1, stride) + 1
                count = dims.minimum(dims.ceil_divide(free, stride) + 1, starts)
            if isinstance(count, int) and count < 0:
                raise ops.TypeMismatch(f"a kernel of {extent} is greater than an axis of {padded}")
            found.append(count)
        return tuple(found)


def window(
    x: Value,
    kernel: Sequence[Dimension],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Window:
    """The window over x [N, C, spatial...] that the attributes describe."""
    rank = len(kernel)
    if x.rank != rank + 2 or rank < 1:
        raise ops.TypeMismatch(f"{x.type} is no batch of images for a kernel of {rank} axes")
    if any(isinstance(k, int) and k < 1 for k in kernel):
        raise ops.TypeMismatch(f"the kernel has the size {min(k for k in kernel if isinstance(k, int))}")
    strides = integers(strides, rank, 1, "strides", 1)
    dilations = integers(dilations, rank, 1, "dilations", 1)
    auto_pad = auto_pad or "NOTSET"  # as some exporters write it
    one_of(auto_pad, ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"), "auto_pad")
    if auto_pad == "NOTSET":
        return Window(tuple(kernel), strides, dilations, integers(pads, 2 * rank, 0, "pads", 0))
    plain = Window(tuple(kernel), strides, dilations, (0,) * (2 * rank))
    if auto_pad == "VALID":
        return plain
    totals = [
        0 if extent == 1 else dims.maximum((dims.ceil_divide(size, stride) - 1) * stride + extent - size, 0)
        for size, stride, extent in zip(x.shape[2:], strides, plain.extents)
    ]
    return Window(tuple(kernel), strides, dilations, _halved(totals, auto_pad == "SAME_UPPER"))


def _halved(totals: Sequence[Dimension], more_after: bool) -> tuple[Dimension, ...]:
    """Pads of these totals, an odd element after the image or before it."""
    small = [dims.floor_divide(t, 2) for t in totals]
    large = [t - s for t, s in zip(totals, small)]
    return tuple([*small, *large] if more_after else [*large, *small])


# Convolutions ------------------------------------------------------------------------------------


def kernel_of(b: Builder, w: Value, kernel_shape: Sequence[int] | None) -> tuple[Dimension, ...]:
    """The sizes of the weights' kernels, which are those of the attribute where there is one."""
    shape = w.shape[2:]
    if not kernel_shape:
        return shape
    if len(kernel_shape) != len(shape) or any(dims.equal(k, s) is False for k, s in zip(kernel_shape, shape)):
        raise ops.TypeMismatch(f"kernel_shape {tuple(kernel_shape)} does not fit the weights {w.type}")
    require(b, zip(shape, kernel_shape), f"a kernel of {w.type}")
    return tuple(kernel_shape)


def _checked_groups(x: Value, w: Value, group: int, transposed: bool = False) -> None:
    if group < 1:
        raise ops.TypeMismatch(f"the number of groups is {group}")
    if w.rank < 3 or x.rank != w.rank:
        raise ops.TypeMismatch(f"{x.type} and {w.type} are no images and kernels of the same rank")
    what = "input channels" if transposed else "kernels"
    if isinstance(w.shape[0], int) and w.shape[0] % group:
        raise ops.TypeMismatch(f"the {w.shape[0]} {what} of {w.type} are not divisible into {group} groups")


def convolved(
    b: Builder,
    x: Value,
    w: Value,
    place: Window,
    group: int,
    bias: Value | None = None,
    accumulate: str | None = None,
) -> Value:
    """The convolution, plus the bias of each output channel."""
    _checked_groups(x, w, group)
    x = with_channels(b, x, w.shape[1] * group)
    for axis, (size, extent) in enumerate(zip(x.shape[2:], place.extents)):
        padding = place.padding(axis)
        if isinstance(padding, int):
            padded, least = size + padding, extent
        else:  # a padding that makes up for what an image lacks
            padded, least = size, 1
        require_least(b, padded, least, f"{x.type} is smaller than the kernel of {w.type}")
    exact = accumulate or wide(x.dtype)
    epilogue = None if exact == x.dtype or accumulate else expr.input_(0, exact).cast(x.dtype)
    op = ops.Conv(place.strides, place.pads, place.dilations, group, accumulate=exact, epilogue=epilogue)
    return biased(b, b.emit(op, x, w)[0], bias)


def biased(b: Builder, y: Value, bias: Value | None) -> Value:
    """y plus the bias of each channel."""
    if bias is None:
        return y
    bias = with_length(b, bias, y.shape[1], "the bias")
    return b.map(y, along(b, bias, 0, y.rank - 1), lambda e, c: e + c)


@onnx_op(since=1, ranks={"X": "n", "W": "n", "B": 1})
def Conv(
    b, X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None
):
    place = window(X, kernel_of(b, W, kernel_shape), strides, dilations, pads, auto_pad)
    return convolved(b, X, W, place, group, B)


@onnx_op(since=1, ranks={"X": "n", "W": "n", "B": 1})
def ConvTranspose(
    b,
    X,
    W,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    output_padding=None,
    output_shape=None,
    pads=None,
    strides=None,
):
    """Sizes (in - 1) * stride + extent + output_padding - pads; a given output shape decides the
    pads."""
    _checked_groups(X, W, group, transposed=True)
    X = with_channels(b, X, W.shape[0])
    one_of(auto_pad, ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"), "auto_pad")
    place = window(
        X,
        kernel_of(b, W, kernel_shape),
        strides,
        dilations,
        pads,
        auto_pad if auto_pad == "NOTSET" else "VALID",
    )
    more = integers(output_padding, place.rank, 0, "output_padding", 0)
    wanted: Sequence[Dimension] | None = None
    if output_shape:
        wanted = integers(output_shape[-place.rank :], place.rank, 0, "output_shape", 0)
    elif auto_pad.startswith("SAME"):
        wanted = [d * s for d, s in zip(X.shape[2:], place.strides)]
    border = place.pads
    if wanted is not None:
        reach = [(d - 1) * s + e for d, s, e in zip(X.shape[2:], place.strides, place.extents)]
        border = _halved([r + m - w for r, m, w in zip(reach, more, wanted)], auto_pad == "SAME_UPPER")
    exact = wide(X.dtype)
    epilogue = None if exact == X.dtype else expr.input_(0, exact).cast(X.dtype)
    op = ops.Conv(place.strides, border, place.dilations, group, True, more, exact, epilogue)
    return biased(b, b.emit(op, X, W)[0], B)


def by_channels(b: Builder, x: Value, w: Value, bias: Value | None = None, dilation: int = 1) -> Value:
    """A convolution along the last of three axes of each channel with a kernel of its own."""
    channels, _, taps = w.shape
    place = window(x, (taps,), None, [dilation], None, "NOTSET")
    if isinstance(channels, int):
        return convolved(b, x, w, place, channels, bias)
    # only the run knows how many groups: a product of each channel's windows with its kernel
    times = x.shape[2] - (place.extents[0] - 1)
    places = generate(b, (times, taps), expr.index(0) + expr.index(1) * dilation)
    windows = b.emit(ops.Gather("axis", 2), x, places)[0]
    return biased(b, b.contract("nctk", "ck", "nct", windows, b.reshape(w, (channels, taps))), bias)


def state_before(b: Builder, x: Value, past: Value | None, length: Dimension) -> Value:
    """What is before x [batch, channels, ...], so many elements of each channel: zeros, or a state."""
    shape = (*x.shape[:2], length)
    return zeros(b, x.dtype, shape) if past is None else with_shape(b, past, shape, "past_state")


@onnx_op(since=27, ranks={"input": 3, "weight": 3, "bias": 1, "past_state": 3})
def CausalConvWithState(b, input, weight, bias=None, past_state=None, *, activation="none"):
    """A convolution of each channel with its past, which is zeros or the state that the last
    call gave."""
    one_of(activation, ("none", "silu", "swish"), "activation")
    if input.rank != 3 or weight.rank != 3:
        raise ops.TypeMismatch(f"the weights {weight.type} do not fit {input.type}")
    past = weight.shape[2] - 1
    if past_state is None:
        whole = b.emit(ops.Pad("constant", (0, 0, past), (0, 0, 0)), input, zeros(b, input.dtype, ()))[0]
    else:
        whole = b.concat([state_before(b, input, past_state, past), input], 2)
    y = by_channels(b, whole, weight, bias)
    state = b.take(whole, 2, whole.shape[2] - past, past)
    if activation == "none":
        return y, state
    return b.map(
        y, lambda e: (e.cast(wide(e.dtype)) * expr.sigmoid(e.cast(wide(e.dtype)))).cast(e.dtype)
    ), state


@onnx_op(since=10, ranks={"x": "n", "w": "n", "x_zero_point": "<=1", "w_zero_point": "<=1"})
def ConvInteger(
    b,
    x,
    w,
    x_zero_point=None,
    w_zero_point=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    place = window(x, kernel_of(b, w, kernel_shape), strides, dilations, pads, auto_pad)
    data = _centred(b, x, x_zero_point, 1, "x_zero_point")
    kernels = _centred(b, w, w_zero_point, w.shape[0], "w_zero_point")
    return convolved(b, data, kernels, place, group, None, "int32")


def _centred(b: Builder, x: Value, zero: Value | None, count: Dimension, name: str) -> Value:
    """x - zero; a vector has so many zero points, one for each kernel."""
    known = b.known(zero)
    if zero is None or (known is not None and not known.any()):
        return x
    return b.map(x, _per_kernel(b, zero, count, x.rank, name), centred)


def _per_kernel(b: Builder, value: Value, count: Dimension, rank: int, name: str) -> Value:
    if value.tensor.count == 1 or count == 1:
        return scalar(b, value, name)
    if value.rank != 1 or dims.equal(value.shape[0], count) is False:
        raise ops.TypeMismatch(f"{name} is {value.type} where a vector of length {count} is needed")
    return along(b, b.emit(ops.Broadcast((count,)), value)[0], 0, rank)


@onnx_op(since=10, ranks={"x": "n", "w": "n", "B": 1, "*": "<=1"})
def QLinearConv(
    b,
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    for scale in (x_scale, w_scale, y_scale):
        refuse_bad_scale(b, scale, divides=scale is y_scale)
    place = window(x, kernel_of(b, w, kernel_shape), strides, dilations, pads, auto_pad)
    data = _centred(b, x, x_zero_point, 1, "x_zero_point")
    kernels = _centred(b, w, w_zero_point, w.shape[0], "w_zero_point")
    total = convolved(b, data, kernels, place, group, B, "int32")
    per_channel = _per_kernel(b, w_scale, w.shape[0], total.rank - 1, "w_scale")
    x_step, y_step = scalar(b, x_scale, "x_scale"), scalar(b, y_scale, "y_scale")
    factor = b.map(x_step, per_channel, y_step, lambda p, q, r: p * q / r)
    zero = scalar(b, y_zero_point, "y_zero_point")
    return b.map(total, factor, zero, lambda t, f, z: quantised(t.cast("float32") * f, z, y_zero_point.dtype))
