"""fuse_bands: a depthwise convolution or a pool and the convolutions around it, 1x1 ones or, before it, one
of few channels, become one group, where the images between them are large: a kernel computes it some rows at
a time, so that these images never leave the caches.

%a = conv(%x, %u); %b = conv(%a, %v) groups 96; %y = conv(%b, %w)
→   %y = fused bands(%x, %u, %v, %w) { the same }
"""

from __future__ import annotations

from ..ir import dims
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter
from ..ir.groups import fuse_chain
from ..ir.ops import Conv, Pool
from ..target import Target

FEW = 4  # channels of a network's input
SHARE = 2  # an image between is large where it takes more than this part of the second-level cache


def fuse_bands(graph: Graph, target: Target) -> Graph:
    """graph with Fused groups of kind "bands"."""
    return everywhere(lambda region: _fused(region, target))(graph)


def _fused(graph: Graph, target: Target) -> Graph:
    rewriter = Rewriter(graph)

    def follower(node: Node) -> Node | None:
        """Who alone reads a result that is large, as the image that it convolves."""
        result = node.outputs[0]
        reader = rewriter.only_reader(result)
        large = dims.typical(result.tensor.nbytes) * SHARE > target.facts.level2_bytes
        return reader if reader is not None and reader.inputs[0] is result and large else None

    last: dict[Node, list[Node]] = {}  # where a group stands → its members
    grouped: set[Node] = set()
    for node in graph.nodes:
        if not (_is_depthwise(node) or _is_pool(node)):
            continue
        before, after = node.inputs[0].producer, follower(node)
        members = [node]
        if (
            before is not None
            and before not in grouped
            and (_is_pointwise(before) or _is_first(before))
            and follower(before) is node
        ):
            members.insert(0, before)
        if after is not None and _is_pointwise(after):
            members.append(after)
        if len(members) > 1:
            last[members[-1]] = members
            grouped.update(members)
    for node in graph.nodes:
        if node in last:
            fuse_chain(rewriter, "bands", last[node], node.origin)
        elif node not in grouped:
            rewriter.copy(node)
    return rewriter.finish()


def _is_plain(node: Node) -> bool:
    """Whether a node convolves images of float32 with constant weights."""
    op = node.op
    if not isinstance(op, Conv) or op.transposed or len(op.strides) != 2:
        return False
    types = {node.inputs[0].dtype, node.inputs[1].dtype, op.accumulate, node.outputs[0].dtype}
    return (
        types == {"float32"}
        and node.inputs[1].constant is not None
        and isinstance(node.inputs[0].shape[1], int)
    )


def _is_depthwise(node: Node) -> bool:
    op = node.op
    return _is_plain(node) and 1 < op.groups == node.inputs[0].shape[1] == node.outputs[0].shape[1]


def _is_pool(node: Node) -> bool:
    op, x = node.op, node.inputs[0] if node.inputs else None
    plain = isinstance(op, Pool) and op.kind in ("max", "mean") and len(op.kernel) == 2
    if not plain or x is None or x.shape[2:] == op.kernel:  # of the whole image there is but one band
        return False
    return x.dtype == "float32" and isinstance(x.shape[1], int)


def _is_first(node: Node) -> bool:
    """Whether a node convolves images of few channels."""
    channels = node.inputs[0].shape[1] if _is_plain(node) else FEW + 1
    return isinstance(channels, int) and channels <= FEW and node.op.groups == 1


def _is_pointwise(node: Node) -> bool:
    return _is_plain(node) and {*node.op.strides} == {1} and node.op.is_pointwise(node.inputs[1].tensor)
