"""flatten_pixels: images whose channels come last are interpolated as planes of numbers, which a kernel of
rows takes (`fuse_resampling`).

%1 = gather(%x: [N, H, W, 3], i) axis=1; %2 = map(%1, ...); %3 = gather(%2, j) axis=2; %4 = map(%3, ...)
→   %1 = gather(reshape(%x) [N, 1, H, 3 * W], i) axis=2; ... %3 = gather(%2, 3 * j + channel) axis=3; ...
    %5 = reshape(%4) [N, h, w, 3]

What is read along with a pixel, as the weight of a column, is repeated for its channels. Images are flattened
whose rows and columns are both picked, and weighed; so is the cast that widens one of them.
"""

from __future__ import annotations

from ..ir import dims, expr
from ..ir.dims import Dimension
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.kernel_limits import GATHERED_TYPES
from ..ir.ops import Broadcast, Gather, Map, Reshape
from ..ir.ranges import all_inside

FEW = 16  # channels
FEW_OPEN = 4  # where the run tells the places: each number's is looked up, not that of a pixel
BOTH = frozenset((-3, -2))  # the axes of rows and columns


@everywhere
def flatten_pixels(graph: Graph) -> Graph:
    """graph with planes where channels come last."""
    chosen = _chosen(graph)
    if not chosen:
        return graph
    rewriter = Rewriter(graph)
    writer = _Writer(rewriter)
    for node in graph.nodes:
        if node in chosen:
            writer.flatten(node)
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _chosen(graph: Graph) -> set[Node]:
    """What leads to images that are weighed along both axes, and each image that is widened for that."""
    picked = dict[Value, frozenset[int]]()  # the axes along which pixels are picked on the way to a value
    wanted, chosen = set[Value](), set[Node]()
    for node in graph.nodes:
        if _picks(node):
            axis = node.op.axis - node.inputs[0].rank
            picked[node.outputs[0]] = picked.get(node.inputs[0], frozenset()) | {axis}
        elif _is_map(node) and (found := [picked[v] for v in node.inputs if v in picked]):
            picked[node.outputs[0]] = frozenset[int]().union(*found)
            if len(found) > 1 and picked[node.outputs[0]] == BOTH:
                wanted.add(node.outputs[0])
    for node in reversed(graph.nodes):
        if node.outputs and node.outputs[0] in wanted:
            chosen.add(node)
            images = node.inputs[:1] if isinstance(node.op, Gather) else node.inputs
            wanted.update(v for v in images if v in picked or _is_cast(v))
    return chosen


def _is_image(value: Value) -> bool:
    if value.dtype not in GATHERED_TYPES or value.rank not in (3, 4):
        return False
    return isinstance(value.shape[-1], int) and 1 <= value.shape[-1] <= FEW


def _picks(node: Node) -> bool:
    """Whether it picks rows or columns of pixels that are known to be there: of others an error names the
    place."""
    op = node.op
    if not isinstance(op, Gather) or op.form != "axis" or not _is_image(node.inputs[0]):
        return False
    image, places = node.inputs
    if op.axis - image.rank not in BOTH or places.rank != 1 or places.dtype != "int64":
        return False
    if places.constant is not None:
        return all_inside(places.constant.array, image.shape[op.axis])
    made = places.producer
    few = dims.number(image.shape[-1]) <= FEW_OPEN
    return (
        few
        and made is not None
        and isinstance(made.op, Map)
        and (made.op.body.op == "min" or not made.inputs)
    )


def _is_map(node: Node) -> bool:
    op = node.op
    plain = isinstance(op, Map) and op.shape is None and not expr.contains(op.body, "index", "check")
    return plain and all(map(_is_image, node.outputs))


def _is_cast(value: Value) -> bool:
    made = value.producer
    return made is not None and _is_map(made) and made.op.body.op == "cast" and len(made.inputs) == 1


class _Writer:
    """The planes that are made so far."""

    def __init__(self, rewriter: Rewriter):
        self.rewriter = rewriter
        self.planes: dict[Value, Value] = {}

    def flatten(self, node: Node) -> None:
        """Writes a node over planes, and its result as an image."""
        image, out = node.inputs[0], node.outputs[0]
        if isinstance(node.op, Gather):
            axis = 5 + node.op.axis - image.rank
            places = self.rewriter.of(node.inputs[1])
            if axis == 3:
                places = self._columns(places, dims.number(image.shape[-1]), node.origin)
            op, inputs = Gather("axis", axis), [self._plane(image, image, node.origin), places]
        else:
            op, inputs = node.op, [self._plane(v, out, node.origin) for v in node.inputs]
        (self.planes[out],) = self.rewriter.add(op, inputs, node.origin)
        image = self._reshaped(self.planes[out], out.shape, node.origin, out.name)
        self.rewriter.replace([out], [image])

    def _columns(self, places: Value, channels: int, origin: str) -> Value:
        """Where the channels are of the pixels in these columns."""
        count = places.shape[0]
        each = expr.input_(0, "int64") * channels + expr.index(1)
        rows = self._reshaped(places, (count, 1), origin)
        (numbers,) = self.rewriter.add(Map(each, (count, channels)), [rows], origin)
        return self._reshaped(numbers, (count * channels,), origin)

    def _plane(self, value: Value, image: Value, origin: str) -> Value:
        """A value as it is read beside the plane of an image."""
        if value in self.planes:
            return self.planes[value]
        shape = (*(1,) * (4 - value.rank), *value.shape)
        pixels = image.shape[-2:]
        batch, rows, *there = shape
        value = self.rewriter.of(value)
        if there == [1, 1]:
            return self._reshaped(value, (batch, 1, rows, 1), origin)
        if tuple(there) != pixels:
            value = self._reshaped(value, shape, origin)
            (value,) = self.rewriter.add(Broadcast((batch, rows, *pixels)), [value], origin)
        return self._reshaped(value, (batch, 1, rows, dims.product(pixels)), origin)

    def _reshaped(self, value: Value, shape: tuple[Dimension, ...], origin: str, name: str = "") -> Value:
        if value.shape == shape:
            return value
        (found,) = self.rewriter.add(Reshape(shape), [value], origin, [name] if name else ())
        return found
