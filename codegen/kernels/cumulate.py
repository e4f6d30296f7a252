"""Cumulate: running sums and products along an axis, every line of the others on its own."""
from __future__ import annotations

import sys
from collections.abc import Iterable

from ... import dims, dtypes, expr
from ...ir import Constant, Node
from ...ops import Cumulate
from ...target import Target
from ..kernel import Choice, Code, KernelText, single
from ..nest import loops, typical
from ..scalar import load_vector, lower, store_vector

PART = 1 << 12  # elements
NANOSECONDS = 2


def candidates(node: Node, target: Target) -> Iterable[Choice]:
    if isinstance(node.op, Cumulate) and node.inputs[0].type.layout is None:
        yield Choice(sys.modules[__name__], NANOSECONDS * typical(node.outputs[0].type.count))


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    return None


def emit(node: Node, choice: Choice, target: Target) -> Code:
    (x,), op = node.inputs, node.op
    count, width = x.shape[op.axis], dtypes.itemsize(x.dtype)
    outer, inner = dims.product(x.shape[: op.axis]), dims.product(x.shape[op.axis + 1 :])
    lines = max(1, PART // max(1, count)) if isinstance(count, int) else 16  # of a part
    combine = expr.apply("add" if op.kind == "sum" else "mul", expr.input_(0, x.dtype), expr.input_(1, x.dtype))
    start = expr.const(0 if op.kind == "sum" else 1, x.dtype)
    k = KernelText(target)
    with k.entry() as f:
        stop = f.minimum(f.mul("%last", lines), k.size(f, outer * inner))
        slot = f.hoisted("alloca i64")
        with f.loop(f.mul("%first", lines), stop) as line:
            block, lane = f.divide(line.index, k.size(f, inner))
            base = f.add(f.mul(block, k.size(f, count * inner)), lane)
            (initial,) = lower(f, [start], lambda i: "", 1)
            store_vector(f, x.dtype, initial, slot, 1)
            with loops(f, [k.size(f, count)]) as (step,):
                step = f.sub(f.sub(k.size(f, count), 1), step) if op.reverse else step
                place = f.mul(f.add(base, f.mul(step, k.size(f, inner))), width)
                before = load_vector(f, x.dtype, slot, 1)
                element = load_vector(f, x.dtype, f.offset(k.input(f, 0), place), 1)
                (after,) = lower(f, [combine], [before, element].__getitem__, 1)
                store_vector(f, x.dtype, before if op.exclusive else after, f.offset(k.output(f), place), 1)
                store_vector(f, x.dtype, after, slot, 1)
    return single(k.step(dims.ceil_divide(outer * inner, lines), outer * inner * count * NANOSECONDS))
