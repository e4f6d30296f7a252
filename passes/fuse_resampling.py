"""fuse_resampling: Maps of neighbouring pixels become one group with the Gathers that pick rows and columns
of images, so that a kernel computes every pixel of an enlarged image at once.

%2 = map(%0: gather(%x, i), u, %1: gather(%x, j), v) { add(mul($0, $1), mul($2, $3)) }
→   %2 = fused resampling(%x, i, u, j, v) { the same }

Such a group holds the interpolation along both axes and the Map that reads the result, with the rounding to
another type, and what widens the pixels that are read. Rows and columns of an image that are only picked are
a group too, where they are few, and where they are many and long: each is then widened once.
"""

from __future__ import annotations

from collections import Counter

from ..ir import dims, dtypes, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.groups import fuse_members
from ..ir.kernel_limits import GATHERED_TYPES
from ..ir.ops import Gather, Map
from ..ir.ranges import all_inside

CHEAP = 8  # instructions of a Map that is computed for every neighbour of a pixel
WIDE = 64  # elements of a row that is repeated: it takes longer to begin shorter ones than to read all again


@everywhere
def fuse_resampling(graph: Graph) -> Graph:
    """graph with Fused groups of kind "resampling"."""
    rewriter = Rewriter(graph)
    groups: dict[Node, list[Node]] = {}  # where a group stands → its members
    grouped: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in grouped and (_is_map(node) or _picks_both(node)):
            members = _members(node, rewriter.readers)
            among = any(sum(map(_is_picked, member.inputs)) > 1 for member in members if _is_map(member))
            if among or (_picks_both(node) and len(members) > 1):
                groups[node] = members
                grouped.update(members)
    place = {node: k for k, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node in groups:
            fuse_members(rewriter, "resampling", sorted(groups[node], key=lambda member: place[member]))
        elif node not in grouped:
            rewriter.copy(node)
    return rewriter.finish()


def _members(root: Node, readers: Counter[Value]) -> list[Node]:
    """root and the Gathers, cheap Maps of them and casts before them that nobody reads but members."""
    members, read = [root], Counter[Value]()
    for member in members:
        for value in member.inputs:
            read[value] += 1
            joins = _joins(value) or (_shrinks(member) and _is_cast(value))
            if read[value] == readers[value] and joins and _fills(value, member):
                members.append(value.node)
    return members


def _fills(value: Value, reader: Node) -> bool:
    """Whether a Map reads every element of an operand once; a Gather reads what it picks."""
    return isinstance(reader.op, Gather) or value.shape == reader.outputs[0].shape


def _joins(value: Value) -> bool:
    if _is_picked(value):
        return True
    made = value.producer
    return made is not None and _is_cheap(made) and any(map(_is_picked, made.inputs))


def _picks_both(node: Node) -> bool:
    """Whether rows and columns of an image are picked: few of both, whose elements a vector gathers, or rows,
    many of them, that are long."""
    if not isinstance(node.op, Gather) or not _is_picked(node.outputs[0]) or not _is_picked(node.inputs[0]):
        return False
    before, width = node.inputs[0].node, node.outputs[0].shape[-1]
    if before.op.axis == node.op.axis or node.inputs[0].dtype not in ("float32", "float64"):
        return False
    if _shrinks(node) or _shrinks(before):
        return _shrinks(node) and _shrinks(before)
    return node.op.axis == node.inputs[0].rank - 2 and dims.typical(width) >= WIDE


def _shrinks(node: Node) -> bool:
    """Whether a Gather picks less than there is."""
    picked, whole = (dims.typical(v.tensor.count) for v in (node.outputs[0], node.inputs[0]))
    return isinstance(node.op, Gather) and picked < whole


def _is_cast(value: Value) -> bool:
    """Whether an image is another in a wider type, which is made of the pixels alone that are read."""
    made = value.producer
    if made is None or not _is_map(made) or made.op.body.op != "cast" or made.op.body.args[0].op != "input":
        return False
    return dtypes.bits(made.inputs[0].dtype) < dtypes.bits(value.dtype)


def _is_image(value: Value) -> bool:
    return value.dtype in GATHERED_TYPES and value.rank in (3, 4) and isinstance(value.shape[1], int)


def _is_map(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Map) or op.shape is not None or expr.contains(op.body, "index", "check", "size"):
        return False
    return all(v.dtype in GATHERED_TYPES for v in node.inputs) and _is_image(node.outputs[0])


def _is_cheap(node: Node) -> bool:
    if not _is_map(node) or expr.instructions(node.op.body) > CHEAP:
        return False
    return all(e.op in ("input", "const", "add", "mul") for e in expr.topological(node.op.body))


def _is_picked(value: Value) -> bool:
    """Whether indices picked the rows or columns of an image."""
    made = value.producer
    if made is None or not isinstance(made.op, Gather) or not _is_image(made.inputs[0]):
        return False
    places = made.inputs[1]
    if made.op.form != "axis" or made.op.axis < 2 or places.rank != 1 or places.dtype != "int64":
        return False
    if places.constant is None:
        return True  # the kernel checks them
    return all_inside(places.constant.array, made.inputs[0].shape[made.op.axis])
