"""What import rules of several families share: element types, checks, axes, and forms of old
operator sets.

Axes are nearly always known. Where they are data, tensors of one element an axis are computed by
the run and bound to fresh dimensions, so that ranks stay known and only sizes depend on the run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ...errors import LimitError
from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Constant, TensorType, Value
from ...ir.interpret import VALUE_LIMIT
from ..rule_builder import MOST_SIZES, Region, decided, emit_if
from ..rules import Rule
from ..tensors import DTYPE_NAMES

# Element types -----------------------------------------------------------------------------------


def element_type(code: int, attribute: str) -> str:
    """The element type that an attribute names by its number in TensorProto.DataType."""
    name = DTYPE_NAMES.get(code)
    if name is None:
        raise ops.TypeMismatch(f"the attribute {attribute} is {code}, which is no element type")
    return name


def wide(dtype: str) -> str:
    """The type in which sums and means of dtype are computed: 16-bit floats in float32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def widened(b: Builder, x: Value) -> Value:
    """x in its wide type."""
    return b.cast(x, wide(x.dtype))


def floating(function: Callable[..., Expr], *numbers: float) -> Callable[..., Expr]:
    """The function on integers too: computed in float64 and truncated, unless it computes with `numbers` that
    are all of the integers' type, which is then exact."""

    def computed(*args: Expr) -> Expr:
        dtype = args[0].dtype
        if not dtypes.is_integer(dtype) or (numbers and all(_holds(dtype, n) for n in numbers)):
            return function(*args)
        return function(*(a.cast("float64") for a in args)).cast(dtype)

    return computed


def _holds(dtype: str, number: float) -> bool:
    """Whether a number is one of an integer type."""
    low, high = dtypes.integer_range(dtype)
    return low <= number <= high and number == int(number)


# Values ------------------------------------------------------------------------------------------


def generate(b: Builder, shape: Sequence[Dimension], body: Expr, *operands: Value) -> Value:
    """A tensor of that shape computed from indices (`expr.index`), sizes and operands, which
    broadcast to it."""
    return b.emit(ops.Map(body, tuple(shape)), *operands)[0]


def zeros(b: Builder, dtype: str, shape: Sequence[Dimension], value: object = 0) -> Value:
    """value repeated to a shape, the empty text for 0; a constant where that is not too large to be
    stored."""
    whole, value = tuple(shape), "" if dtype == "string" and value == 0 else value
    if dims.is_static(whole) and dims.product(whole) * dtypes.itemsize(dtype) <= VALUE_LIMIT:
        return b.constant(Constant(dtype, whole, splat=value))
    return b.broadcast(b.constant(np.asarray(value, dtypes.numpy_dtype(dtype))), shape)


def scalar(b: Builder, x: Value, what: str = "operand") -> Value:
    """x, which has one element, as a tensor without axes."""
    if dims.equal(x.tensor.count, 1) is False:
        raise ops.TypeMismatch(f"the {what} should have one element, not {x.tensor.count}")
    return b.reshape(x, ())


def along(b: Builder, vector: Value, axis: int, rank: int) -> Value:
    """A vector as a tensor of that rank that lies along one axis and broadcasts along the
    others."""
    count = vector.tensor.count
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


def mean(
    b: Builder,
    x: Value,
    axes: Sequence[int],
    keepdims: bool = True,
    body: Callable[[Expr], Expr] | None = None,
) -> Value:
    """The average of body(x) over axes, in x's type."""
    total = b.reduce("sum", x, axes, keepdims, body)
    count = dims.product(x.shape[b.axis(a, x.rank)] for a in axes)
    return b.map(total, lambda t: t / expr.size(count).cast(t.dtype))


def with_size(b: Builder, x: Value, axis: int, size: Dimension) -> Value:
    """x, whose size along an axis must be this one; what is not certain the run checks."""
    return b.reshape(x, (*x.shape[:axis], size, *x.shape[axis + 1 :]))


def with_length(b: Builder, x: Value, length: Dimension, name: str) -> Value:
    """x, which must be a vector of this length; what is not certain the run checks. A number is kept, as it
    tells more than a variable."""
    if x.rank != 1 or dims.equal(x.shape[0], length) is False:
        raise ops.TypeMismatch(f"{name} is {x.type} where a vector of length {length} is needed")
    return with_shape(b, x, (length,), name)


def with_shape(b: Builder, x: Value, shape: Sequence[Dimension], name: str) -> Value:
    """x, which must have this shape; what is not certain the run checks. Its numbers are kept, as
    `with_length`."""
    if x.rank != len(shape) or any(dims.equal(c, d) is False for c, d in zip(x.shape, shape)):
        raise ops.TypeMismatch(f"{name} is {x.type} where {TensorType(x.dtype, tuple(shape))} is needed")
    require(b, zip(x.shape, shape), name)
    return b.reshape(x, [c if isinstance(c, int) else d for c, d in zip(x.shape, shape)])


def with_channels(b: Builder, x: Value, channels: Dimension) -> Value:
    """Images with as many channels as a parameter tells, where only the run tells their own: it checks that.
    Nodes before and behind the parameter are then over one shape."""
    known = not isinstance(channels, int) or x.rank < 2 or isinstance(x.shape[1], int)
    return x if known else with_size(b, x, 1, channels)


def fitted(b: Builder, whole: Value, x: Value, name: str) -> tuple[Value, Value]:
    """(whole, x), of which x must repeat to the shape of whole and may not widen it; what is not certain the
    run checks. Where only x has a number for the size of an axis, that is the size of both."""
    lead = whole.rank - x.rank
    sizes = [*zip(x.shape, whole.shape[max(lead, 0) :])]
    if lead < 0 or any(c != 1 and dims.equal(c, d) is False for c, d in sizes):
        raise ops.TypeMismatch(f"{name} {x.type} does not broadcast to {whole.type}")
    told = [c if isinstance(c, int) and c != 1 and not isinstance(d, int) else d for c, d in sizes]
    for c, d in zip(x.shape, told):
        if c not in (1, d):
            b.emit(ops.Require("broadcast", (c, d)))  # whatever is read of x
    whole = b.reshape(whole, (*whole.shape[:lead], *told))
    shape = tuple(c if dims.broadcast(c, d) == d else d for c, d in zip(x.shape, told))
    return whole, x if shape == x.shape else b.emit(ops.Broadcast(shape), x)[0]


def checked(b: Builder, x: Value, condition: Callable[[Expr], Expr], code: str, says: str = "") -> Value:
    """x; the run fails with the error code, and a sentence with `{}` for the element, where the condition on
    it is false."""
    return b.map(x, lambda e: expr.check(condition(e), e, code, says))


def agreed(b: Builder, x: Value, sizes: Iterable[tuple[Dimension, Dimension]], what: str) -> Value:
    """Whole numbers x; the run fails where two sizes are not the same, which also holds of empty tensors."""
    for found, wanted in _uncertain(sizes, what):
        size, right = expr.size(found), expr.size(wanted)
        says = f"{what} has the size {{}} where {wanted} is needed"
        more = expr.check(size.equals(right), size, "dims_mismatch", says) - right  # 0, or the run fails
        x = b.map(x, more.__add__)
    return x


def require(b: Builder, sizes: Iterable[tuple[Dimension, Dimension]], what: str) -> None:
    """Refuses sizes that are known to differ; of what only the run can tell, it asks whatever is read of the
    node's results, and however few elements these have."""
    for pair in _uncertain(sizes, what):
        b.emit(ops.Require("equal", pair))


def require_least(b: Builder, size: Dimension, least: Dimension, wrong: str) -> None:
    """Refuses, as `wrong` says, a size that is known to be less; what only the run can tell, it asks."""
    less = dims.less(size, least)
    if less:
        raise ops.TypeMismatch(wrong)
    if less is None:
        b.emit(ops.Require("least", (size, least)))


def require_one_of(b: Builder, size: Dimension, choices: Sequence[Dimension], what: str) -> None:
    """Refuses a size that is none of the choices, as `require` does."""
    if any(dims.equal(size, choice) for choice in choices):
        return
    wanted, *others = choices
    for choice in others:
        wanted = wanted + dims.compare("eq", size, choice) * (choice - wanted)
    require(b, [(size, wanted)], what)


def _uncertain(
    sizes: Iterable[tuple[Dimension, Dimension]], what: str
) -> Iterator[tuple[Dimension, Dimension]]:
    """Of sizes that must be equal those that only the run can tell; what is known to differ is refused."""
    for found, wanted in sizes:
        same = dims.equal(found, wanted)
        if same is False:
            raise ops.TypeMismatch(f"{what} has the size {found} where {wanted} is needed")
        if same is None:
            yield found, wanted


def choose(
    b: Builder,
    condition: Dimension,
    type_: TensorType,
    then: Callable[[Builder], Value],
    otherwise: Callable[[Builder], Value],
) -> Value:
    """What `then` builds where the condition, a dimension of value 0 or 1, holds, else what
    `otherwise` builds."""
    if isinstance(condition, int):
        return (then if condition else otherwise)(b)

    def region(build: Callable[[Builder], Value]) -> Region:
        inner = b.inner()
        return Region(inner, [inner.capture(build(inner))], [])

    branches = region(then), region(otherwise)
    return emit_if(b, b.elements(np.array(condition, object), "bool"), *branches, [type_])[0]


def axis_switch(
    b: Builder,
    axis: Value,
    rank: int,
    count: int,
    type_: Callable[[int], TensorType],
    build: Callable[[Builder, int], Value],
) -> Value:
    """build(builder, axis) for an axis below `count` of a rank. An axis that is data becomes a
    branch for each; type_(axis) is what the branch gives."""
    known = known_axes(b, axis, rank)
    if known is not None:
        if len(known) != 1 or known[0] >= count:
            raise ops.TypeMismatch(f"the axis is {known}, which is not one below {count}")
        return build(b, known[0])
    axis = b.cast(scalar(b, axis, "axis"), "int64")
    outside = f"the axis is {{}}, outside of a value of rank {rank}"
    inside = checked(b, axis, lambda a: (a >= -rank) & (a < rank), "invalid_value", outside)
    place, beyond = b.map(inside, lambda a: expr.where(a < 0, a + rank, a)), f"the axis is not below {count}"
    chosen = b.dimension(checked(b, place, lambda a: a < count, "invalid_value", beyond), 0, "axis")
    if count == 1:  # no branch asks which axis it is
        found = build(b, 0)
        return b.map(found, place, lambda e, p: expr.check(p.equals(0), e, "invalid_value", beyond))
    picks = [dims.compare("eq", chosen, k) for k in range(count)]
    sizes = zip(*(type_(k).shape for k in range(count)))
    shape = tuple(s[0] if len(set(s)) == 1 else sum((p * d for p, d in zip(picks, s)), 0) for s in sizes)

    def branch(inner: Builder, k: int) -> Value:
        if k == count - 1:
            return build(inner, k)
        return choose(
            inner,
            picks[k],
            TensorType(type_(0).dtype, shape),
            lambda i: build(i, k),
            lambda i: branch(i, k + 1),
        )

    return branch(b, 0)


# Attributes --------------------------------------------------------------------------------------


def integers(
    values: Sequence[int] | None, count: int, default: int, name: str, least: int | None = None
) -> tuple[int, ...]:
    """An attribute of `count` integers, each at least `least`."""
    if not values:
        return (default,) * count
    if len(values) != count:
        raise ops.TypeMismatch(f"the attribute {name} has {len(values)} values where {count} are needed")
    if least is not None and min(values) < least:
        raise ops.TypeMismatch(f"the attribute {name} has the value {min(values)}, less than {least}")
    if max(map(abs, values)) >= 1 << 31:
        raise ops.TypeMismatch(
            f"the attribute {name} has the value {max(values, key=abs)}, which is out of range"
        )
    return tuple(values)


def one_of(value: object, allowed: Sequence, name: str) -> None:
    """Refuses a value of an attribute that the specification does not list."""
    if value not in allowed:
        texts = ", ".join(map(str, allowed))
        raise ops.TypeMismatch(f"the attribute {name} is {value}, which is none of {texts}")


# Axes that may be data ---------------------------------------------------------------------------


def require_square(x: Value) -> None:
    """Refuses what is known to have no square matrices along its last two axes."""
    if x.rank < 2 or dims.equal(x.shape[-1], x.shape[-2]) is False:
        raise ops.TypeMismatch(f"{x.type} is no square matrix")


def known_axes(
    b: Builder, axes: Value | Sequence[int], rank: int, repeated: bool = False
) -> list[int] | None:
    """Axes from 0, none twice; None where only the run knows them. repeated: whether one may be named twice,
    which is then as if it were named once."""
    if not isinstance(axes, Value):
        return distinct_axes(b, axes, rank, repeated)
    if not dtypes.is_integer(axes.dtype):
        raise ops.TypeMismatch(f"the axes are {axes.type} where integers are needed")
    numbers = b.known(axes)
    return None if numbers is None else distinct_axes(b, numbers.reshape(-1).tolist(), rank, repeated)


def distinct_axes(b: Builder, axes: Sequence[int], rank: int, repeated: bool = False) -> list[int]:
    """Axes from 0, none twice, as `known_axes`."""
    found = [b.axis(a, rank) for a in axes]
    once = list(dict.fromkeys(found))
    if len(once) != len(found) and not repeated:
        raise ops.TypeMismatch(f"the axes {', '.join(map(str, found))} repeat one")
    return once


def number_of(b: Builder, x: Value | Sequence, what: str, most: int = MOST_SIZES) -> int:
    """How many elements a vector has; RanksDiffer where that is one of 0 to `most` that only the run
    tells."""
    count = x.tensor.count if isinstance(x, Value) else len(x)
    if isinstance(count, int) and count > 4096:
        raise LimitError(f"{count:,} {what} are more than the limit of 4,096")
    return decided(b, count, most)


def count_at(b: Builder, values: Value, axes: Value | Sequence[int] | None, rank: int) -> Dimension:
    """How many values there are for `at_axes`; only where axes are data it may be for the run to tell."""
    if axes is None:
        return number_of(b, values, "values", rank)
    count = axes.tensor.count if isinstance(axes, Value) else len(axes)
    return count if isinstance(count, int) else values.tensor.count


def as_many(b: Builder, values: Value, count: Dimension) -> Value:
    """Values of which only the run knows how many there are as so many, which it checks whatever is read of
    them."""
    require(b, [(values.tensor.count, count)], "one input")
    return values if isinstance(values.tensor.count, int) else b.reshape(values, (count,))


def at_axes(
    b: Builder, values: Value, axes: Value | Sequence[int] | None, rank: int, default: int
) -> list[Dimension]:
    """For each axis the value given for it, or the default: axes name whom values belong to,
    without them the first."""
    count = count_at(b, values, axes, rank)
    if dims.equal(values.tensor.count, count) is False:
        raise ops.TypeMismatch(f"{values.tensor.count} values are given for {count} axes")
    if dims.less(rank, count):
        raise ops.TypeMismatch(f"{count} axes are named of {rank}")
    values = as_many(b, values, count)
    places = range(rank) if axes is None else known_axes(b, axes, rank)
    if places is None:
        assert isinstance(axes, Value)
        axes = as_many(b, axes, count)
        if not isinstance(count, int):
            size = expr.size(count)
            says = f"{{}} axes are named of {rank}"
            more = expr.check(size <= rank, size, "rank_mismatch", says) - size  # 0, or the run fails
            axes = b.map(b.cast(axes, "int64"), more.__add__)
        return b.dimensions(_scattered(b, values, axes, rank, default), None)
    found: list[Dimension] = [default] * rank
    for place, value in zip(places, b.dimensions(values, None)):
        found[place] = value
    return found


def _scattered(b: Builder, values: Value, axes: Value | Sequence[int], rank: int, default: int) -> Value:
    if not isinstance(axes, Value):
        axes = b.constant(np.array(axes, np.int64))
    whole = b.constant(np.full(rank, default, np.int64))
    flat = (b.reshape(v, (v.tensor.count,)) for v in (axes, b.cast(values, "int64")))
    return b.emit(ops.Scatter("elements"), whole, *flat)[0]


def axis_flags(b: Builder, axes: Value | Sequence[int], rank: int) -> Value:
    """int64 [rank]: 1 for these axes, which may be data, 0 for the others."""
    return _scattered(b, b.constant(np.ones(number_of(b, axes, "axes", rank), np.int64)), axes, rank, 0)


def _distinct_flags(b: Builder, axes: Value | Sequence[int], rank: int) -> Value:
    """`axis_flags`; the run fails where axes repeat one, since their number is how ranks differ."""
    flags, count = axis_flags(b, axes, rank), number_of(b, axes, "axes", rank)
    named, says = b.reduce("sum", flags, [0], True), f"{count} axes are named, of which only {{}} differ"
    return b.map(
        flags, named, lambda f, n: f + (expr.check(n.equals(count), n, "invalid_value", says) - count)
    )


def without(b: Builder, shape: Sequence[Dimension], axes: Value | Sequence[int]) -> list[Dimension]:
    """The sizes of all axes but these, of which those that are known may repeat one."""
    rank, known = len(shape), known_axes(b, axes, len(shape), repeated=True)
    if known is not None:
        return [d for a, d in enumerate(shape) if a not in known]
    order = b.emit(ops.Sort(0), _distinct_flags(b, axes, rank))[1]
    kept = b.take(order, 0, 0, rank - number_of(b, axes, "axes", rank))
    return b.dimensions(b.emit(ops.Gather("axis"), b.elements(shape), kept)[0], 0)


def with_ones(b: Builder, shape: Sequence[Dimension], axes: Value | Sequence[int]) -> list[Dimension]:
    """The shape with axes of size 1 that have these places in the result."""
    rank = len(shape) + number_of(b, axes, "axes")
    known = known_axes(b, axes, rank)
    if known is not None:
        others = iter(shape)
        return [1 if a in known else next(others) for a in range(rank)]
    flags = _distinct_flags(b, axes, rank)
    before = b.emit(ops.Cumulate("sum", 0, True), b.map(flags, lambda f: 1 - f))[0]
    padded = b.elements([*shape, 1])
    sizes = b.emit(ops.Gather("axis"), padded, b.map(before, lambda k: k.minimum(len(shape))))[0]
    return b.dimensions(b.map(flags, sizes, lambda f, s: expr.where(f.cast("bool"), 1, s)), 0)


# Old call forms ----------------------------------------------------------------------------------


def _variant(
    rule: Callable,
    attributes: dict[str, object],
    call: Callable,
    ranks: tuple[tuple[str, int | str], ...] = (),
) -> Callable:
    """A rule of operator set 1 under the newer rule's name, with further attributes."""
    signature = inspect.signature(rule)
    extra = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d) for n, d in attributes.items()]

    @functools.wraps(rule)
    def old(*args: object, **keywords: object) -> object:
        return call(*args, **keywords)

    whole = signature.replace(parameters=[*signature.parameters.values(), *extra])
    vars(old).update(rules=(Rule(rule.__name__, "", 1, old, ranks=ranks),), __signature__=whole)
    return old


def with_unused(rule: Callable, **attributes: object) -> Callable:
    """The form of operator set 1 with further attributes, which say nothing about the result."""
    (newer,) = vars(rule)["rules"]

    def call(*args: object, **keywords: object) -> object:
        return rule(*args, **{k: v for k, v in keywords.items() if k not in attributes})

    return _variant(rule, attributes, call, newer.ranks)


def with_consumed_inputs(rule: Callable) -> Callable:
    """The form of operator set 1, whose attribute consumed_inputs is about memory."""
    return with_unused(rule, consumed_inputs=None)


def with_axis(rule: Callable, **more: object) -> Callable:
    """The form of operator sets 1 to 6: with `broadcast`, the second operand's axes begin at
    `axis` of the first."""

    def call(
        b: Builder,
        A: Value,
        B: Value,
        *,
        broadcast: int = 0,
        axis: int | None = None,
        consumed_inputs: object = None,
    ) -> object:
        if broadcast and axis is not None:
            first = b.axis(axis, A.rank)
            if first + B.rank > A.rank:
                raise ops.TypeMismatch(f"{B.type} does not fit into {A.type} from axis {first}")
            B = b.reshape(B, (*B.shape, *(1,) * (A.rank - first - B.rank)))
        return rule(b, A, B)

    return _variant(rule, {"broadcast": 0, "axis": None, **more}, call)
