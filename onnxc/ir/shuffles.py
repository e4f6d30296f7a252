"""Channel shuffles: channels that stand in groups are put in another order by a Reshape, a Transpose and a
Reshape (Zhang et al., "ShuffleNet", 2018).

%a = reshape(%x: [n, 136, h, w]) shape=(n, 4, 34, h, w); %b = transpose(%a) perm=(0, 2, 1, 3, 4)
%y = reshape(%b) shape=(n, 136, h, w)   →   %y is %x with its channels in the order 0, 34, 68, 102, 1, 35, ...
"""

from __future__ import annotations

from ..records import dataclass
from .dims import number
from .graph import Node, Value, make_node
from .ops import Reshape, Transpose


@dataclass(frozen=True)
class Shuffle:
    """A value that is `source` with the channels of its `groups` in turn, and the nodes that move them, in
    order."""

    source: Value
    groups: int
    nodes: tuple[Node, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """For each channel the one of the source that it is."""
        channels = number(self.source.shape[1])
        each = channels // self.groups
        return tuple(group * each + k for k in range(each) for group in range(self.groups))

    def of(self, value: Value) -> tuple[Node, ...]:
        """Nodes that shuffle another value so, of as many channels."""
        batch, channels, *spatial = value.shape
        parts = (batch, self.groups, number(channels) // self.groups, *spatial)
        steps = (Reshape(parts), Transpose((0, 2, 1, *range(3, len(parts)))), Reshape(value.shape))
        nodes: list[Node] = []
        for step, old in zip(steps, self.nodes, strict=True):
            nodes.append(make_node(step, [nodes[-1].outputs[0] if nodes else value], old.origin))
        return tuple(nodes)


def shuffle_of(value: Value) -> Shuffle | None:
    """What a value shuffles, if its producer is the last step of that."""
    joined = value.producer
    if joined is None or not isinstance(joined.op, Reshape):
        return None
    moved = joined.inputs[0].producer
    if moved is None or not isinstance(moved.op, Transpose):
        return None
    split = moved.inputs[0].producer
    if split is None or not isinstance(split.op, Reshape):
        return None
    source, parts = split.inputs[0], split.outputs[0].shape
    if source.shape != value.shape or len(parts) != source.rank + 1 or source.rank < 3:
        return None
    swapped = (0, 2, 1, *range(3, len(parts)))
    batch, groups, each, *spatial = parts
    if moved.op.perm != swapped or (batch, *spatial) != (source.shape[0], *source.shape[2:]):
        return None
    if not isinstance(groups, int) or not isinstance(each, int):
        return None
    return Shuffle(source, groups, (split, moved, joined))
