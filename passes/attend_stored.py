"""attend_stored: attention reads keys and values as they are stored, in 16 bits.

attention(%q, map(%k) { cast($0, float32) }, map(%v) { cast($0, float32) })
    →   attention(%q, %k, %v)

Half as many bytes come from memory, and nothing is written, where a state of keys and values in halves meets
a few queries; for many its kernel widens a block at a time.
"""

from __future__ import annotations

from ..ir import dtypes, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Rewriter, Value
from ..ir.ops import Attention, Map


@everywhere
def attend_stored(graph: Graph) -> Graph:
    """graph in which attention widens halves itself whose rows lie together."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        op = node.op
        if not isinstance(op, Attention) or op.narrow or not (op.k.endswith("d") and op.v.endswith("e")):
            rewriter.copy(node)
            continue
        q, k, v, *bias = (rewriter.of(value) for value in node.inputs)
        stored = _stored(k), _stored(v)
        if stored[0].dtype == stored[1].dtype and q.dtype == "float32":
            k, v = stored
        outputs = rewriter.add(op, (q, k, v, *bias), node.origin, [value.name for value in node.outputs])
        rewriter.replace(node.outputs, outputs)
    return rewriter.finish()


def _stored(value: Value) -> Value:
    """What a Map only made float32 of 16 bits, or the value."""
    node = value.producer
    if node is None or not isinstance(node.op, Map) or node.op.shape is not None or len(node.inputs) != 1:
        return value
    before = node.inputs[0]
    widens = before.dtype in dtypes.HALVES and node.op.body is expr.input_(0, before.dtype).cast("float32")
    return before if widens and before.shape == value.shape else value
