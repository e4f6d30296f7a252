"""Pools in groups with conversions of what they read and give."""

from onnxc.ir import dims, expr
from onnxc.ir.graph import Graph, TensorType, Value, make_node
from onnxc.ir.ops import Fused, Map, Pool


def halves(dtype):
    """Conversions from and to a 16-bit float."""
    return expr.input_(0, dtype).cast("float32"), expr.input_(0, "float32").cast(dtype)


def codes(dtype, zero):
    """Conversions from and to integers with a scale and a zero point."""
    number = (expr.input_(0, dtype).cast("int32") - zero).cast("float32") * 0.25
    code = expr.round_(expr.input_(0, "float32") / 0.5) + float(zero)
    low, high = (-128.0, 127.0) if dtype == "int8" else (0.0, 255.0)
    return number, code.clip(low, high).cast(dtype)


def group(op: Pool, shape, dtype, before, after, *others: TensorType) -> Fused:
    """The pool of what `before` makes of an image of the type, and `after` of its results and of others;
    None: as it is."""
    x, *besides = (Value(t) for t in (TensorType(dtype, shape), *others))
    nodes = []
    if before is not None:
        nodes.append(make_node(Map(before), [x]))
    nodes.append(make_node(op, nodes[-1].outputs if nodes else [x]))
    if after is not None:
        nodes.append(make_node(Map(after), [*nodes[-1].outputs, *besides]))
    return Fused("pool", Graph((x, *besides), nodes[-1].outputs, tuple(nodes)))


def windows(kind, shape, kernel, strides=1, pads=0, dilations=1, ceil=False):
    """A Pool of images of a shape. Numbers stand for all axes; `pads` may give (before..., after...)."""
    rank = len(shape) - 2

    def every(value, count):
        return tuple(value) if isinstance(value, tuple) else (value,) * count

    kernel, strides, pads = every(kernel, rank), every(strides, rank), every(pads, 2 * rank)
    dilations, sizes = every(dilations, rank), []
    for a, size in enumerate(shape[2:]):
        free = size + pads[a] + pads[a + rank] - (kernel[a] - 1) * dilations[a] - 1
        count = dims.floor_divide(free, strides[a]) + 1
        if ceil:
            starts = dims.floor_divide(size + pads[a] - 1, strides[a]) + 1
            count = dims.minimum(dims.ceil_divide(free, strides[a]) + 1, starts)
        sizes.append(count)
    return Pool(kind, kernel, strides, pads, dilations, tuple(sizes))
