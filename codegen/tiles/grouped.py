"""How a grouped convolution is cut into panels.

A panel of output channels belongs to one group, or to the few that meet in it, and sums over the channels
of just these: one after the other, where weights that join different groups are zeros, or those of two groups
side by side, where each lane has its own group's. Panels are cut where that gives the fewest products.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

from ...ir import dims
from ...ir.graph import Node
from ...ir.ops import Conv, Fused
from ...ir.shuffles import shuffle_of
from ...records import dataclass
from .. import costs
from .channel_panels import Panels


@dataclass(frozen=True)
class GroupedPanel:
    """`vectors` blocks of output channels from number `block` on, which sum over the input channels
    low..high-1. `border`: the lane from which on its only vector is of another group, whose channels are
    taken beside those of the first; 0: all channels are taken one after the other."""

    block: int
    vectors: int
    low: int
    high: int
    border: int = 0

    @property
    def groups(self) -> int:
        """Whose channels are taken side by side."""
        return 2 if self.border else 1

    @property
    def depth(self) -> int:
        """Of its sums."""
        return (self.high - self.low) // self.groups

    @property
    def step(self) -> float:
        """What a step of k takes, of the time of one of a single group."""
        return 1 + costs.TWO_GROUPS * (self.groups - 1)


@cache
def grouped_panels(
    channels: int,
    outputs: int,
    groups: int,
    block: int,
    vectors: int,
    together: int = 1,
    beside: bool = False,
) -> tuple[GroupedPanel, ...]:
    """The panels of at most so many vectors that take the fewest products, the widest first; their ranges are
    of multiples of `together`. beside: whether lanes of a vector may have channels of two groups."""
    inside, made = channels // groups, outputs // groups
    best: list[tuple[float, tuple[GroupedPanel, ...]]] = [(0.0, ())]
    for end in range(1, -(-outputs // block) + 1):
        ways = []
        for wide in range(1, min(vectors, end) + 1):
            time, panels = best[end - wide]
            last = min(end * block, outputs)
            first = (end - wide) * block
            low, high = channel_range(first, last, inside, made, together)
            each, border = (high - low) * (wide + costs.GROUPED_STEP), 0
            if beside and wide == 1 and high - low == 2 * inside:
                each, border = inside * (wide + costs.GROUPED_STEP + costs.TWO_GROUPS), -first % made
            panel = GroupedPanel(end - wide, wide, low, high, border)
            ways.append((time + each + costs.GROUPED_PANEL, (*panels, panel)))
        best.append(min(ways, key=lambda way: way[0]))
    return tuple(sorted(best[-1][1], key=lambda panel: (-panel.vectors, panel.groups)))


def channel_range(first: int, last: int, inside: int, made: int, together: int) -> tuple[int, int]:
    """The input channels of the groups that the output channels first..last-1 belong to, and what makes them
    multiples of `together`; a group has `inside` and `made` channels."""
    low, high = first // made * inside, ((last - 1) // made + 1) * inside
    return low - low % together, high + -high % together


def channel_ranges(
    channels: int, outputs: int, groups: int, block: int, vectors: int, together: int
) -> list[tuple[int, int]]:
    """For each of the panels of `vectors` blocks the input channels (first, beyond the last) that it sums
    over."""
    width, inside, made = block * vectors, channels // groups, outputs // groups
    firsts = range(0, outputs, width)
    return [channel_range(f, min(f + width, outputs), inside, made, together) for f in firsts]


@dataclass(frozen=True)
class Grouping:
    """The panels of a convolution and, for each channel that its groups are made of, which of the image that
    is. picked: whether tiles read the channels of the image one by one, in the order of the image."""

    groups: int
    panels: tuple[GroupedPanel, ...]
    order: tuple[int, ...]
    picked: bool

    def channels(self, panel: GroupedPanel) -> list[int]:
        """Of the image, that a panel reads, in the order in which it does."""
        found = self.order[panel.low : panel.high]
        if panel.border:
            return [c for pair in zip(found[: panel.depth], found[panel.depth :]) for c in pair]
        return sorted(found)

    def kinds(self, block: int) -> tuple[Panels, ...]:
        """The panels by their width and groups; which blocks they are of, is in `panels` alone."""
        found: list[Panels] = []
        for (vectors, groups), count in Counter((p.vectors, p.groups) for p in self.panels).items():
            found.append(Panels(sum(p.count for p in found), count, 0, vectors, block, groups=groups))
        return tuple(found)


def convolution(node: Node[Any]) -> Node[Any]:
    """What a group of kind "shuffled" convolves with, over what the group reads; another node itself."""
    if not isinstance(node.op, Fused) or node.op.kind != "shuffled":
        return node
    return Node(node.op.region.nodes[-1].op, node.inputs, node.outputs, node.origin, node.choice)


def grouping(node: Node[Any], block: int, vectors: int, group: int | None, beside: bool) -> Grouping:
    """How a convolution, or what `convolution` finds, is cut into panels of at most so many vectors, `group`
    channels being added up by one dot product, those of two groups `beside` each other."""
    conv: Node[Conv] = convolution(node)
    channels, outputs = (dims.number(v.shape[1]) for v in (conv.inputs[0], conv.outputs[0]))
    panels = grouped_panels(channels, outputs, conv.op.groups, block, vectors, group or 1, beside)
    if conv is not node and (shuffle := shuffle_of(node.op.region.nodes[-1].inputs[0])) is not None:
        return Grouping(conv.op.groups, panels, shuffle.order, True)
    single = dims.product(dims.numbers(conv.inputs[1].shape[2:])) == 1
    apart = any(p.border or p.low % block or p.high % block for p in panels)  # no ranges of whole blocks
    return Grouping(conv.op.groups, panels, tuple(range(channels)), single and apart and group is None)
