"""The core ops: frozen dataclasses, each with its type inference.

Everything a model does is one of these. An op holds what is fixed (axes, expressions, regions); what flows
are the node's inputs. `infer` gives the output types and says, there alone, what operands must agree on: what
is known to be wrong raises `TypeMismatch`, what only the run can tell is recorded in the `Need`
(`requirements.py`). Operands of a Map and of an epilogue follow numpy's broadcasting.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..records import dataclass
from . import dims, dtypes
from .dims import Dimension, Symbol
from .expr import Expr, topological
from .graph import Graph, Layout, Node, TensorType, Type
from .obligations import (
    Shape,
    axis_fits,
    broadcast_shapes,
    common_repeats,
    finished,
    indexed_axes,
    indices_fit,
    indices_within,
    label_sizes,
    leaves_fit,
    window_fits,
)
from .requirements import Need, Requirement, RequirementKind, TypeMismatch, inside


@dataclass(frozen=True)
class Op:
    """Base of all ops. `infer(need, *types)` gives one type per output and states to `need` what the operands
    must satisfy; each op names its operands."""

    def infer(self, *args: Any, **kwargs: Any) -> tuple[Type, ...]:
        raise TypeMismatch(f"{type(self).__name__} has no inference")


# Elementwise, reductions, contractions -----------------------------------------------------------


@dataclass(frozen=True)
class Map(Op):
    """out[i] = body(inputs[i]...): any elementwise computation. `shape` is given only where the operands do
    not tell it (a body of constants and indices). `asked`: the model casts to the type, so that numbers are
    rounded to it also where those between operators stay wider (`passes/round_late.py`)."""

    body: Expr
    shape: Shape | None = None
    asked: bool = False

    def infer(self, need: Need, *inputs: TensorType) -> tuple[TensorType]:
        stated = () if self.shape is None else (self.shape,)
        shape = broadcast_shapes(*(t.shape for t in inputs), *stated)
        for operand in inputs:
            need.broadcast(operand.shape, shape)
        common_repeats(need, self.shape or ())
        leaves_fit(need, self.body, [t.dtype for t in inputs], len(shape))
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

    def infer(self, need: Need, x: TensorType, *extra: TensorType) -> tuple[TensorType]:
        axes, extreme = self.axes, self.kind.startswith("arg")
        need.that(list(axes) == sorted(set(axes)), "axes {} are not ascending", axes)
        need.that(all(0 <= a < x.rank for a in axes), "axes {} are outside {}", axes, x)
        need.that(self.body is not None or not extra, "operands without a body")
        for operand in extra:
            need.broadcast(operand.shape, x.shape)
        if extreme:
            need.that(len(axes) == 1, "{} takes one axis", self.kind)
            need.least(
                x.shape[axes[0]], 1, "{} has no element to find along axis {}", x, axes[0], code="wrong_shape"
            )
        if self.body is not None:
            leaves_fit(need, self.body, [x.dtype, *(t.dtype for t in extra)], x.rank)
        kept = [1 if a in axes else d for a, d in enumerate(x.shape) if self.keepdims or a not in axes]
        dtype = self.body.dtype if self.body is not None else x.dtype
        return (TensorType("int64" if extreme else dtype, tuple(kept)),)


@dataclass(frozen=True)
class Contract(Op):
    """out = sum over labels missing from `out` of lhs * rhs, in einsum's notation: "bmk", "bkn" -> "bmn".

    Products and sums are of type `accumulate`; `epilogue` maps operand 0, the sum, and the node's inputs 2..
    to the result. `exact`: the operands are integers in a type that holds all sums without rounding, so
    nothing may be multiplied into them before the sum or computed with fractions. `rounded`: lhs is in steps
    of a 127th of the greatest magnitude of each block of so many elements along the only label that is summed
    over (0: it is as it is). `halves`: the factors stand for float16 numbers, of whose products what is below
    2^-15 of each may be left out. `repeated`: the labels of the batch along which operands of size 1 repeat.
    """

    lhs: str
    rhs: str
    out: str
    accumulate: str
    epilogue: Expr | None = None
    exact: bool = False
    rounded: int = 0
    halves: bool = False
    repeated: str = ""

    @property
    def batch(self) -> str:
        """The labels of both operands and the result."""
        return "".join(label for label in self.out if label in self.lhs and label in self.rhs)

    @property
    def summed(self) -> str:
        """The labels of lhs that are summed over."""
        return "".join(label for label in self.lhs if label not in self.out)

    def infer(self, need: Need, x: TensorType, y: TensorType, *extra: TensorType) -> tuple[TensorType]:
        need.that(not self.rounded or len(self.summed) == 1, "blocks along the labels {!r}", self.summed)
        need.that(set(self.repeated) <= set(self.batch), "{!r} are not of the batch", self.repeated)
        sizes = label_sizes(need, ((self.lhs, x), (self.rhs, y)), self.repeated)
        need.that(set(self.out) <= sizes.keys(), "{} has labels that no operand has", self.out)
        shape = tuple(sizes[label] for label in self.out)
        return finished(need, self.epilogue, self.accumulate, shape, extra)


@dataclass(frozen=True)
class Conv(Op):
    """Convolution of x [N, C, spatial...] with w [O, C/groups, kernel...]; pads are (before..., after...),
    and may be negative or symbolic. `transposed`: w is [C, O/groups, kernel...] and the output grows by
    strides, the extra rows and columns `output_padding` counted in. Epilogue and `exact` as in Contract;
    operands 1.. broadcast to the output. `zero`: the integer of x that stands for 0, so that the products are
    those of x - zero. `narrow`: x may be rounded to bfloat16, which w is. `halves`: as in Contract."""

    strides: tuple[int, ...]
    pads: Shape
    dilations: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    accumulate: str = "float32"
    epilogue: Expr | None = None
    exact: bool = False
    zero: int = 0
    narrow: bool = False
    halves: bool = False

    @property
    def padded(self) -> bool:
        """Whether images may get a border: of pads that only the run knows nobody can tell."""
        return set(self.pads) != {0}

    def is_pointwise(self, w: TensorType) -> bool:
        """Whether each pixel of the result mixes all channels of one pixel of the image, and nothing else."""
        mixes = not self.transposed and self.groups == 1
        return mixes and not self.padded and set(w.shape[2:]) == {1}

    def infer(self, need: Need, x: TensorType, w: TensorType, *extra: TensorType) -> tuple[TensorType]:
        rank = len(self.strides)
        need.that(not self.zero or dtypes.is_integer(self.accumulate), "a zero point of {}", self.accumulate)
        window_fits(need, rank, x, self.strides, self.dilations, self.pads)
        need.that(w.rank == rank + 2, "{} are no {}-dimensional kernels", w, rank)
        need.that(
            len(self.output_padding) in (0, rank), "{} numbers of output padding", len(self.output_padding)
        )
        need.that(self.groups > 0, "{} groups", self.groups)
        channels = w.shape[0] if self.transposed else w.shape[1] * self.groups
        need.equal(x.shape[1], channels, "{} has {} channels where {} takes {}", x, x.shape[1], w, channels)
        parts = w.shape[0] % self.groups
        need.equal(parts, 0, "{} groups do not divide {}", self.groups, w, code="wrong_shape")
        spatial = []
        for axis in range(rank):
            extent = (w.shape[axis + 2] - 1) * self.dilations[axis] + 1
            padding, size = self.pads[axis] + self.pads[axis + rank], x.shape[axis + 2]
            if self.transposed:
                extra_size = self.output_padding[axis] if self.output_padding else 0
                length = (size - 1) * self.strides[axis] + extent - padding + extra_size
            else:
                length = (size + padding - extent) // self.strides[axis] + 1
            need.that(not isinstance(length, int) or length >= 0, "{} is smaller than the kernel of {}", x, w)
            spatial.append(length)
        out_channels = w.shape[1] * self.groups if self.transposed else w.shape[0]
        shape = (x.shape[0], out_channels, *spatial)
        return finished(need, self.epilogue, self.accumulate, shape, extra)


PoolKind = Literal["max", "sum", "mean", "argmax"]


@dataclass(frozen=True)
class Pool(Op):
    """Combines windows of the spatial axes of [N, C, spatial...]: `max`, `sum`, `mean` (of what lies inside
    the image), or `argmax` (int64 index into the flattened spatial axes; `column_major` counts the first
    spatial axis fastest). `sizes` are the output's spatial axes, so that rounding up is the importer's
    business. Padding is never chosen."""

    kind: PoolKind
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: Shape
    dilations: tuple[int, ...]
    sizes: Shape
    column_major: bool = False

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType]:
        window_fits(need, len(self.kernel), x, self.strides, self.dilations, self.pads)
        need.that(len(self.sizes) == len(self.kernel), "one size for each axis of the image")
        return (TensorType("int64" if self.kind == "argmax" else x.dtype, (*x.shape[:2], *self.sizes)),)

    def keeps(self, axis: int, image: TensorType) -> bool:
        """Whether nothing is combined along a spatial axis, and nothing left out: windows of one element may
        be fewer than those."""
        pads = self.pads[axis], self.pads[axis + len(self.kernel)]
        single = (self.kernel[axis], self.strides[axis], *pads) == (1, 1, 0, 0)
        return single and dims.equal(self.sizes[axis], image.shape[2 + axis]) is True

    def meets(self, axis: int, image: TensorType) -> bool:
        """Whether each window surely has an element of the image along a spatial axis: none lies in the
        padding alone."""
        size, before, step = image.shape[2 + axis], self.pads[axis], self.dilations[axis]
        start = (self.sizes[axis] - 1) * self.strides[axis]  # of the last window, in the padded image
        within = (self.kernel[axis] - 1) * step - before, size - 1 + before - start
        # No dilation steps over the image: it has no padding before it or is as wide, where it has windows.
        found = any(dims.at_least(room, 0) for room in (-before, size - step, size - step - start))
        return found and all(dims.at_least(room, 0) for room in within)


@dataclass(frozen=True)
class OverlapAdd(Op):
    """Adds the blocks x [N, C * taps, counts...] to images [N, C, sizes...], where they overlap too; taps are
    the elements of `kernel`, row by row. Block i's tap k is added at i * stride + k * dilation - pad of each
    axis, or to nothing where that is outside of the image."""

    kernel: Shape
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    sizes: Shape

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType]:
        rank = len(self.sizes)
        need.that(rank > 0 and x.rank == rank + 2, "{} are no blocks of {} axes", x, rank)
        given = {len(v) for v in (self.kernel, self.strides, self.pads, self.dilations)}
        need.that(given == {rank}, "one kernel, stride, pad and dilation for each axis")
        need.that(min(*self.strides, *self.dilations) > 0, "a stride or dilation below 1")
        taps = dims.product(self.kernel)
        need.that(taps != 0, "a kernel without elements")
        channels = dims.floor_divide(x.shape[1], taps)
        need.equal(x.shape[1], channels * taps, "{} has no multiple of {} channels", x, taps)
        return (TensorType(x.dtype, (x.shape[0], channels, *self.sizes)),)


@dataclass(frozen=True)
class Attention(Op):
    """softmax(scale * q k + bias) v with the axes named as in Contract: `q` labels the queries "bhqd", `k`
    the keys "bhkd", `v` the values "bhke", `out` the result "bhqe"; letters other than q, k, d, e are batch
    axes, in any order. The softmax is over k. The bias, an optional fourth operand, broadcasts to [batch...,
    q, k] with the batch axes in q's order. Keys and values may be stored in 16 bits beside float32 queries.
    `narrow`: the factors of products may be rounded to bfloat16. `defined`: weights that are no numbers,
    those of queries that see no key, are 0. `repeated`: as in Contract."""

    scale: float
    q: str = "bhqd"
    k: str = "bhkd"
    v: str = "bhke"
    out: str = "bhqe"
    narrow: bool = False
    defined: bool = False
    repeated: str = ""

    @property
    def batch(self) -> str:
        """The labels of all operands and the result."""
        return "".join(c for c in self.out if c in self.q and c in self.k and c in self.v)

    def infer(
        self, need: Need, q: TensorType, k: TensorType, v: TensorType, *bias: TensorType
    ) -> tuple[TensorType]:
        need.that(set(self.repeated) <= set(self.batch), "{!r} are not of the batch", self.repeated)
        sizes = label_sizes(need, ((self.q, q), (self.k, k), (self.v, v)), self.repeated)
        batch = [sizes[label] for label in self.q if label not in "qd"]
        for operand in bias:
            need.broadcast(operand.shape, (*batch, sizes["q"], sizes["k"]))
        return (TensorType(q.dtype, tuple(sizes[label] for label in self.out)),)


@dataclass(frozen=True)
class Recurrent(Op):
    """The recurrence of LSTM, GRU or RNN of the ONNX specification over gates [T, B, D, G*H], to which r
    [D, G*H, H] adds what the state before contributes. What the inputs contribute, with the biases, is in the
    gates already: one product for all steps.

    `operands` says which optional inputs follow, of "b" ([D, H], what the state's part of a GRU's candidate
    adds with linear_before_reset), "lengths" ([B] int32, at most T), "h" and "c" (initial states [D, B, H]),
    "p" (peepholes [D, 3*H]). Outputs: Y [T, D, B, H], Y_h [D, B, H] and, for LSTM, Y_c. Gates are in ONNX's
    order. `activations` are (name, alpha, beta) per direction and gate. `rounded`, of an LSTM: in each step r
    multiplies the state as DynamicQuantizeLinear rounds it over all sequences whose last step had a result.
    """

    kind: Literal["lstm", "gru", "rnn"]
    hidden: int
    directions: tuple[Literal["forward", "reverse"], ...]
    activations: tuple[tuple[str, float, float], ...]
    operands: tuple[str, ...] = ()
    clip: float | None = None
    linear_before_reset: bool = False
    input_forget: bool = False
    rounded: bool = False

    @property
    def columns(self) -> int:
        """G*H, the columns of all gates of a direction."""
        return {"lstm": 4, "gru": 3, "rnn": 1}[self.kind] * self.hidden

    def infer(
        self, need: Need, gates: TensorType, r: TensorType, *extra: TensorType
    ) -> tuple[TensorType, ...]:
        need.that(gates.rank == 4 and r.rank == 3, "{} and {} have not four and three axes", gates, r)
        need.that(len(extra) == len(self.operands), "it should have {} operands", 2 + len(self.operands))
        need.that(not self.rounded or self.kind == "lstm", "the state of an LSTM alone is rounded")
        count, columns, hidden = len(self.directions), self.columns, self.hidden
        functions = {"lstm": 3, "gru": 2, "rnn": 1}[self.kind]
        need.that(len(self.activations) == functions * count, "activations for each gate")
        steps, batch, *_ = gates.shape
        shapes = {
            "b": (count, hidden),
            "lengths": (batch,),
            "h": (count, batch, hidden),
            "c": (count, batch, hidden),
            "p": (count, 3 * hidden),
        }
        need.shape(gates.shape, (steps, batch, count, columns))
        need.shape(r.shape, (count, columns, hidden))
        for name, operand in zip(self.operands, extra, strict=True):
            need.shape(operand.shape, shapes[name])
        state = TensorType(gates.dtype, (count, batch, hidden))
        whole = TensorType(gates.dtype, (steps, count, batch, hidden))
        return (whole, state, state) if self.kind == "lstm" else (whole, state)


# Movement ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements in the same order under another shape."""

    shape: Shape

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType]:
        count, wanted = x.count, dims.product(self.shape)
        need.equal(
            count,
            wanted,
            "{} cannot be reshaped to {}",
            x,
            TensorType(x.dtype, self.shape),
            code="invalid_reshape",
        )
        return (TensorType(x.dtype, self.shape),)


@dataclass(frozen=True)
class Transpose(Op):
    """out's axis k is x's axis perm[k]."""

    perm: tuple[int, ...]

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType]:
        need.that(sorted(self.perm) == list(range(x.rank)), "{} is no order of the axes of {}", self.perm, x)
        return (TensorType(x.dtype, tuple(x.shape[p] for p in self.perm)),)

    @property
    def inverse(self) -> Transpose:
        """What undoes it."""
        return Transpose(tuple(self.perm.index(axis) for axis in range(len(self.perm))))


@dataclass(frozen=True)
class Slice(Op):
    """Along every axis, `sizes` elements from `starts`, each `steps` (never 0, negative: backwards) after the
    last. The importer clamps, so the whole range lies inside."""

    starts: Shape
    sizes: Shape
    steps: Shape

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType]:
        need.that(len(self.starts) == x.rank, "{} does not have {} axes", x, len(self.starts))
        for parts in (self.sizes, self.steps):
            need.that(len(parts) == x.rank, "{} sizes or steps for {}", len(parts), x)
        for length, start, size, step in zip(x.shape, self.starts, self.sizes, self.steps, strict=True):
            need.that(dims.equal(step, 0) is not True, "a step of 0")
            need.that(not dims.less(size, 0), "a size of {}", size)
            if isinstance(start, int) and isinstance(size, int) and isinstance(step, int) and size > 0:
                low, high = sorted((start, start + (size - 1) * step))
                inside = low >= 0 and not dims.at_least(high - length, 0)
                need.that(inside, "{}..{} is outside an axis of {}", low, high, length)
            if step == 1:  # other steps come with sizes that are clamped
                need.least(start, 0, code="invalid_value")
                need.least(length, start + size)
        return (TensorType(x.dtype, self.sizes),)


PadMode = Literal["constant", "edge", "reflect", "wrap"]


@dataclass(frozen=True)
class Pad(Op):
    """Adds `before` and `after` (never negative) elements on each axis: the scalar operand 1 (`constant`),
    the nearest element (`edge`), a mirror image without (`reflect`) the edge, or the other side (`wrap`)."""

    mode: PadMode
    before: Shape
    after: Shape

    def infer(self, need: Need, x: TensorType, *value: TensorType) -> tuple[TensorType]:
        lengths = [len(self.before), len(self.after)]
        need.that(lengths == [x.rank, x.rank], "padding of {} axes for {}", len(self.before), x)
        for amount in (*self.before, *self.after):
            need.least(amount, 0, "padding is negative", code="invalid_value")
        scalar = [(t.dtype, t.shape) for t in value] == [(x.dtype, ())] * (self.mode == "constant")
        need.that(scalar, "a scalar to pad with, and only for constant padding")
        shape = tuple(b + d + a for b, d, a in zip(self.before, x.shape, self.after, strict=True))
        return (TensorType(x.dtype, shape),)


@dataclass(frozen=True)
class Broadcast(Op):
    """x repeated along axes of size 1, and along new leading axes, to `shape`."""

    shape: Shape

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType]:
        need.broadcast(x.shape, self.shape)
        common_repeats(need, self.shape)
        return (TensorType(x.dtype, self.shape),)


@dataclass(frozen=True)
class Concat(Op):
    """The operands one after the other along axis."""

    axis: int

    def infer(self, need: Need, first: TensorType, *others: TensorType) -> tuple[TensorType]:
        axis_fits(need, self.axis, first)
        shape = list(first.shape)
        for other in others:
            fits = other.rank == first.rank and other.dtype == first.dtype
            need.that(fits, "{} does not continue {}", other, first)
            for axis, size in enumerate(other.shape):
                if axis != self.axis:
                    need.equal(
                        first.shape[axis],
                        size,
                        "{} does not continue {} along axis {}",
                        other,
                        first,
                        self.axis,
                    )
                    shape[axis] = size if isinstance(size, int) else shape[axis]
        shape[self.axis] = dims.total(x.shape[self.axis] for x in (first, *others))
        return (TensorType(first.dtype, tuple(shape)),)


@dataclass(frozen=True)
class Unfold(Op):
    """Windows of `taps` elements along axis 0 of x [L, C, ...], one every `stride`, as many as fit: what each
    sees lies one after the other along axis 1, [windows, taps * C, ...]."""

    taps: int
    stride: int

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType]:
        need.that(x.rank >= 2, "{} has no axis after the first", x)
        need.that(min(self.taps, self.stride) > 0, "a window or stride below 1")
        count = dims.floor_divide(x.shape[0] - self.taps, self.stride) + 1
        need.least(count, 0, "windows of {} elements over an axis of {}", self.taps, x.shape[0])
        return (TensorType(x.dtype, (count, self.taps * x.shape[1], *x.shape[2:])),)


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

    def infer(self, need: Need, x: TensorType, indices: TensorType) -> tuple[TensorType]:
        indices_fit(need, self.form, self.axis, x, indices)
        match self.form:
            case "axis":
                shape = (*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :])
            case "elements":
                indices_within(need, indices, x, self.axis)
                shape = indices.shape
            case "nd":
                depth, batch = indexed_axes(indices), self.batch
                need.that(batch + depth <= x.rank, "positions of {} have more axes than {}", indices, x)
                need.shape(indices.shape[:batch], x.shape[:batch])
                shape = (*indices.shape[:-1], *x.shape[batch + depth :])
        return (TensorType(x.dtype, tuple(shape)),)

    def known_fit(self, need: Need, x: TensorType, indices: np.ndarray) -> None:
        """What indices that are known ask of axes whose sizes only the run knows. Those of other axes are
        checked where they are read."""
        first = self.batch if self.form == "nd" else self.axis
        columns = np.moveaxis(indices, -1, 0) if self.form == "nd" else [indices]
        for size, column in zip(x.shape[first:], columns):
            for index in (int(column.max()), int(column.min())) if column.size else ():
                if inside(size, index) is None:
                    need.inside(size, index)

    def row_axes(self, x: TensorType, indices: TensorType) -> int:
        """How many axes, the last ones, run through x from the place that indices name: those of a row."""
        match self.form:
            case "axis":
                return x.rank - self.axis - 1
            case "nd":
                return x.rank - self.batch - indexed_axes(indices)
        return 0


@dataclass(frozen=True)
class Scatter(Op):
    """x with updates written, or combined by `reduction`, at the places that indices name as in Gather, in
    row-major order of the updates."""

    form: Literal["elements", "nd"]
    axis: int = 0
    reduction: Literal["none", "add", "mul", "min", "max"] = "none"

    def infer(self, need: Need, x: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType]:
        indices_fit(need, self.form, self.axis, x, indices)
        need.that(x.dtype == updates.dtype, "updates {} are not of the type of {}", updates, x)
        if self.form == "elements":
            indices_within(need, indices, x, self.axis)
            need.shape(updates.shape, indices.shape)
        else:
            depth = indexed_axes(indices)
            need.that(depth <= x.rank, "positions of {} have more axes than {}", indices, x)
            need.shape(updates.shape, (*indices.shape[:-1], *x.shape[depth:]))
        return (TensorType(x.dtype, x.shape),)


@dataclass(frozen=True)
class Cumulate(Op):
    """Running sum or product along an axis, `exclusive` of the element itself, from the end when
    `reverse`."""

    kind: Literal["sum", "prod"]
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType]:
        axis_fits(need, self.axis, x)
        return (x,)


@dataclass(frozen=True)
class Sort(Op):
    """x sorted along an axis, and the int64 index that each element had; stable; NaN is the greatest. count:
    how many of the sorted elements are wanted, from the first (None: all)."""

    axis: int
    descending: bool = False
    count: Dimension | None = None

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType, TensorType]:
        axis_fits(need, self.axis, x)
        shape = list(x.shape)
        if self.count is not None:
            need.least(shape[self.axis], self.count, "{} are wanted of {}", self.count, x)
            shape[self.axis] = self.count
        return TensorType(x.dtype, tuple(shape)), TensorType("int64", tuple(shape))


@dataclass(frozen=True)
class TreeEnsemble(Op):
    """out[n, targets[t] + k] = sum, min or max over trees t of weights[leaf of x[n] in t, k].

    Operands: x [N, F]; of each inner node features (int32), thresholds, lefts and rights (int32: a node, or
    ~i for leaf i), missing (bool: where NaN goes left); of each tree roots (as lefts) and targets (int32);
    weights [leaves, K]. From a node one goes left where x[n, feature] <= threshold, which is never so of a
    threshold that is NaN. Nodes may have several parents, but no circle; all operands but x are constants.
    `columns` of out that no tree adds to hold the aggregate of nothing: 0, or an infinity. `width`: more than
    any feature. `depth`: the nodes on the longest path.
    """

    aggregate: Literal["sum", "min", "max"]
    columns: int
    width: int
    depth: int

    def infer(self, need: Need, x: TensorType, *tables: TensorType) -> tuple[TensorType]:
        need.that(x.rank == 2, "{} has no rows of features", x)
        need.least(x.shape[1], self.width, "{} has less features than trees ask for, {}", x, self.width)
        need.that(len(tables) == 8, "{} tables instead of 8", len(tables))
        *vectors, weights = tables
        nodes, trees = vectors[0].shape, vectors[5].shape
        kinds = ("int32", x.dtype, "int32", "int32", "bool", "int32", "int32")
        for table, kind, shape in zip(vectors, kinds, [nodes] * 5 + [trees] * 2, strict=True):
            need.that(table.dtype == kind and table.rank == 1, "{} is no vector of {}", table, kind)
            need.shape(table.shape, shape)
        need.that(weights.dtype == x.dtype and weights.rank == 2, "{} are no weights for {}", weights, x)
        return (TensorType(x.dtype, (x.shape[0], self.columns)),)


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

    def infer(self, need: Need) -> tuple[TensorType]:
        return (TensorType(self.dtype, self.shape),)


# Sizes, control, groups, calls -------------------------------------------------------------------


@dataclass(frozen=True)
class Elements(Op):
    """A tensor whose elements, in row-major order, are dimensions: what Shape and arithmetic on it give."""

    dims: Shape
    shape: tuple[int, ...]
    dtype: str = "int64"

    def infer(self, need: Need) -> tuple[TensorType]:
        whole = dtypes.is_integer(self.dtype) or self.dtype == "bool"
        need.that(whole and dims.product(self.shape) == len(self.dims), "{} elements", len(self.dims))
        return (TensorType(self.dtype, self.shape),)


@dataclass(frozen=True)
class Bind(Op):
    """Gives the dimension variables `symbols` the elements of an integer tensor, in row-major order: how data
    becomes a size. A negative element fails the run where the variable's minimum is 0. No outputs."""

    symbols: tuple[Symbol, ...]

    def infer(self, need: Need, x: TensorType) -> tuple[()]:
        need.that(dtypes.is_integer(x.dtype), "{} are no sizes", x)
        need.equal(x.count, len(self.symbols), "{} does not have {} elements", x, len(self.symbols))
        return ()


@dataclass(frozen=True)
class Require(Op):
    """Fails the run unless two sizes are as a `Requirement` of that kind says: what a node asked, whatever
    passes made of it (`passes/require_sizes.py`). No operands, no outputs."""

    kind: RequirementKind
    sizes: tuple[Dimension, Dimension]
    code: str = "dims_mismatch"

    def infer(self, need: Need) -> tuple[()]:
        match self.kind:
            case "equal":
                need.equal(*self.sizes, code=self.code)
            case "least":
                need.least(*self.sizes, code=self.code)
            case "broadcast":
                need.repeats(*self.sizes)
            case "inside":
                need.inside(*self.sizes)
        return ()


@dataclass(frozen=True)
class If(Op):
    """The outputs of `then` where the bool scalar operand 0 is true, else of `otherwise`; operands 1.. are
    the inputs of both. `types` are the outputs'; variables that appear first there are bound by the branch
    taken."""

    then: Graph
    otherwise: Graph
    types: tuple[Type, ...]

    def infer(self, need: Need, *inputs: Type) -> tuple[Type, ...]:
        need.that(inputs[:1] == (TensorType("bool", ()),), "the condition is no bool")
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

    def infer(self, need: Need, *inputs: Type) -> tuple[Type, ...]:
        need.that(len(inputs) >= 2 + self.carried, "it should carry {} values", self.carried)
        return self.types


FusedKind = Literal[
    "rows",  # Maps and Reduces over rows, those too that Gathers pick
    "gathered map",  # a Map of elements that Gathers pick, with the Maps that tell their places
    "gathered sum",  # a weighed sum of what a Gather picks
    "resampling",  # a Map of images at gathered rows and columns: interpolation
    "pool",  # a pool with what is computed of each element before and behind
    "experts",  # rows, each multiplied with the matrix that an index picks
    "shuffled",  # a convolution of channels in another order
    "bands",  # a depthwise convolution or a pool with the convolutions around it
]


@dataclass(frozen=True)
class Fused(Op):
    """A group that means exactly what its region means; a kernel takes it whole or it is inlined back. By its
    `kind`, which the pass that made it gave, kernels know theirs."""

    kind: FusedKind
    region: Graph

    def infer(self, need: Need, *inputs: Type) -> tuple[Type, ...]:
        return tuple(v.type for v in self.region.outputs)


#: What the symbol of a RuntimeCall begins with where a user brought the function.
CUSTOM = "onnxc_custom_"


@dataclass(frozen=True)
class RuntimeCall(Op):
    """A function of the C runtime (`runtime_c/ops_*.c`), with integer attributes. Variables that appear first
    in `types` are bound from the shapes that it returns. `runtime_twins.py` has the function's numpy twin;
    one that a user brought (`CUSTOM`) has none, and says which sizes of its operands are `equal`."""

    symbol: str
    types: tuple[Type, ...]
    attributes: tuple[int, ...] = ()
    equal: tuple[tuple[Dimension, Dimension], ...] = ()

    def infer(self, need: Need, *inputs: Type) -> tuple[Type, ...]:
        for a, b in self.equal:
            need.equal(a, b)
        return self.types


@dataclass(frozen=True)
class Reorder(Op):
    """The same tensor in another storage layout; written by the layout pass, never by an import rule."""

    layout: Layout | None

    def infer(self, need: Need, x: TensorType) -> tuple[TensorType]:
        return (TensorType(x.dtype, x.shape, self.layout),)


#: Of what a constant is made by one of these, it tells (`Constant.derivation`).
LOOKED_THROUGH = (Map, Reshape, Transpose, Slice)


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


def requirements(node: Node) -> list[Requirement]:
    """What only the run can tell of the sizes of node's operands, of indices that are known, and of the nodes
    in a group, where the node was inferred without complaint: generated code checks it just before the node
    runs."""
    need = Need(node.origin)
    inferred = node.op.infer(need, *(v.type for v in node.inputs))
    if not isinstance(node.op, (If, Loop, RuntimeCall)):  # these find the sizes of their results themselves
        for value, type_ in zip(node.outputs, inferred, strict=True):
            need.shape(value.shape, type_.shape)
            for size in value.shape:
                need.least(size, 0, code="wrong_shape")
    if isinstance(node.op, Gather) and (indices := node.inputs[1].constant) is not None:
        node.op.known_fit(need, node.inputs[0].tensor, indices.array)
    found = dict(need.recorded)
    if isinstance(node.op, Fused):
        for inner in node.op.region.nodes:
            found |= dict.fromkeys(requirements(inner))
    return list(found)


#: What moves elements and computes nothing.
MOVING = (Reshape, Transpose, Slice, Broadcast, Concat, Pad, Unfold)
