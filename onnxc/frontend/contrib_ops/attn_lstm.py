"""AttnLSTM: an LSTM that after each step looks into a memory, by Bahdanau's attention, and sees in the next
one what it found.

gates = X W_x + bias        what the inputs contribute, for all steps at once
body of the loop            gates[t] + attention W_a, one step of a Recurrent, its attention
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from ...ir import expr, ops
from ...ir.builder import Builder
from ...ir.graph import TensorType, Type, Value
from ...records import dataclass
from ..onnx_ops.common import checked, drop_axes, generate, insert_axes, one_of, zeros
from ..onnx_ops.control import loop
from ..onnx_ops.indexing import ReverseSequence
from ..onnx_ops.recurrent import DIRECTIONS, activations_of, biases, of_each_direction, shaped, within
from ..onnx_ops.reductions import softmax
from ..rule_builder import Region
from ..rules import Types
from .schema import contrib_op

Real = Annotated[Value, Types.of("T", "float", "double")]
Count = Annotated[Value, Types.of("T1", "int32")]


@contrib_op(
    outputs="Y? Y_h? Y_c?", ranks={"B": 2, "sequence_lens": 1, "P": 2, "V": 2, "memory_seq_lens": 1, "*": 3}
)
def AttnLSTM(
    b,
    X: Real,
    W: Real,
    R: Real,
    B: Real | None = None,
    sequence_lens: Count | None = None,
    initial_h: Real | None = None,
    initial_c: Real | None = None,
    P: Real | None = None,
    QW: Real | None = None,
    MW: Real | None = None,
    V: Real | None = None,
    M: Real | None = None,
    memory_seq_lens: Count | None = None,
    AW: Real | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction="forward",
    hidden_size: int | None = None,
    input_forget=0,
):
    """X [steps, batch, input]; W [D, 4 hidden, input + attention]; M, the memory [batch, places, depth]. The
    attention is a sum of the memory's rows, or, with AW, a layer over that and the step's output."""
    one_of(direction, tuple(DIRECTIONS), "direction")
    if QW is None or MW is None or V is None or M is None:
        raise ops.TypeMismatch("an AttnLSTM needs a memory and weights of its attention")
    directions = DIRECTIONS[direction]
    hidden = R.shape[2] if hidden_size is None else hidden_size
    if not isinstance(hidden, int):
        raise ops.TypeMismatch(f"the hidden size {hidden} is no number")
    kinds = activations or of_each_direction(("Sigmoid", "Tanh", "Tanh"), direction)
    functions = activations_of(kinds, activation_alpha, activation_beta)
    found = []
    for d, way in enumerate(directions):
        names = functions[3 * d : 3 * d + 3]
        op = ops.Recurrent("lstm", hidden, ("forward",), names, (), clip, input_forget=bool(input_forget))
        weights = _Weights(*(b.take(w, 0, d, 1) for w in (W, R, QW, MW, V)))
        own = {
            key: b.take(v, 0, d, 1)
            for key, v in (("b", B), ("h", initial_h), ("c", initial_c), ("p", P), ("layer", AW))
            if v is not None
        }
        found.append(_one_way(b, op, X, weights, own, M, sequence_lens, memory_seq_lens, way == "reverse"))
    y, h, c = zip(*found)
    return b.concat([insert_axes(b, v, [1]) for v in y], 1), b.concat(h, 0), b.concat(c, 0)


@dataclass(frozen=True)
class _Weights:
    """Of one direction, each with a first axis of 1: the cell's, and the attention's of query, memory and
    their sum."""

    w: Value
    r: Value
    query: Value
    memory: Value
    v: Value


def _one_way(
    b: Builder,
    op: ops.Recurrent,
    x: Value,
    weights: _Weights,
    optional: dict[str, Value],
    memory: Value,
    lengths: Value | None,
    memory_lengths: Value | None,
    backwards: bool,
) -> tuple[Value, Value, Value]:
    """(Y [steps, batch, hidden], Y_h and Y_c [1, batch, hidden]) of one direction. optional: where given,
    the bias b, states h and c, peepholes p, and the layer of the attention, each with a first axis of 1."""
    steps, batch, size = x.shape
    layer = optional.get("layer")
    width = memory.shape[2] if layer is None else layer.shape[2]
    attends = _attention(b, weights, layer, memory, memory_lengths)
    w = shaped(b, weights.w, (1, op.columns, size + width), "W")
    counts = lengths
    if lengths is None and backwards:
        counts = b.broadcast(b.cast(b.elements([steps]), "int32"), (batch,))
    elif lengths is not None:
        says = f"a sequence has {{}} of {steps} steps"
        lengths = checked(b, lengths, lambda n: within(n, steps), "index_out_of_range", says)
    gates = b.contract("tbi", "dgi", "tbdg", _turned(b, x, counts, backwards), b.take(w, 2, 0, size))
    if "b" in optional:
        gates = b.map(gates, biases(b, op, optional["b"])[0], lambda g, c: g + c)
    of_attention = b.take(w, 2, size, width)

    def region(carried: Sequence[Type]) -> Region:
        body = b.inner()
        t, goes_on = body.input(TensorType("int64", ()), "t"), body.input(TensorType("bool", ()), "goes_on")
        h, c, seen = (body.input(type_) for type_ in carried)
        own = insert_axes(body, body.emit(ops.Gather("axis", 0), gates, t)[0], [0])
        more = insert_axes(body, body.contract("ba", "dga", "bdg", seen, of_attention), [0])
        operands = {"h": h, "c": c}
        if lengths is not None:
            operands["lengths"] = body.map(lengths, t, lambda n, t: (n - t.cast("int32")).clip(0, 1))
        if "p" in optional:
            operands["p"] = optional["p"]
        step = replace(op, operands=tuple(operands))
        gate = body.map(own, more, lambda g, a: g + a)
        y, h, c = body.emit(step, gate, weights.r, *operands.values())
        y = drop_axes(body, y, [0, 1])
        return Region(body, [goes_on, h, c, attends(body, y), y], [t, goes_on, h, c, seen])

    nothing = zeros(b, x.dtype, (1, batch, op.hidden))
    initial = [optional.get("h", nothing), optional.get("c", nothing), zeros(b, x.dtype, (batch, width))]
    trips = b.elements(np.array(steps, object))
    h, c, _, y = loop(b, trips, b.constant(True), initial, region)
    return _turned(b, y, counts, backwards), h, c


def _turned(b: Builder, x: Value, lengths: Value | None, backwards: bool) -> Value:
    return ReverseSequence(b, x, lengths) if backwards else x


def _attention(
    b: Builder, weights: _Weights, layer: Value | None, memory: Value, lengths: Value | None
) -> Callable[[Builder, Value], Value]:
    """What gives, in the loop's body, the attention of a step's output [batch, hidden]: scores are
    v tanh(memory W_m + output W_q), those of places behind a sequence's length are left out."""
    keys = b.contract("bsm", "dma", "bsa", memory, weights.memory)
    hidden: Value | None = None
    if lengths is not None:
        there = expr.index(1) < expr.input_(0, "int32").cast("int64")
        body = expr.where(there, expr.const(0, memory.dtype), -math.inf)
        hidden = generate(b, memory.shape[:2], body, b.reshape(lengths, (memory.shape[0], 1)))

    def attends(body: Builder, y: Value) -> Value:
        query = insert_axes(body, body.contract("bh", "dha", "ba", y, weights.query), [1])
        each = body.map(keys, query, weights.v, lambda k, q, v: v * expr.tanh(k + q))
        scores = body.reduce("sum", each, [2])
        if hidden is not None:
            scores = body.map(scores, hidden, lambda s, h: s + h)
        found = body.contract("bs", "bsm", "bm", softmax(body, scores, [1]), memory)
        if layer is None:
            return found
        return body.contract("bc", "dca", "ba", body.concat([y, found], 1), layer)

    return attends
