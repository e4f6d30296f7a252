"""pool_channels_last: a pool between Transposes, there and back, is one of images whose channels are last.

transpose(pool(transpose(%x) perm=(0, 3, 1, 2)) kernel=(3, 3)) perm=(0, 2, 3, 1)
    →   reshape(pool(reshape(%x) [N, 1, H, W, C]) kernel=(3, 3, 1)) [N, H, W, C]

Channels are an axis along which nothing is combined, so that images are pooled where they lie.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.dims import Dimension
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Pool, Reshape, Transpose


@everywhere
def pool_channels_last(graph: Graph) -> Graph:
    """graph without the Transposes around pools, where both are there."""
    rewriter = Rewriter(graph)
    readers = rewriter.readers
    for node in graph.nodes:
        pool = rewriter.of(node.inputs[0]).producer if isinstance(node.op, Transpose) else None
        image = _image(node, pool) if pool is not None and readers[node.inputs[0]] == 1 else None
        if pool is None or image is None:
            rewriter.copy(node)
            continue
        batch, *sizes, channels = image.shape
        (x,) = rewriter.add(Reshape((batch, 1, *sizes, channels)), [image], node.origin)
        (y,) = rewriter.add(_with_channels(pool.op, channels), [x], node.origin)
        result = rewriter.add(
            Reshape(node.outputs[0].shape), [y], node.origin, [v.name for v in node.outputs]
        )
        rewriter.replace(node.outputs, result)
    return rewriter.finish()


def _image(node: Node[Transpose], pool: Node) -> Value | None:
    """What a pool between two Transposes reads with its channels last; None where it does not."""
    if not isinstance(pool.op, Pool) or pool.op.kind == "argmax":
        return None
    before, rank = pool.inputs[0].producer, pool.inputs[0].rank
    if before is None or before.op != Transpose((0, rank - 1, *range(1, rank - 1))):
        return None
    return before.inputs[0] if node.op == Transpose((0, *range(2, rank), 1)) else None


def _with_channels(op: Pool, channels: Dimension) -> Pool:
    """The pool with one more axis, that of channels."""
    rank = len(op.kernel)
    return replace(
        op,
        kernel=(*op.kernel, 1),
        strides=(*op.strides, 1),
        dilations=(*op.dilations, 1),
        pads=(*op.pads[:rank], 0, *op.pads[rank:], 0),
        sizes=(*op.sizes, channels),
    )
