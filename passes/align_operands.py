"""align_operands: what a convolution's epilogue reads for each channel has the rank of the result.

conv(%x, %w, %b: [8, 1, 1]) epilogue { add($0, $1) }
→   conv(%x, %w, reshape(%b) shape=(1, 8, 1, 1)) epilogue { add($0, $1) }

So it is an image, which can be stored in blocks of channels. Constants are, whatever their rank.
"""

from __future__ import annotations

from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Rewriter, Value
from ..ir.ops import Conv, Reshape


@everywhere
def align_operands(graph: Graph) -> Graph:
    """graph with images beside the results of convolutions."""
    rewriter = Rewriter(graph)

    def aligned(value: Value, rank: int, origin: str) -> Value:
        shape = (1,) * (rank - value.rank) + value.shape
        if value.rank == rank or shape[1] == 1 or value.constant is not None:
            return value
        return rewriter.add(Reshape(shape), [value], origin)[0]

    for node in graph.nodes:
        inputs = [rewriter.of(v) for v in node.inputs]
        if isinstance(node.op, Conv):
            inputs[2:] = [aligned(v, node.outputs[0].rank, node.origin) for v in inputs[2:]]
        rewriter.copy(node, inputs)
    return rewriter.finish()
