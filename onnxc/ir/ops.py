"""The core ops: about twenty frozen dataclasses, each with its type inference.

Everything a model does is one of these. An op holds what is fixed (axes, expressions, regions); what flows
are the node's inputs. `infer` gives the output types or raises `TypeMismatch` with the reason; where only the
run can tell whether sizes agree, inference assumes that they do and the run checks. Operands of a Map and of
an epilogue follow numpy's broadcasting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from . import dims
from .dims import Dimension, Symbol
from .expr import Expr, topological
from .graph import Graph, TensorType, Type

Shape = tuple[Dimension, ...]


class TypeMismatch(ValueError):
    """Operands do not fit the op; the text says why."""


def _require(condition: bool | None, reason: str) -> None:
    """Refuses what is known to be wrong; None (unknown) passes and is checked by the run."""
    if condition is False:
        raise TypeMismatch(reason)


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


def _epilogue_type(
    epilogue: Expr | None, accumulator: str, shape: Shape, extra: Sequence[TensorType]
) -> TensorType:
    for operand in extra:
        _require(
            len(operand.shape) <= len(shape), f"epilogue operand {operand} has more axes than {_text(shape)}"
        )
        broadcast_shapes(shape, operand.shape)
    return TensorType(epilogue.dtype if epilogue is not None else accumulator, shape)


@dataclass(frozen=True)
class Op:
    """Base of all ops. `infer(*types)` gives one type per output."""

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        raise TypeMismatch(f"{type(self).__name__} has no inference")


# Elementwise, reductions, contractions -----------------------------------------------------------


@dataclass(frozen=True)
class Map(Op):
    """out[i] = body(inputs[i]...): any elementwise computation. `shape` is given only where the operands do
    not tell it (a body of constants and indices)."""

    body: Expr
    shape: Shape | None = None

    def infer(self, *inputs: TensorType) -> tuple[TensorType]:
        shape = broadcast_shapes(
            *(t.shape for t in inputs), *([self.shape] if self.shape is not None else [])
        )
        return (TensorType(self.body.dtype, shape),)


ReduceKind = Literal[
    "sum", "prod", "min", "max", "and", "or", "argmin", "argmax", "argmin_last", "argmax_last"
]


@dataclass(frozen=True)
class Reduce(Op):
    """Combines all elements along axes (ascending); argmin and argmax take one axis and give int64 indices,
    of the first or the last extreme. `body` is applied to each element before."""

    kind: ReduceKind
    axes: tuple[int, ...]
    keepdims: bool = False
    body: Expr | None = None

    def infer(self, x: TensorType, *extra: TensorType) -> tuple[TensorType]:
        kept = [
            1 if a in self.axes else d for a, d in enumerate(x.shape) if self.keepdims or a not in self.axes
        ]
        dtype = self.body.dtype if self.body is not None else x.dtype
        return (TensorType("int64" if self.kind.startswith("arg") else dtype, tuple(kept)),)


@dataclass(frozen=True)
class Contract(Op):
    """out = sum over labels missing from `out` of lhs * rhs, in einsum's notation: "bmk", "bkn" -> "bmn".

    Products and sums are of type `accumulate`; `epilogue` maps operand 0, the sum, and the node's inputs 2..
    to the result.
    """

    lhs: str
    rhs: str
    out: str
    accumulate: str
    epilogue: Expr | None = None

    def infer(self, x: TensorType, y: TensorType, *extra: TensorType) -> tuple[TensorType]:
        sizes: dict[str, Dimension] = {}
        for labels, operand in ((self.lhs, x), (self.rhs, y)):
            _require(len(labels) == operand.rank, f"{operand} does not have the axes {labels}")
            for label, size in zip(labels, operand.shape, strict=True):
                known = sizes.setdefault(label, size)
                _require(dims.equal(known, size), f"sizes {known} and {size} of {x} and {y} do not match")
                sizes[label] = known if isinstance(known, int) else size
        shape = tuple(sizes[label] for label in self.out)
        return (_epilogue_type(self.epilogue, self.accumulate, shape, extra),)


@dataclass(frozen=True)
class Conv(Op):
    """Convolution of x [N, C, spatial...] with w [O, C/groups, kernel...]; pads are (before..., after...),
    and may be negative or symbolic. `transposed`: w is [C, O/groups, kernel...] and the output grows by
    strides, the extra rows and columns `output_padding` counted in. Epilogue as in Contract; operands 1..
    broadcast to the output."""

    strides: tuple[int, ...]
    pads: Shape
    dilations: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    accumulate: str = "float32"
    epilogue: Expr | None = None

    def infer(self, x: TensorType, w: TensorType, *extra: TensorType) -> tuple[TensorType]:
        rank = len(self.strides)
        _require(
            x.rank == rank + 2 and w.rank == rank + 2,
            f"{x} and {w} are not {rank}-dimensional images and kernels",
        )
        channels = w.shape[0] if self.transposed else w.shape[1] * self.groups
        _require(
            dims.equal(x.shape[1], channels), f"{x} has {x.shape[1]} channels where {w} takes {channels}"
        )
        spatial = []
        for axis in range(rank):
            extent = (w.shape[axis + 2] - 1) * self.dilations[axis] + 1
            padding, size = self.pads[axis] + self.pads[axis + rank], x.shape[axis + 2]
            if self.transposed:
                extra_size = self.output_padding[axis] if self.output_padding else 0
                length = (size - 1) * self.strides[axis] + extent - padding + extra_size
            else:
                length = (size + padding - extent) // self.strides[axis] + 1
            _require(not isinstance(length, int) or length >= 0, f"{x} is smaller than the kernel of {w}")
            spatial.append(dims.maximum(length, 0))  # an image smaller than the kernel has no result
        out_channels = w.shape[1] * self.groups if self.transposed else w.shape[0]
        return (_epilogue_type(self.epilogue, self.accumulate, (x.shape[0], out_channels, *spatial), extra),)


@dataclass(frozen=True)
class Pool(Op):
    """Combines windows of the spatial axes of [N, C, spatial...]: `max`, `sum`, `mean` (of what lies inside
    the image), or `argmax` (int64 index into the flattened spatial axes; `column_major` counts the first
    spatial axis fastest). `sizes` are the output's spatial axes, so that rounding up is the importer's
    business. Padding is never chosen."""

    kind: Literal["max", "sum", "mean", "argmax"]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: Shape
    dilations: tuple[int, ...]
    sizes: Shape
    column_major: bool = False

    def infer(self, x: TensorType) -> tuple[TensorType]:
        _require(x.rank == len(self.kernel) + 2, f"{x} is no batch of {len(self.kernel)}-dimensional images")
        return (TensorType("int64" if self.kind == "argmax" else x.dtype, (*x.shape[:2], *self.sizes)),)


@dataclass(frozen=True)
class Attention(Op):
    """softmax(scale * q k + bias) v with the axes named as in Contract: `q` labels the queries "bhqd", `k`
    the keys "bhkd", `v` the values "bhke", `out` the result "bhqe"; letters other than q, k, d, e are batch
    axes, in any order. The softmax is over k. The bias, an optional fourth operand, broadcasts to [batch...,
    q, k] with the batch axes in q's order."""

    scale: float
    q: str = "bhqd"
    k: str = "bhkd"
    v: str = "bhke"
    out: str = "bhqe"

    def infer(self, q: TensorType, k: TensorType, v: TensorType, *bias: TensorType) -> tuple[TensorType]:
        sizes: dict[str, Dimension] = {}
        for labels, operand in ((self.q, q), (self.k, k), (self.v, v)):
            _require(len(labels) == operand.rank, f"{operand} does not have the axes {labels}")
            for label, size in zip(labels, operand.shape, strict=True):
                known = sizes.setdefault(label, size)
                _require(dims.equal(known, size), f"{q}, {k} and {v} do not fit together")
                sizes[label] = known if isinstance(known, int) else size
        return (TensorType(q.dtype, tuple(sizes[label] for label in self.out)),)


@dataclass(frozen=True)
class Recurrent(Op):
    """The recurrence of LSTM, GRU or RNN of the ONNX specification over gates [T, B, D, G*H], to which r
    [D, G*H, H] adds what the state before contributes. What the inputs contribute, with the biases, is in the
    gates already: one product for all steps.

    `operands` says which optional inputs follow, of "b" ([D, H], what the state's part of a GRU's candidate
    adds with linear_before_reset), "lengths" ([B] int32, at most T), "h" and "c" (initial states [D, B, H]),
    "p" (peepholes [D, 3*H]). Outputs: Y [T, D, B, H], Y_h [D, B, H] and, for LSTM, Y_c. Gates are in ONNX's
    order. `activations` are (name, alpha, beta) per direction and gate.
    """

    kind: Literal["lstm", "gru", "rnn"]
    hidden: int
    directions: tuple[Literal["forward", "reverse"], ...]
    activations: tuple[tuple[str, float, float], ...]
    operands: tuple[str, ...] = ()
    clip: float | None = None
    linear_before_reset: bool = False
    input_forget: bool = False

    @property
    def columns(self) -> int:
        """G*H, the columns of all gates of a direction."""
        return {"lstm": 4, "gru": 3, "rnn": 1}[self.kind] * self.hidden

    def infer(self, gates: TensorType, r: TensorType, *extra: TensorType) -> tuple[TensorType, ...]:
        _require(gates.rank == 4 and r.rank == 3, f"{gates} and {r} have not four and three axes")
        steps, batch, *given = gates.shape
        count, columns, hidden = len(self.directions), self.columns, self.hidden
        for shape, wanted in ((given, (count, columns)), (r.shape, (count, columns, hidden))):
            fit = [dims.equal(a, b) for a, b in zip(shape, wanted, strict=True)]
            _require(False not in fit, f"gates {gates} and weights {r} are not {count} x {columns} wide")
        state = TensorType(gates.dtype, (count, batch, hidden))
        whole = TensorType(gates.dtype, (steps, count, batch, hidden))
        return (whole, state, state) if self.kind == "lstm" else (whole, state)


# Movement ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements in the same order under another shape."""

    shape: Shape

    def infer(self, x: TensorType) -> tuple[TensorType]:
        _require(
            dims.equal(x.count, dims.product(self.shape)), f"{x} cannot be reshaped to {_text(self.shape)}"
        )
        return (TensorType(x.dtype, self.shape),)


@dataclass(frozen=True)
class Transpose(Op):
    """out's axis k is x's axis perm[k]."""

    perm: tuple[int, ...]

    def infer(self, x: TensorType) -> tuple[TensorType]:
        _require(sorted(self.perm) == list(range(x.rank)), f"{self.perm} is no order of the axes of {x}")
        return (TensorType(x.dtype, tuple(x.shape[p] for p in self.perm)),)


@dataclass(frozen=True)
class Slice(Op):
    """Along every axis, `sizes` elements from `starts`, each `steps` (never 0, negative: backwards) after the
    last. The importer clamps, so the whole range lies inside."""

    starts: Shape
    sizes: Shape
    steps: Shape

    def infer(self, x: TensorType) -> tuple[TensorType]:
        _require(len(self.starts) == x.rank, f"{x} does not have {len(self.starts)} axes")
        return (TensorType(x.dtype, self.sizes),)


@dataclass(frozen=True)
class Pad(Op):
    """Adds `before` and `after` (never negative) elements on each axis: the scalar operand 1 (`constant`),
    the nearest element (`edge`), a mirror image without (`reflect`) the edge, or the other side (`wrap`)."""

    mode: Literal["constant", "edge", "reflect", "wrap"]
    before: Shape
    after: Shape

    def infer(self, x: TensorType, *value: TensorType) -> tuple[TensorType]:
        shape = tuple(b + d + a for b, d, a in zip(self.before, x.shape, self.after, strict=True))
        return (TensorType(x.dtype, shape),)


@dataclass(frozen=True)
class Broadcast(Op):
    """x repeated along axes of size 1, and along new leading axes, to `shape`."""

    shape: Shape

    def infer(self, x: TensorType) -> tuple[TensorType]:
        broadcast_shapes(x.shape, self.shape)
        return (TensorType(x.dtype, self.shape),)


@dataclass(frozen=True)
class Concat(Op):
    """The operands one after the other along axis."""

    axis: int

    def infer(self, *inputs: TensorType) -> tuple[TensorType]:
        first = inputs[0]
        shape = list(first.shape)
        for other in inputs[1:]:
            _require(
                other.rank == first.rank and other.dtype == first.dtype, f"{other} does not continue {first}"
            )
            for axis, size in enumerate(other.shape):
                if axis == self.axis:
                    shape[axis] = shape[axis] + size
                else:
                    _require(
                        dims.equal(shape[axis], size),
                        f"{other} does not continue {first} along axis {self.axis}",
                    )
                    shape[axis] = size if isinstance(size, int) else shape[axis]
        return (TensorType(first.dtype, tuple(shape)),)


@dataclass(frozen=True)
class Gather(Op):
    """Elements of x that indices name; negative ones count from the end, others outside fail the run.

    `axis`: out[a..., i..., b...] = x[a..., indices[i...], b...], numpy's take. `elements`: out[i...] = x at
    i... with the axis' index replaced by indices[i...]. `nd`: the last axis of indices is a position in x
    after `batch` shared axes.
    """

    form: Literal["axis", "elements", "nd"]
    axis: int = 0
    batch: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType]:
        match self.form:
            case "axis":
                shape = (*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :])
            case "elements":
                _require(x.rank == indices.rank, f"indices {indices} do not have the rank of {x}")
                shape = indices.shape
            case "nd":
                depth = indices.shape[-1]
                _require(isinstance(depth, int), "the last axis of the indices of GatherND must be known")
                _require(self.batch + depth <= x.rank, f"positions of {indices} have more axes than {x}")
                shape = (*indices.shape[:-1], *x.shape[self.batch + depth :])
        return (TensorType(x.dtype, tuple(shape)),)


@dataclass(frozen=True)
class Scatter(Op):
    """x with updates written, or combined by `reduction`, at the places that indices name as in Gather, in
    row-major order of the updates."""

    form: Literal["elements", "nd"]
    axis: int = 0
    reduction: Literal["none", "add", "mul", "min", "max"] = "none"

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType]:
        _require(x.dtype == updates.dtype, f"updates {updates} are not of the type of {x}")
        return (TensorType(x.dtype, x.shape),)


@dataclass(frozen=True)
class Cumulate(Op):
    """Running sum or product along an axis, `exclusive` of the element itself, from the end when
    `reverse`."""

    kind: Literal["sum", "prod"]
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, x: TensorType) -> tuple[TensorType]:
        return (x,)


@dataclass(frozen=True)
class Sort(Op):
    """x sorted along an axis, and the int64 index that each element had; stable; NaN is the greatest."""

    axis: int
    descending: bool = False

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        return x, TensorType("int64", x.shape)


@dataclass(frozen=True)
class Random(Op):
    """Random numbers from a counter-based generator: `uniform` in [a, b), `normal` of mean a and deviation b.
    The seed and the count of runs of the context make the stream."""

    kind: Literal["uniform", "normal"]
    dtype: str
    shape: Shape
    a: float
    b: float
    seed: float | None = None

    def infer(self) -> tuple[TensorType]:
        return (TensorType(self.dtype, self.shape),)


# Sizes, control, groups, calls -------------------------------------------------------------------


@dataclass(frozen=True)
class Elements(Op):
    """A tensor whose elements, in row-major order, are dimensions: what Shape and arithmetic on it give."""

    dims: Shape
    shape: tuple[int, ...]
    dtype: str = "int64"

    def infer(self) -> tuple[TensorType]:
        return (TensorType(self.dtype, self.shape),)


@dataclass(frozen=True)
class Bind(Op):
    """Gives the dimension variables `symbols` the elements of an integer tensor, in row-major order: how data
    becomes a size. A negative element fails the run where the variable's minimum is 0. No outputs."""

    symbols: tuple[Symbol, ...]

    def infer(self, x: TensorType) -> tuple[()]:
        _require(dims.equal(x.count, len(self.symbols)), f"{x} does not have {len(self.symbols)} elements")
        return ()


@dataclass(frozen=True)
class If(Op):
    """The outputs of `then` where the bool scalar operand 0 is true, else of `otherwise`; operands 1.. are
    the inputs of both. `types` are the outputs'; variables that appear first there are bound by the branch
    taken."""

    then: Graph
    otherwise: Graph
    types: tuple[Type, ...]

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        return self.types


@dataclass(frozen=True)
class Loop(Op):
    """Repeats `body` while its condition holds, at most `trips` times.

    Operands: trips (int64 scalar), condition (bool scalar), `carried` values, captured values. Body inputs:
    iteration (int64 scalar), condition, carried, captured. Body outputs: condition, carried, scanned.
    Outputs: carried, and the scanned values stacked along a new first axis. Variables of the body's carried
    inputs that nothing outside defines are bound anew in each iteration; those first seen in `types` are
    bound when the loop ends.
    """

    body: Graph
    carried: int
    types: tuple[Type, ...]

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        return self.types


@dataclass(frozen=True)
class Fused(Op):
    """A group that means exactly what its region means; a kernel takes it whole or it is inlined back. `kind`
    names the pass's intent (`rows`, `mbconv`, ...) for dumps."""

    kind: str
    region: Graph

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        return tuple(v.type for v in self.region.outputs)


@dataclass(frozen=True)
class RuntimeCall(Op):
    """A function of the C runtime (`runtime_c/ops_*.c`), with integer attributes. Variables that appear first
    in `types` are bound from the shapes that it returns. `interpret.py` has the function's numpy twin."""

    symbol: str
    types: tuple[Type, ...]
    attributes: tuple[int, ...] = ()

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        return self.types


@dataclass(frozen=True)
class Reorder(Op):
    """The same tensor in another storage layout; written by the layout pass, never by an import rule."""

    layout: object

    def infer(self, x: TensorType) -> tuple[TensorType]:
        return (TensorType(x.dtype, x.shape, self.layout),)


def dimensions(op: Op) -> list[Dimension]:
    """Every dimension in the op's fields: sizes, those that its expressions read, and those of its types.
    What regions hold is their own."""
    found: list[Dimension] = []
    fields = list(vars(op).values())
    while fields:
        match fields.pop():
            case int() | dims.Dim() as value:
                found.append(value)
            case tuple() as several:
                fields.extend(several)
            case TensorType(shape=shape):
                fields.extend(shape)
            case Expr() as body:
                found.extend(node.value for node in topological(body) if node.op == "size")
    return found
