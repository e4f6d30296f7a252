"""fuse_gathers: a Map over rows that Gathers pick becomes one group with them, and so does a weighed sum of
what one picks, so that none of it is stored.

%1 = gather(%x, %i) form=nd batch=1; %2 = gather(%x, %j) form=nd batch=1
%3 = map(%1, %u, %2, %v) { add(mul($0, $1), mul($2, $3)) }
→   %3 = fused rows(%x, %i, %u, %x, %j, %v) { the same }

%1 = gather(%x, %i) form=axis axis=2; %2 = reduce(%1, %w) kind=sum axes=(2) body={ mul($0, $1) }
→   %2 = fused gathered sum(%x, %i, %w) { the same }

%1 = map(%p) { floor($0) }; %2 = gather(%x, %1) form=elements axis=2; %3 = map(%2, %p) { mul($0, $1) }
→   %3 = fused gathered map(%p, %x) { the same }

Samples between the pixels of an image are made like this (GridSample, deformable convolutions), and words
that are embedded with something added. Each Gather has a parameter of its own for what it picks rows of.
Sums are those of filters that only the run knows the length of (an antialiased Resize). Single elements that
are picked along the last axis bring the Maps along that tell their places, if nobody else reads these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ..ir import dims, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.groups import fuse_members
from ..ir.kernel_limits import GATHERED_TYPES
from ..ir.ops import Broadcast, FusedKind, Gather, Map, Reduce

PICKED_TYPES = (*GATHERED_TYPES, "int32", "int64")
MOST = 16  # Gathers of a group: the neighbours of a cubic sample
SHORTEST, LONGEST = 2, 1 << 15  # elements of a row, of which one thread has all


@everywhere
def fuse_gathers(graph: Graph) -> Graph:
    """graph with Fused groups of kinds "rows", "gathered sum" and "gathered map" that gather operands."""
    rewriter = Rewriter(graph)
    order = {node: k for k, node in enumerate(graph.nodes)}
    groups: dict[Node, tuple[FusedKind, list[Node]]] = {}
    for node in graph.nodes:
        if gathers := _gathers(node, rewriter.readers):
            groups[node] = "rows", gathers
        elif gathers := _terms(node, rewriter.readers):
            groups[node] = "gathered sum", gathers
        elif gathers := _elements(node, rewriter.readers):
            found = _with_places([node, *gathers], rewriter.readers, groups)
            groups[node] = "gathered map", sorted(found - {node}, key=order.__getitem__)
    grouped = {member for _, members in groups.values() for member in members}
    for node in graph.nodes:
        if node in groups:
            kind, members = groups[node]
            sources = {member.inputs[0] for member in members if isinstance(member.op, Gather)}
            fuse_members(rewriter, kind, [*members, node], sources)
        elif node not in grouped:
            rewriter.copy(node)
    return rewriter.finish()


def _gathers(node: Node, readers: Counter[Value]) -> list[Node]:
    """Those that pick, for a Map alone, rows of as many axes as the first of them does."""
    op = node.op
    if not isinstance(op, Map) or op.shape is not None or expr.contains(op.body, "index", "check", "size"):
        return []
    if any(v.dtype not in GATHERED_TYPES for v in (*node.inputs, *node.outputs)):
        return []
    picked = [v.node for v in node.inputs if readers[v] == 1 and _picks(v, node.outputs[0])]
    axes = {gather: gather.op.row_axes(*(v.tensor for v in gather.inputs)) for gather in picked}
    found = [gather for gather in picked if axes[gather] == axes[picked[0]]]
    return found[:MOST]


def _terms(node: Node, readers: Counter[Value]) -> list[Node]:
    """The Gather of whose rows' elements a node is the sum, times a weight for each place of an axis."""
    op = node.op
    if not isinstance(op, Reduce) or op.kind != "sum" or op.keepdims or len(node.inputs) != 2:
        return []
    picked, weights = node.inputs
    made, (axis, *others) = picked.producer, op.axes
    if made is None or not isinstance(made.op, Gather) or made.op.form != "axis" or readers[picked] != 1:
        return []
    places = made.inputs[1]
    product = expr.input_(0, picked.dtype) * expr.input_(1, picked.dtype)
    fits = op.body is product and picked.dtype in ("float32", "float64") and places.dtype == "int64"
    fits = fits and places.rank == 2 and weights.shape == (*places.shape, *(1,) * (picked.rank - 2 - axis))
    return [made] if fits and not others and axis == made.op.axis else []


def _elements(node: Node, readers: Counter[Value]) -> list[Node]:
    """Those that pick, for a Map alone, every element of an operand along its last axis."""
    if not _is_plain(node) or node.outputs[0].dtype not in PICKED_TYPES:
        return []
    found = [
        v.node
        for v in dict.fromkeys(node.inputs)
        if _picks_elements(v, node.outputs[0]) and readers[v] == node.inputs.count(v)
    ]
    return found[:MOST]


def _picks_elements(value: Value, whole: Value) -> bool:
    made = value.producer
    if made is None or not isinstance(made.op, Gather) or made.op.form != "elements":
        return False
    last = value.shape == whole.shape and made.op.axis == value.rank - 1
    return last and value.dtype in PICKED_TYPES and _are_computed(made.inputs[1])


def _are_computed(places: Value) -> bool:
    """Whether the run tells places one by one. Those of a formula of whole numbers may step evenly."""
    made = places.producer
    if places.constant is not None or made is None or made.inputs:
        return places.constant is None
    return isinstance(made.op, Map) and expr.contains(made.op.body, "floor", "ceil")


def _is_plain(node: Node) -> bool:
    """Whether it is computed element by element, whatever their indices are."""
    if isinstance(node.op, Broadcast):
        return True
    return isinstance(node.op, Map) and not expr.contains(node.op.body, "index", "check")


def _with_places(members: list[Node], readers: Counter[Value], groups: Collection[Node]) -> set[Node]:
    """The members with the Maps that nobody else reads the results of, but for what Gathers pick from."""

    def operands(node: Node) -> Sequence[Value]:
        return node.inputs[1:] if isinstance(node.op, Gather) else node.inputs

    found, read = set(members), Counter(v for member in members for v in operands(member))
    pending = list(read)
    while pending:
        value = pending.pop()
        made = value.producer
        inside = made is not None and made not in found and made not in groups and _is_plain(made)
        if made is not None and inside and read[value] == readers[value] and made.inputs:
            found.add(made)
            read.update(made.inputs)
            pending += made.inputs
    return found


def _picks(value: Value, whole: Value) -> bool:
    """Whether it is as large as the result, and made of rows at places that the run tells one by one."""
    made = value.producer
    if made is None or not isinstance(made.op, Gather) or value.shape != whole.shape:
        return False
    source, places = made.inputs
    axes = made.op.row_axes(source.tensor, places.tensor)
    row = dims.typical(dims.product(value.shape[value.rank - axes :]))
    return axes > 0 and _are_computed(places) and SHORTEST <= row <= LONGEST
