"""integer_products: products of quantised numbers are sums of the integers that are stored.

conv(map(%q) { mul(cast(sub(cast($0, int32), 3), float32), 0.5) }, W: of int8 %w, with a scale of 0.25)
    →   map(conv(%q, %w) accumulate=int32 zero=3) { mul(cast($0, float32), 0.125) }

Where no kernel multiplies such integers on the target (`quantised.dot_of`), `widen` follows.
Sums are exact, those without products too. The zero point of what is padded is the convolution's; that of a
Contract, or one that the run computes (of which a border is padded before), is taken off behind the sum,
times the sums of the weights; and that of weights which the run computes, times the sums of what meets them.
So are two operands that the run computes, where bytes are made of the result again or integers are asked for.
Of 16 bits are multiplied those whose sums stay in int32 with the weights that there are, where the target has
dot products of them, but in windows that transforms serve better. Integers that would become real numbers
only to be moved or compared (a maximum), or to become the same integers again, stay what they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir import dims, dtypes, expr, numpy_ops
from ..ir.bodies import composed
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Constant, Graph, Node, Rewriter, Value, constant_value
from ..ir.interpret import run_op
from ..ir.kernel_limits import TRANSFORMED_CHANNELS
from ..ir.ops import MOVING, Concat, Contract, Conv, Gather, Map, Pad, Pool, Reduce, Reshape, Slice, Transpose
from ..ir.pools import is_conversion
from ..ir.quantised import (
    BYTES,
    STORED,
    Parameter,
    Quantised,
    Weights,
    aligned,
    dot_of,
    elements,
    is_one_along,
    lies_together,
    quantised,
    weights_of,
)
from ..target import Target
from .flatten_windows import flattened

GREATEST = (1 << 31) - 1  # of int32
MANY = 32  # times the elements of the first operand, with which the second rather keeps its sign
STEPS = 8  # Maps and movements behind a result that are looked through for what becomes of it
_OTHER = {"uint8": "int8", "int8": "uint8"}  # of the other sign
_SQUARE = expr.input_(0, "float32") * expr.input_(0, "float32")


def integer_products(graph: Graph, target: Target) -> Graph:
    """graph with the convolutions and products of bytes that the target multiplies as they are."""
    return everywhere(lambda inner: _Integers(inner, target).graph())(graph)


class _Integers:
    def __init__(self, graph: Graph, target: Target):
        self.rewriter, self.target = Rewriter(graph), target

    def graph(self) -> Graph:
        for node in self.rewriter.graph.nodes:
            results = self._changed(node)
            if results is None:
                self.rewriter.copy(node)
            else:
                self.rewriter.replace(node.outputs, results)
        return self.rewriter.finish()

    def _changed(self, node: Node) -> tuple[Value, ...] | None:
        match node.op:
            case Conv():
                return self._product(node)
            case Contract():
                return self._product(node) or self._product_of_two(node)
            case Reduce(kind="sum", body=body) if body in (None, _SQUARE):
                return self._sum(node)
            case Pool(kind="max") | Reduce(kind="max" | "min", body=None):
                return self._greatest(node)
            case Reduce(body=None) if node.op.kind.startswith("arg"):
                return self._places(node)
            case Pad() | Reshape() | Transpose() | Slice():
                return self._moved(node)
            case Gather() if self.rewriter.readers[self.rewriter.of(node.inputs[0])] == 1:
                return self._moved(node)
            case Concat():
                return self._joined(node)
            case Map():
                return self._same_bytes(node)
        return None

    # Products ------------------------------------------------------------------------------------

    def _product(self, node: Node[Conv] | Node[Contract]) -> tuple[Value, ...] | None:
        """A product's result, computed of what is stored."""
        found = _operands(node, self.rewriter)
        if found is None:
            return None
        op, x, w, name = found
        labels = _labels(op, x.stored.rank)
        if not all(_is_outside(a, labels) for a in (w.zero, w.scale, w.late) if a is not None):
            return None
        if not _fits(x, w, _summed(labels)):
            return None
        if x.stored.dtype in BYTES:
            signed, rest = w.signed()
        else:
            signed, rest = w.centred(), np.zeros((1,) * len(w.stored.shape), np.int32)
            multiplied = w.late is None and self.target.dot(x.stored.dtype, signed.dtype, "int32")
            if not multiplied or _transforms(op, signed):
                return None
        plain = replace(op, accumulate="int32", epilogue=None, exact=False)
        kernels = constant_value(signed, name)
        if dot_of(flattened(plain, x.stored, kernels, self.target), x.stored, kernels, self.target) is None:
            return None
        if isinstance(plain, Conv) and isinstance(x.zero, int):
            plain, x = replace(plain, zero=x.zero), replace(x, zero=0)
        elif isinstance(plain, Conv) and plain.padded:
            padded = self._padded(plain, x, node)
            if padded is None:
                return None
            plain, x = replace(plain, pads=(0,) * len(plain.pads)), replace(x, stored=padded)
        sums = self.rewriter.add(plain, [x.stored, kernels], node.origin)
        body = _Body(sums[0])
        late = None if w.late is None else self._placed(w.late, labels, node.origin)
        if rest.any() or late is not None:  # times the sums of x
            shape = tuple(1 if k in _alike(op, labels) else n for k, n in enumerate(signed.shape))
            ones = constant_value(Constant("int8", shape, splat=1))
            (totals,) = self.rewriter.add(plain, [x.stored, ones], node.origin)
            each = body.operand(_beside(rest, labels)) if rest.any() else expr.const(0, "int32")
            each = each if late is None else each - body.parameter(late, "int32")
            body.result += body.operand(totals) * each
        if x.zero != 0:
            columns = (signed.array + rest).sum(axis=_summed(labels), dtype=np.int32, keepdims=True)
            each = body.operand(_beside(columns, labels))
            if late is not None:
                terms = dims.product(signed.shape[k] for k in _summed(labels))
                each -= body.parameter(late, "int32") * terms
            of_x = (op.lhs, op.out) if isinstance(op, Contract) else labels  # of images there is one
            zero = self._placed(x.zero, of_x, node.origin)
            body.result -= each * body.parameter(zero, "int32")
        if x.scale is not None and w.scale is not None:
            scale = body.parameter(x.scale, "float32")
            if scale.op == "const":
                factors = _beside(w.scale * np.float32(scale.value), labels)
                body.result = body.result.cast("float32") * body.operand(factors)
            else:
                body.result = body.result.cast("float32") * (scale * body.operand(_beside(w.scale, labels)))
        return self._finished(body, node)

    def _product_of_two(self, node: Node[Contract]) -> tuple[Value, ...] | None:
        """A product of two operands that the run computes, of bytes. Real numbers stay what they are where
        nobody makes integers of the result: attention multiplies them without storing any."""
        op, operands = node.op, [self.rewriter.of(v) for v in node.inputs[:2]]
        x, w = (quantised(v, _summed((labels, op.out))) for v, labels in zip(operands, (op.lhs, op.rhs)))
        if x is None or w is None or {x.stored.dtype, w.stored.dtype} - {*BYTES} or len(op.summed) != 1:
            return None
        real, depth = op.accumulate == "float32", operands[0].shape[op.lhs.index(op.summed)]
        if op.rounded or (not real and op.accumulate != "int32"):
            return None
        if (x.scale is not None) != real or (w.scale is not None) != real:
            return None
        if real and not (_sums_fit(depth, x, w) and self._becomes_integers(node.outputs[0])):
            return None
        pair = self._multiplied(op, x, w, node.origin)
        if pair is None:
            return None
        x, w = pair
        plain = replace(op, accumulate="int32", epilogue=None, exact=False)
        body = _Body(*self.rewriter.add(plain, [x.stored, w.stored], node.origin))
        of_x, of_w = (op.lhs, op.out), (op.rhs, op.out)
        for one, labels, other, places, whole in ((w, of_w, x, of_x, False), (x, of_x, w, of_w, True)):
            if other.zero != 0:  # times the sums of the other operand, less its zero point for one of the two
                totals = self._totals(one if whole else replace(one, zero=0), labels, node.origin)
                zero = self._placed(other.zero, places, node.origin)
                body.result -= body.operand(totals) * body.parameter(zero, "int32")
        if x.scale is not None and w.scale is not None:
            scale = body.parameter(x.scale, "float32") * body.parameter(w.scale, "float32")
            body.result = body.result.cast("float32") * scale
        return self._finished(body, node)

    def _finished(self, body: _Body, node: Node[Conv | Contract]) -> tuple[Value, ...]:
        """What a node's epilogue makes of such a result, which may be the sums as they are."""
        if node.op.epilogue is not None:
            others = {k: body.operand(self.rewriter.of(v)) for k, v in enumerate(node.inputs[2:], 1)}
            body.result = expr.substitute(node.op.epilogue, {0: body.result, **others})
        if body.result.op == "input":
            return (body.operands[0],)
        return self.rewriter.add(Map(body.result), body.operands, node.origin, [node.outputs[0].name])

    def _becomes_integers(self, value: Value, steps: int = STEPS) -> bool:
        """Whether all that reads a value makes integers of it, after so many Maps and movements at most."""
        readers = self.rewriter.reading.get(value, ())
        if not steps or not readers or value in self.rewriter.graph.outputs:
            return False
        if not all(isinstance(node.op, (*MOVING, Map)) for node in readers):
            return False
        made = [node.outputs[0] for node in readers]
        return all(dtypes.is_integer(v.dtype) or self._becomes_integers(v, steps - 1) for v in made)

    def _multiplied(
        self, op: Contract, x: Quantised, w: Quantised, origin: str
    ) -> tuple[Quantised, Quantised] | None:
        """The operands as the target multiplies them, one of them with the other sign if need be: the
        second, but where that has many more elements."""
        a, b = x.stored.dtype, w.stored.dtype
        if not lies_together(op, x.stored):
            return None
        size_x, size_w = (dims.typical(dims.product(q.stored.shape)) for q in (x, w))
        others = ((a, _OTHER[b]), (_OTHER[a], b))
        for left, right in ((a, b), *(reversed(others) if size_w > MANY * size_x else others)):
            if self.target.dot(left, right, "int32"):
                return self._of_type(x, left, origin), self._of_type(w, right, origin)
        return None

    def _of_type(self, q: Quantised, dtype: str, origin: str) -> Quantised:
        """Bytes of a type: those with the other sign are 128 more or less, as their zero point is."""
        if q.stored.dtype == dtype:
            return q
        shift = dtypes.integer_range(dtype)[0] - dtypes.integer_range(q.stored.dtype)[0]
        moved = Map((expr.input_(0, q.stored.dtype).cast("int32") + shift).cast(dtype))

        def shifted(value: Value) -> Value:
            """What is moved is shifted before, by what makes it."""
            node = value.producer
            alone = self.rewriter.readers[value] <= 1
            if alone and node is not None and isinstance(node.op, (Reshape, Transpose)):
                return self.rewriter.add(node.op, [shifted(node.inputs[0])], origin)[0]
            return self.rewriter.add(moved, [value], origin)[0]

        if isinstance(q.zero, Value):
            body = expr.input_(0, q.zero.dtype).cast("int32") + shift
            zero: Parameter = self.rewriter.add(Map(body), [q.zero], origin)[0]
        else:
            zero = q.zero + shift
        return Quantised(shifted(q.stored), zero, q.scale)

    def _totals(self, q: Quantised, labels: Labels, origin: str) -> Value:
        """Sums of what bytes stand for along the axis that a product sums over, broadcast to its result."""
        body = _Body(q.stored)
        body.result = body.result.cast("int32")
        if q.zero != 0:
            body.result -= body.parameter(q.zero, "int32")
        (centred,) = self.rewriter.add(Map(body.result), body.operands, origin)
        (totals,) = self.rewriter.add(Reduce("sum", _summed(labels), keepdims=True), [centred], origin)
        return self._beside(totals, labels, origin)

    def _placed(self, zero: Parameter, labels: Labels, origin: str) -> Parameter:
        """A zero point of an operand as it broadcasts to the result."""
        if not isinstance(zero, Value):
            return zero
        if zero.tensor.count != 1:
            return self._beside(zero, labels, origin)
        deep = zero.rank > len(labels[1])
        return self.rewriter.add(Reshape(()), [zero], origin)[0] if deep else zero

    def _beside(self, value: Value, labels: Labels, origin: str) -> Value:
        """What broadcasts to an operand, one along what is summed, as what broadcasts to the result."""
        of_operand, of_result = labels
        of_operand = of_operand[len(of_operand) - value.rank :]
        sizes = dict(zip(of_operand, value.shape))
        kept = [label for label in of_operand if label in of_result]
        order = sorted(range(len(kept)), key=lambda k: of_result.index(kept[k]))
        movement = [Reshape(tuple(sizes[label] for label in kept)), Transpose(tuple(order))]
        if order == sorted(order):
            movement.clear()
        for op in (*movement, Reshape(tuple(sizes.get(label, 1) for label in of_result))):
            (value,) = self.rewriter.add(op, [value], origin)
        return value

    def _sum(self, node: Node[Reduce]) -> tuple[Value, ...] | None:
        """A sum of numbers, or of their squares, computed of the bytes that nobody else makes numbers of."""
        (real,) = (self.rewriter.of(v) for v in node.inputs)
        x, count = quantised(real), dims.product(real.shape[a] for a in node.op.axes)
        if x is None or not isinstance(x.scale, float) or not isinstance(x.zero, int):
            return None
        squared = node.op.body is not None
        each = _span(x.stored.dtype) ** (2 if squared else 1)
        if self.rewriter.readers[real] > 1 or not isinstance(count, int) or count * each > GREATEST:
            return None
        whole, total = expr.input_(0, x.stored.dtype).cast("int32"), expr.input_(0, "int32")
        if squared:
            whole -= x.zero
            body, scale = whole * whole, x.scale * x.scale
        else:
            body, total, scale = whole, total - x.zero * count, x.scale
        sums = self.rewriter.add(replace(node.op, body=body), [x.stored], node.origin)
        made = Map(total.cast("float32") * scale)
        return self.rewriter.add(made, sums, node.origin, [node.outputs[0].name])

    def _padded(self, op: Conv, x: Quantised, node: Node) -> Value | None:
        """The image with its border, of the zero point that the run computes."""
        assert isinstance(x.zero, Value)
        if x.zero.dtype != x.stored.dtype or any(p < 0 for p in dims.numbers(op.pads)):
            return None
        zero = x.zero if x.zero.rank == 0 else self.rewriter.add(Reshape(()), [x.zero], node.origin)[0]
        rank = len(op.strides)
        before, after = ((0, 0, *op.pads[k * rank : (k + 1) * rank]) for k in range(2))
        return self.rewriter.add(Pad("constant", before, after), [x.stored, zero], node.origin)[0]

    # Integers that stay as they are ----------------------------------------------------------------

    def _greatest(self, node: Node[Pool] | Node[Reduce]) -> tuple[Value, ...] | None:
        """The maxima of numbers are those of the bytes behind them, where the scale is positive; those along
        rows where nobody else makes numbers of these."""
        (real,) = (self.rewriter.of(v) for v in node.inputs)
        if isinstance(node.op, Reduce) and self.rewriter.readers[real] > 1:
            return None
        x = quantised(real)
        if x is None or not isinstance(x.scale, float) or x.scale <= 0:
            return None
        if not _compares_any(node) and not self._hides_nothing(node, real.node, x.stored.dtype):
            return None
        (pooled,) = self.rewriter.add(node.op, [x.stored], node.origin)
        operands = [pooled if v is x.stored else v for v in real.node.inputs]
        return self.rewriter.add(real.node.op, operands, node.origin, [node.outputs[0].name])

    def _hides_nothing(self, node: Node[Pool] | Node[Reduce], made: Node[Map], stored: str) -> bool:
        """Whether nobody sees if the extreme of nothing is an infinity or the number that `made` makes of the
        integer at the end of its type."""
        if len(made.inputs) != 1:
            return False
        integer, real = (numpy_ops.neutral(node.op.kind, dtypes.numpy_dtype(t)) for t in (stored, "float32"))
        (number,) = run_op(made.op, [np.array([integer], dtypes.numpy_dtype(stored))], {})
        return self._are_alike(node.outputs[0], np.array([real, *number], np.float32))

    def _are_alike(self, value: Value, numbers: np.ndarray, steps: int = STEPS) -> bool:
        """Whether all that reads a value makes the same of all these numbers."""
        readers = self.rewriter.reading.get(value, ())
        if not steps or not readers or value in self.rewriter.graph.outputs:
            return False
        for node in readers:
            made = numbers
            if is_conversion(node):
                (made,) = run_op(node.op, [numbers], {})
            elif not isinstance(node.op, (Reshape, Transpose)):
                return False
            if (made != made[0]).any() and not self._are_alike(node.outputs[0], made, steps - 1):
                return False
        return True

    def _places(self, node: Node[Reduce]) -> tuple[Value, ...] | None:
        """The place of the greatest number is that of the greatest integer, where nobody else makes numbers
        of these and no two integers become the same one."""
        (real,) = (self.rewriter.of(v) for v in node.inputs)
        x, known = quantised(real), np.finfo(np.float32)
        if x is None or self.rewriter.readers[real] > 1 or real.dtype not in ("float32", "int32"):
            return None
        if x.scale is not None and not isinstance(x.scale, float):
            return None
        least = 1.0 if x.scale is None else x.scale
        if x.stored.dtype not in STORED or not known.tiny <= least <= known.max / _span(x.stored.dtype):
            return None
        return self.rewriter.add(node.op, [x.stored], node.origin, [node.outputs[0].name])

    def _moved(self, node: Node) -> tuple[Value, ...] | None:
        """What only moves numbers, or integers less a zero point, moves the bytes behind them, padding among
        these; indices stay."""
        real, *padding = (self.rewriter.of(v) for v in node.inputs)
        x = quantised(real)
        if x is None or (x.scale is None and x.zero == 0) or real.node.op.shape is not None:
            return None
        if any(v.rank for v in real.node.inputs if v is not x.stored):
            return None
        if isinstance(node.op, Pad) and padding:
            alone = len(real.node.inputs) == 1
            fill = _byte_of(real.node.op.body, padding[0].constant) if alone else None
            if fill is None:
                return None
            padding = [constant_value(fill)]
        (moved,) = self.rewriter.add(node.op, [x.stored, *padding], node.origin)
        operands = [moved if v is x.stored else v for v in real.node.inputs]
        return self.rewriter.add(real.node.op, operands, node.origin, [node.outputs[0].name])

    def _joined(self, node: Node[Concat]) -> tuple[Value, ...] | None:
        """Numbers that are made of bytes in one way are joined as bytes."""
        operands = [self.rewriter.of(v) for v in node.inputs]
        found = [quantised(v) for v in operands]
        bodies = {v.node.op.body for v, x in zip(operands, found) if x is not None and x.scale is not None}
        if None in found or len(bodies) != 1 or any(len(v.node.inputs) != 1 for v in operands):
            return None
        stored = [x.stored for x in found if x is not None]
        (joined,) = self.rewriter.add(node.op, stored, node.origin)
        return self.rewriter.add(Map(bodies.pop()), [joined], node.origin, [node.outputs[0].name])

    def _same_bytes(self, node: Node[Map]) -> tuple[Value, ...] | None:
        """The stored bytes in the place of a Map that dequantises and quantises them to the same; of what is
        joined, each part's or a Map of it."""
        operands = [self.rewriter.of(v) for v in node.inputs]
        body, shape = node.op.body, node.outputs[0].shape
        if len(operands) != 1 or body.dtype not in STORED or operands[0].shape != shape:
            return None
        (real,) = operands
        joint = real.producer
        if joint is None or not isinstance(joint.op, Concat) or self.rewriter.readers[real] > 1:
            stored = _restored(body, real)
            return None if stored is None else (stored,)
        if real.dtype != "float32" or expr.contains(body, "index", "check"):
            return None
        parts = []
        for part in joint.inputs:
            stored = _restored(body, part)
            parts.append(stored or self.rewriter.add(Map(body), [part], node.origin)[0])
        return self.rewriter.add(joint.op, parts, node.origin, [node.outputs[0].name])


def _compares_any(node: Node[Pool] | Node[Reduce]) -> bool:
    """Whether each extreme is surely one of some elements, not of none."""
    op, x = node.op, node.inputs[0].tensor
    if isinstance(op, Pool):
        return all(op.meets(axis, x) for axis in range(len(op.kernel)))
    return all(dims.at_least(x.shape[axis], 1) for axis in op.axes)


def _restored(body: Expr, real: Value) -> Value | None:
    """The bytes of which a number is made, if a body makes the same of it again."""
    producer = real.producer
    if quantised(real) is None or producer is None or not isinstance(producer.op, Map):
        return None  # or bytes themselves, wherever they are from
    again, stored = composed(body, [real], 0)
    if len(stored) != 1 or stored[0].dtype != body.dtype or expr.contains(again, "index", "check", "size"):
        return None
    all_ = elements(body.dtype)
    return stored[0] if (run_op(Map(again), [all_], {})[0] == all_).all() else None


def _byte_of(body: Expr, number: Constant | None) -> np.ndarray | None:
    """The byte, as a scalar, of which a body makes the number of a constant, where one does."""
    (stored,) = (e.dtype for e in expr.topological(body) if e.op == "input")
    if number is None or number.nbytes == 0:
        return None
    all_ = elements(stored)
    found = all_[run_op(Map(body), [all_], {})[0] == number.array.reshape(-1)[0]]
    return found[0].reshape(()) if len(found) else None


class _Body:
    """The body of a Map under construction, and the operands that it reads: the first is the sums."""

    def __init__(self, sums: Value):
        self.operands = [sums]
        self.result = expr.input_(0, sums.dtype)

    def operand(self, value: Value) -> Expr:
        self.operands.append(value)
        return expr.input_(len(self.operands) - 1, value.dtype)

    def parameter(self, parameter: Parameter, dtype: str) -> Expr:
        if isinstance(parameter, Value):
            return self.operand(parameter).cast(dtype)
        return expr.const(parameter, dtype)


# What can be multiplied --------------------------------------------------------------------------


def _operands(node: Node, rewriter: Rewriter) -> tuple[Conv | Contract, Quantised, Weights, str] | None:
    """The op with the constant operand behind the other, what is stored behind both, the constant's name."""
    op, (x, w) = node.op, (rewriter.of(v) for v in node.inputs[:2])
    kernels = weights_of(w)
    if isinstance(op, Contract) and kernels is None:
        op, x, w = replace(op, lhs=op.rhs, rhs=op.lhs), w, x
        kernels = weights_of(w)
    rounded = isinstance(op, Contract) and op.rounded
    if kernels is None or rounded or op.accumulate not in ("float32", "int32"):
        return None
    image = quantised(x, _summed((op.lhs, op.out)) if isinstance(op, Contract) else None)
    if image is None:
        return None
    real = op.accumulate == "float32"
    if (image.scale is not None) != real or (kernels.scale is not None) != real:
        return None
    return op, image, kernels, w.name


Labels = tuple[str, str]  # of an operand's axes and of the result's


def _labels(op: Conv | Contract, rank: int) -> Labels:
    if isinstance(op, Contract):
        return op.rhs, op.out
    spatial = "abcdef"[: rank - 2]
    return "oi" + spatial.upper(), "no" + spatial


def _summed(labels: Labels) -> tuple[int, ...]:
    """The axes of an operand that are summed over."""
    return tuple(k for k, label in enumerate(labels[0]) if label not in labels[1])


def _alike(op: Conv | Contract, labels: Labels) -> tuple[int, ...]:
    """The axes of the weights along which all are multiplied with the same numbers."""
    apart = op.lhs if isinstance(op, Contract) else "o" if op.groups > 1 else ""
    return tuple(k for k, label in enumerate(labels[0]) if k not in _summed(labels) and label not in apart)


def _transforms(op: Conv | Contract, w: Constant) -> bool:
    """Whether a convolution of numbers saves more multiplications than products of 16 bits do, by transforms
    (`codegen/kernels/winograd.py`): of windows of several rows and columns, channel by channel of many."""
    if not isinstance(op, Conv) or op.groups > 1 or {*op.strides} != {1}:
        return False
    return (
        min(w.shape[:2]) >= TRANSFORMED_CHANNELS and all(n > 2 for n in w.shape[2:]) and len(op.strides) == 2
    )


def _span(dtype: str) -> int:
    """What no two integers of a type differ by more than, nor one from its zero point."""
    return (1 << dtypes.bits(dtype)) - 1


def _sums_fit(depth: dims.Dimension, x: Quantised, w: Quantised) -> bool:
    """Whether no sum of so many products leaves int32."""
    return isinstance(depth, int) and depth * _span(x.stored.dtype) * _span(w.stored.dtype) <= GREATEST


def _fits(x: Quantised, w: Weights, summed: tuple[int, ...]) -> bool:
    """Whether no sum of products leaves int32: of bytes by their number, else by the weights there are."""
    count = dims.product(w.stored.shape[k] for k in summed)
    if count * _span(x.stored.dtype) * _span(w.stored.dtype) <= GREATEST:
        return True
    if x.stored.dtype in BYTES or not isinstance(x.zero, int):
        return False
    low, high = (bound - x.zero for bound in dtypes.integer_range(x.stored.dtype))
    centred = w.centred().array.astype(np.int64)
    sums = [part.sum(axis=summed) for part in (np.minimum(centred, 0), np.maximum(centred, 0))]
    return all(abs(a * sums[0] + b * sums[1]).max() <= GREATEST for a, b in ((low, high), (high, low)))


def _is_outside(parameter: np.ndarray | Value, labels: Labels) -> bool:
    """Whether the weights of every sum have the same zero point, or the same scale."""
    return is_one_along(_summed(labels), parameter.shape, len(labels[0]))


def _beside(array: np.ndarray, labels: Labels) -> Value:
    """What broadcasts to the weights as what broadcasts to the result."""
    of_weights, of_result = labels
    array = aligned(array, len(of_weights))
    kept = [of_weights.index(label) for label in of_result if label in of_weights]
    sizes = [array.shape[of_weights.index(label)] if label in of_weights else 1 for label in of_result]
    while sizes and sizes[0] == 1:
        sizes.pop(0)
    return constant_value(array.transpose([*kept, *_summed(labels)]).reshape(sizes))
