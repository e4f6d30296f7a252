"""flatten_volumes: convolutions and pools over four axes or more become ones over three.

conv(%x, %w) over (T, D, H, W), kernel 3x3x3x3   →   conv(%0, %1) over (D, H, W)
    %0 = each place along T as a volume of its own, the three volumes that its window sees as its channels
    %1 = the weights of a tap along T after those of the other: [O, 3 * C, 3, 3, 3]

Each step leaves out one axis as `flatten_windows` does it, which later takes what is over three. The volumes
are a batch by then, so that those that follow each other are taken one by one (`separate_volumes`).
"""

from __future__ import annotations

from ..ir.everywhere import everywhere
from ..ir.graph import Graph
from ..ir.ops import Conv, Pool
from ..target import Target
from .flatten_windows import VOLUME, one_axis_fewer


def flatten_volumes(graph: Graph, target: Target) -> Graph:
    """graph with windows over three axes, where more can be had so."""
    return everywhere(lambda inner: _flattened(inner, target))(graph)


def _flattened(graph: Graph, target: Target) -> Graph:
    most = max((len(n.op.strides) for n in graph.nodes if isinstance(n.op, (Conv, Pool))), default=0)
    for axes in range(most, VOLUME, -1):
        graph = one_axis_fewer(graph, target, axes)
    return graph
