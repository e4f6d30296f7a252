"""What several ops ask of their operands alike, and the shapes that follow.

An op's `infer` (`ops.py`) states obligations to a `Need` (`requirements.py`); those that are not one op's own
are here.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import dims, dtypes
from .dims import Apply, Dim, Dimension
from .expr import Expr, topological
from .graph import TensorType
from .requirements import Need, TypeMismatch

Shape = tuple[Dimension, ...]


def broadcast_shapes(*shapes: Sequence[Dimension]) -> Shape:
    """numpy's rule: align at the last axis; an axis of size 1 repeats."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dimension] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            try:
                result[axis] = dims.broadcast(result[axis], size)
            except ValueError as error:
                raise TypeMismatch(f"shapes {' and '.join(_text(s) for s in shapes)}: {error}") from None
    return tuple(result)


def _text(shape: Sequence[Dimension]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def leaves_fit(need: Need, body: Expr, operands: Sequence[str], rank: int) -> None:
    """The leaves of an expression fit operands of these element types, and the axes that it runs over."""
    for leaf in topological(body):
        if leaf.op == "input":
            need.that(leaf.value < len(operands), "it has no operand ${}", leaf.value)
            given = operands[leaf.value]
            need.that(leaf.dtype == given, "${} is {}, not {}", leaf.value, given, leaf.dtype)
        elif leaf.op == "index":
            need.that(0 <= leaf.value < rank, "index({}) is outside {} axes", leaf.value, rank)


def finished(
    need: Need, epilogue: Expr | None, accumulate: str, shape: Shape, extra: Sequence[TensorType]
) -> tuple[TensorType]:
    """The result of a sum of type `accumulate` over `shape` after its epilogue over the operands `extra`."""
    need.that(epilogue is not None or not extra, "operands without an epilogue")
    for operand in extra:
        need.broadcast(operand.shape, shape)
    if epilogue is None:
        return (TensorType(accumulate, shape),)
    leaves_fit(need, epilogue, [accumulate, *(t.dtype for t in extra)], len(shape))
    return (TensorType(epilogue.dtype, shape),)


def label_sizes(
    need: Need, operands: Sequence[tuple[str, TensorType]], repeated: str = ""
) -> dict[str, Dimension]:
    """The size of each label of an einsum's operands: axes of one label have one size, or along those that
    are `repeated` 1."""
    sizes: dict[str, Dimension] = {}
    for labels, operand in operands:
        need.that(len(labels) == operand.rank, "{} does not have the axes {}", operand, labels)
        for label, size in zip(labels, operand.shape, strict=True):
            known = sizes.setdefault(label, size)
            if label in repeated:
                (sizes[label],) = broadcast_shapes((known,), (size,))
                continue
            need.equal(known, size, "{} and {} are both the axis {} of {}", known, size, label, operand)
            sizes[label] = known if isinstance(known, int) else size
    for labels, operand in operands:
        for label, size in zip(labels, operand.shape):
            if label in repeated:
                need.repeats(size, sizes[label])
    return sizes


def window_fits(
    need: Need,
    axes: int,
    image: TensorType,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[Dimension],
) -> None:
    """Strides, dilations and pads for each spatial axis."""
    need.that(image.rank == axes + 2, "{} is no batch of {}-dimensional images", image, axes)
    lengths = [len(strides), len(dilations)]
    need.that(lengths == [axes, axes], "one stride and dilation for each axis")
    need.that(len(pads) == 2 * axes, "{} pads for {} axes", len(pads), axes)
    need.that(min((*strides, *dilations), default=1) > 0, "a stride or dilation below 1")


def indices_fit(need: Need, form: str, axis: int, x: TensorType, indices: TensorType) -> None:
    """Integers that name places along an axis of x."""
    need.that(dtypes.is_integer(indices.dtype), "{} are no indices", indices)
    if form == "elements":
        need.that(x.rank == indices.rank, "indices {} do not have the rank of {}", indices, x)
    if form != "nd":
        axis_fits(need, axis, x)


def indices_within(need: Need, indices: TensorType, x: TensorType, axis: int) -> None:
    """Indices of elements name no places outside x along the axes that they do not replace."""
    for k, (whole, part) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if k != axis:
            need.least(whole, part, "indices {} reach outside {}", indices, x)


def indexed_axes(indices: TensorType) -> int:
    """How many axes the positions of a GatherND or a ScatterND name."""
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise TypeMismatch(f"the last axis of the positions {indices} must be known")
    return depth


def common_repeats(need: Need, shape: Shape) -> None:
    """The sizes of which one is the common one repeat to it."""
    for size in shape:
        for part in _parts(size):
            need.repeats(part, size)


def _parts(size: Dimension) -> list[Dimension]:
    match size:
        case Dim(terms=((((Apply(kind="broadcast", left=left, right=right), 1),), 1),)):
            return [*(_parts(left) or [left]), *(_parts(right) or [right])]
    return []


def axis_fits(need: Need, axis: int, x: TensorType) -> None:
    need.that(0 <= axis < x.rank, "axis {} is outside {}", axis, x)
