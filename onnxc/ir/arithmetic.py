"""How much a graph computes: its multiply-adds, as a polynomial over the dimension variables."""

from __future__ import annotations

from . import dims
from .dims import Dimension
from .graph import Graph, Node, TensorType, Value
from .ops import Attention, Contract, Conv, Elements, Fused, If, Loop, Recurrent

MOST_TRIPS = 1 << 31  # a loop with a greater number of iterations is ended by its condition


def multiply_adds(graph: Graph) -> Dimension:
    """Multiply-adds of products, convolutions, attention and recurrent ops in one run. Of a branch
    the more expensive side counts; a loop counts as often as it is known to run, else once. Where the
    formula would be too large, their number at typical sizes."""
    counts = [multiply_adds_of(node) for node in graph.nodes]
    try:
        return sum(counts, 0)
    except dims.TooComplex:
        return sum(map(dims.typical, counts))


def multiply_adds_of(node: Node) -> Dimension:
    """Those of one node; see `multiply_adds`."""
    types = [v.type for v in node.inputs if isinstance(v.type, TensorType)]  # all, of what is counted
    match node.op:
        case Contract(lhs=lhs, rhs=rhs):
            sizes = dict(zip(rhs, types[1].shape)) | dict(zip(lhs, types[0].shape))
            return dims.product(sizes.values())
        case Conv(transposed=transposed):
            image = types[0] if transposed else node.outputs[0].tensor
            return dims.product((image.shape[0], *image.shape[2:], *types[1].shape))
        case Attention(q=q, k=k, v=v):
            extents = {
                label: size
                for labels, operand in zip((q, k, v), types)
                for label, size in zip(labels, operand.shape)
            }
            batch = dims.product(size for label, size in extents.items() if label not in "qkde")
            return batch * extents["q"] * extents["k"] * (extents["d"] + extents["e"])
        case Recurrent():
            steps, batch, *_ = types[0].shape
            return steps * batch * dims.product(types[1].shape)
        case Fused(region=region):
            return multiply_adds(region)
        case If(then=then, otherwise=otherwise):
            sides = [multiply_adds(then), multiply_adds(otherwise)]
            if any(map(dims.is_large, sides)):  # comparing them would take long
                return max(map(dims.typical, sides))
            return dims.maximum(*sides)
        case Loop(body=body):
            return multiply_adds(body) * _trips(node.inputs[0])
    return 0


def _trips(value: Value) -> Dimension:
    """How often a loop is known to run, else 1."""
    if value.constant is not None:
        known = max(int(value.constant.array), 0)
        return known if known < MOST_TRIPS else 1
    made = value.producer
    return made.op.dims[0] if made is not None and isinstance(made.op, Elements) else 1
