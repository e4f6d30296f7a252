"""How far away memory is when a node comes to it: what went through the caches since it was last used.

Follows a run through the places of the plan, at typical sizes. Of all that was used since a place was, every
piece of memory counts once, however often it was, and so does every constant and the scratch of every node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...ir import dims
from ...ir.graph import Graph, Node, TensorType, Value, walk
from ..costs import Passed, constant_bytes
from ..kernel import Code
from .plan_memory import Location, MemoryPlan, place

PIECES = 1 << 15  # that memory is followed in, or fewer
LEAST_PIECE = 4096  # bytes


def passed(graph: Graph, codes: Mapping[Node, Code], plan: MemoryPlan) -> dict[Node, dict[Value, Passed]]:
    """Of every node that a kernel runs, for its operands and results that are no constants: what went through
    the caches since their memory was last used, and how long ago that was, on average over a value."""
    memory, found = _Memory(plan), {}
    for again in (False, True):  # the second run finds what the first has left
        for node in walk(graph):
            if node.choice is not None:
                found[node] = memory.use(node, codes[node], tell=again)
    return found


class _Memory:
    """`last`: the step in which each piece was last used; `brought`: bytes of constants and scratch
    before each step; `begun`: when it began; `stored`: constants, and parts of them."""

    def __init__(self, plan: MemoryPlan):
        buffers = [replace(buffer, nbytes=dims.typical(buffer.nbytes)) for buffer in plan.buffers]
        end = plan.arena_bytes if plan.static else place(buffers)
        offsets = [buffer.offset or 0 for buffer in buffers]
        places: dict[tuple[str, int, int], int] = {}
        ranges: dict[Value, tuple[int, int]] = {}
        for value, location in plan.locations.items():
            if isinstance(value.type, TensorType) and location.kind != "constant":
                size = dims.typical(value.type.nbytes)
                if location.kind == "arena":
                    begin = offsets[location.index]
                else:
                    begin = places.setdefault(_space(location), -(-end // LEAST_PIECE) * LEAST_PIECE)
                begin += dims.typical(location.offset)
                ranges[value], end = (begin, begin + size), max(end, begin + size)
        self.piece = max(LEAST_PIECE, end // PIECES)
        self.pieces = {v: slice(b // self.piece, -(-e // self.piece)) for v, (b, e) in ranges.items()}
        self.last = np.full(-(-end // self.piece), -1)
        self.brought, self.begun = [0.0], [0.0]
        self.stored = {v for v, location in plan.locations.items() if location.kind == "constant"}
        self.run = Passed()  # a whole run, when one is over

    def use(self, node: Node, code: Code, tell: bool) -> dict[Value, Passed]:
        """Uses what a node reads, then what it writes; how far away each was."""
        found: dict[Value, Passed] = {}
        step = len(self.brought) - 1
        for values in (node.inputs, node.outputs):
            its = [v for v in dict.fromkeys(values) if v in self.pieces and v.constant is None]
            if tell:
                if not self.run.ns:
                    self.run = Passed(self.brought[-1] + self.piece * len(self.last), self.begun[-1])
                found |= {value: self.distance(value) for value in its}
                found |= {v: self.run for v in values if v in self.stored and v.constant is None}
            for value in its:
                self.last[self.pieces[value]] = step
        scratch = max((dims.typical(s.scratch) for s in code.steps), default=0)
        self.brought.append(self.brought[step] + constant_bytes(node) + scratch)
        self.begun.append(self.begun[step] + (node.choice.time if node.choice is not None else 0.0))
        return found

    def distance(self, value: Value) -> Passed:
        """What else was used in the step in which a piece was counts half: it was used before or after."""
        steps, counts = np.unique(self.last[self.pieces[value]], return_counts=True)
        if not len(steps):
            return Passed()
        return Passed(*map(float, np.average([self._since(step) for step in steps], 0, counts)))

    def _since(self, step: int) -> tuple[float, float]:
        pieces = np.count_nonzero(self.last > step) + np.count_nonzero(self.last == step) / 2
        brought, ns = (
            its[-1] - sum(before) / len(before)
            for its in (self.brought, self.begun)
            for before in (its[step : step + 2] or [0.0],)
        )
        return self.piece * pieces + brought, ns


def _space(location: Location) -> tuple[str, int, int]:
    return location.kind, location.index, location.slot
