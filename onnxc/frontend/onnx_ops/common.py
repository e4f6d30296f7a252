"""What import rules of several families share: element types, checks, axes, and forms of old operator sets.

Sizes and axes may be numbers, symbolic, or data of the run: everything here works on dimensions, whose comparisons
(`dims.compare`) are 0 or 1, so that one formula serves all three.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

import numpy as np

from ... import dims, dtypes, expr, ops
from ...builder import Builder
from ...dims import Dimension
from ...errors import UnsupportedError
from ...expr import Expr
from ...ir import TensorType, Value
from ..regions import Region
from ..tensors import DTYPE_NAMES
from .control import region_graph
from .rules import Rule, onnx_op

# Element types -----------------------------------------------------------------------------------


def element_type(code: int) -> str:
    """The element type that an attribute names by its number in TensorProto.DataType."""
    name = DTYPE_NAMES.get(code)
    if name is None:
        raise ops.TypeMismatch(f"there is no element type {code}")
    if name not in dtypes.ALL:
        raise UnsupportedError(f"the element type {name}")
    return name


def wide(dtype: str) -> str:
    """The type in which sums and means of dtype are computed: 16-bit floats in float32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def widened(b: Builder, x: Value) -> Value:
    """x in its wide type."""
    return b.cast(x, wide(x.dtype))


def floating(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """The function on integers too: computed in float64 and truncated."""

    def computed(*args: Expr) -> Expr:
        if not dtypes.is_integer(args[0].dtype):
            return function(*args)
        return function(*(a.cast("float64") for a in args)).cast(args[0].dtype)

    return computed


# Values ------------------------------------------------------------------------------------------


def generate(b: Builder, shape: Sequence[Dimension], body: Expr, *operands: Value) -> Value:
    """A tensor of that shape computed from indices (`expr.index`), sizes and operands, which broadcast to it."""
    return b.emit(ops.Map(body, tuple(shape)), *operands)[0]


def zeros(b: Builder, dtype: str, shape: Sequence[Dimension], value: object = 0) -> Value:
    """value repeated to a shape."""
    from ...ir import Constant

    if dims.is_static(shape):
        return b.constant(Constant(dtype, tuple(shape), splat=value))
    return b.broadcast(b.constant(np.asarray(value, dtypes.numpy_dtype(dtype))), shape)


def scalar(b: Builder, x: Value, what: str = "operand") -> Value:
    """x, which has one element, as a tensor without axes."""
    if dims.equal(x.type.count, 1) is False:
        raise ops.TypeMismatch(f"the {what} should have one element, not {x.type.count}")
    return b.reshape(x, ())


def along(b: Builder, vector: Value, axis: int, rank: int) -> Value:
    """A vector as a tensor of that rank that lies along one axis and broadcasts along the others."""
    count = vector.type.count
    return b.reshape(vector, tuple(count if a == axis else 1 for a in range(rank)))


def insert_axes(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """x with axes of size 1 that have these places in the result."""
    shape = list(x.shape)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return b.reshape(x, shape)


def drop_axes(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """x without these axes, which have size 1."""
    return b.reshape(x, [d for a, d in enumerate(x.shape) if a not in axes])


def mean(b: Builder, x: Value, axes: Sequence[int], keepdims: bool = True,
         body: Callable[[Expr], Expr] | None = None) -> Value:
    """The average of body(x) over axes, in x's type."""
    total = b.reduce("sum", x, axes, keepdims, body)
    count = dims.product(x.shape[b.axis(a, x.rank)] for a in axes)
    return b.map(total, lambda t: t / expr.size(count).cast(t.dtype))


def checked(b: Builder, x: Value, condition: Callable[[Expr], Expr], code: str) -> Value:
    """x; the run fails with the error code where the condition on an element is false."""
    return b.map(x, lambda e: expr.check(condition(e), e, code))


def choose(b: Builder, condition: Dimension, type_: TensorType, then: Callable[[Builder], Value],
           otherwise: Callable[[Builder], Value]) -> Value:
    """What `then` builds where the condition, a dimension of value 0 or 1, holds, else what `otherwise` builds."""
    if isinstance(condition, int):
        return (then if condition else otherwise)(b)
    regions = []
    for build in (then, otherwise):
        inner = Builder(b.session, b)
        inner.origin = b.origin
        regions.append(Region(inner, [inner.capture(build(inner))], []))
    captured = list(dict.fromkeys(value for r in regions for value, _ in r.builder.captured()))
    graphs = (region_graph(r, captured) for r in regions)
    truth = b.elements(np.array(condition, object), "bool")
    return b.emit(ops.If(*graphs, (type_,)), truth, *captured)[0]


# Attributes --------------------------------------------------------------------------------------


def integers(values: Sequence[int] | None, count: int, default: int, name: str, least: int | None = None) -> tuple[int, ...]:
    """An attribute of `count` integers, each at least `least`."""
    if not values:
        return (default,) * count
    if len(values) != count:
        raise ops.TypeMismatch(f"the attribute {name} has {len(values)} values where {count} are needed")
    if least is not None and min(values) < least:
        raise ops.TypeMismatch(f"the attribute {name} has the value {min(values)}, less than {least}")
    if max(map(abs, values)) >= 1 << 31:
        raise ops.TypeMismatch(f"the attribute {name} has the value {max(values, key=abs)}, which is out of range")
    return tuple(values)


def one_of(value: object, allowed: Sequence, name: str) -> None:
    """Refuses a value of an attribute that the specification does not list."""
    if value not in allowed:
        texts = ", ".join(map(str, allowed))
        raise ops.TypeMismatch(f"the attribute {name} is {value}, which is none of {texts}")


def length(x: Value | None, expected: Dimension, name: str) -> None:
    """Refuses a vector that is known not to have the expected length."""
    if x is not None and (x.rank != 1 or dims.equal(x.shape[0], expected) is False):
        raise ops.TypeMismatch(f"{name} is {x.type} where a vector of length {expected} is needed")


# Axes that may be data ---------------------------------------------------------------------------


def axis_numbers(b: Builder, axes: Value | Sequence[int], rank: int) -> list[Dimension]:
    """Axes from 0; those outside the rank are refused here where known, else by the run."""
    if isinstance(axes, Value):
        if b.known(axes) is None and axes.elements is None:
            inside = lambda a: (a >= -rank) & (a < rank)  # noqa: E731
            axes = checked(b, b.cast(axes, "int64"), inside, "invalid_value")
        axes = b.dimensions(axes, None, "axis")
    return [b.axis(a, rank) if isinstance(a, int) else a + rank * dims.compare("lt", a, 0) for a in axes]


def named(axes: Sequence[Dimension], rank: int) -> list[Dimension]:
    """For each axis of a rank 1 if it is among axes, else 0."""
    flags = [sum((dims.compare("eq", a, k) for a in axes), 0) for k in range(rank)]
    if any(isinstance(f, int) and f > 1 for f in flags):
        raise ops.TypeMismatch(f"the axes {', '.join(map(str, axes))} repeat one")
    return flags


def without(shape: Sequence[Dimension], flags: Sequence[Dimension], count: int) -> list[Dimension]:
    """The sizes of the axes that are not flagged, of which there are `count`."""
    before, found = 0, [0] * count
    for size, flag in zip(shape, flags):
        for k in range(count):
            found[k] = found[k] + size * (1 - flag) * dims.compare("eq", before, k)
        before = before + 1 - flag
    return found


def with_ones(shape: Sequence[Dimension], flags: Sequence[Dimension]) -> list[Dimension]:
    """The shape with axes of size 1 where a flag is set: the inverse of `without`."""
    before, found = 0, []
    for flag in flags:
        size = sum((d * dims.compare("eq", before, k) for k, d in enumerate(shape)), 0)
        found.append(flag + (1 - flag) * size)
        before = before + 1 - flag
    return found


# Old call forms ----------------------------------------------------------------------------------


def _variant(rule: Callable, attributes: dict[str, object], call: Callable) -> Callable:
    """A rule of operator set 1 under the newer rule's name, with further attributes."""
    signature = inspect.signature(rule)
    extra = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d) for n, d in attributes.items()]

    @functools.wraps(rule)
    def old(*args, **keywords):
        return call(*args, **keywords)

    old.rules = (Rule(rule.__name__, "", 1, old),)
    old.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *extra])
    return old


def with_unused(rule: Callable, **attributes: object) -> Callable:
    """The form of operator set 1 with further attributes, which say nothing about the result."""
    def call(*args, **keywords):
        return rule(*args, **{k: v for k, v in keywords.items() if k not in attributes})

    return _variant(rule, attributes, call)


def with_consumed_inputs(rule: Callable) -> Callable:
    """The form of operator set 1, whose attribute consumed_inputs is about memory."""
    return with_unused(rule, consumed_inputs=None)


def with_axis(rule: Callable, **more: object) -> Callable:
    """The form of operator sets 1 to 6: with `broadcast`, the second operand's axes begin at `axis` of the first."""

    def call(b, A, B, *, broadcast=0, axis=None, consumed_inputs=None):
        if broadcast and axis is not None:
            first = b.axis(axis, A.rank)
            if first + B.rank > A.rank:
                raise ops.TypeMismatch(f"{B.type} does not fit into {A.type} from axis {first}")
            B = b.reshape(B, (*B.shape, *(1,) * (A.rank - first - B.rank)))
        return rule(b, A, B)

    return _variant(rule, {"broadcast": 0, "axis": None, **more}, call)


__all__ = [
    "along", "axis_numbers", "checked", "choose", "drop_axes", "element_type", "floating", "generate",
    "insert_axes", "integers", "length", "mean", "named", "one_of", "onnx_op", "scalar", "wide", "widened",
    "with_axis", "with_consumed_inputs", "with_ones", "with_unused", "without", "zeros",
]
