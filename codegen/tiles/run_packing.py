"""Weights that only the run knows, put into panels by a step before the convolution.

    w [outputs][channels][taps]  →  for each panel: for each segment of channels: [taps][channels][lanes]
The convolution's own steps read the panels where they would read a constant's; nothing else in them changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.graph import Node
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Argument, Code, KernelText, Step
from ..text.emitter import Function
from .panels import Panels

MOST_UNROLLED = 16  # taps

Segment = tuple[int, int]  # so many blocks of so many channels


def segments_of(channels: int, block: int) -> list[Segment]:
    """Channels in blocks, and what is left of them: the depth of a panel, as `panels.by_depth` has it."""
    whole, rest = divmod(channels, block)
    return [s for s in ((whole, block), (1, rest)) if s[0] and s[1]]


def packing_estimate(node: Node, target: Target) -> Estimate:
    """What packing in the run takes: nothing for constant weights."""
    w = node.inputs[1]
    if w.constant is not None:
        return Estimate()
    return Estimate(compute=costs.PLACED * dims.number(w.tensor.count)) + costs.step(target)


def packed_by_run(
    node: Node, code: Code, target: Target, kinds: Sequence[Panels], block: int, segments: Sequence[Segment]
) -> Code:
    """code with its weights packed before, in a buffer of its own; code itself where they are constant.
    `block`: output channels of a block."""
    if node.inputs[1].constant is not None:
        return code
    weights, panels = Argument("input", 1), Argument("temporary", len(code.temporaries))
    steps = [
        replace(step, arguments=tuple(panels if a == weights else a for a in step.arguments))
        for step in code.steps
    ]
    width = sum(p.count * p.width for p in kinds)
    nbytes = width * dims.product(node.inputs[1].shape[1:]) * dtypes.itemsize(node.inputs[1].dtype)
    packing = _step(node, target, panels.index, kinds, block, segments)
    return replace(code, steps=(packing, *steps), temporaries=(*code.temporaries, nbytes))


def _step(
    node: Node, target: Target, buffer: int, kinds: Sequence[Panels], block: int, segments: Sequence[Segment]
) -> Step:
    """A part is a panel."""
    w = node.inputs[1]
    (outputs, *_), size = dims.numbers(w.shape), dtypes.itemsize(w.dtype)
    row, taps = (dims.product(dims.numbers(w.shape[axis:])) for axis in (1, 2))
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        before = 0
        for kind in kinds:
            panel = f.sub(part.index, kind.first)
            with f.when(f.compare("ult", panel, kind.count)):
                at = f.mul(f.add(before, f.mul(panel, kind.width)), row * size)
                start = f.offset(f.temporary(buffer), at)
                first = f.add(kind.block * block, f.mul(panel, kind.width))
                with f.loop(0, kind.width) as lane:
                    output = f.add(first, lane.index)
                    source = f.offset(f.input(1), f.mul(f.minimum(output, outputs - 1), row * size))
                    there = f.compare("slt", output, outputs)
                    to = f.offset(start, f.mul(lane.index, size))
                    _channel(f, size, source, to, there, kind.width, segments, taps)
            before += kind.count * kind.width
    parts = sum(p.count for p in kinds)
    return k.step(parts, costs.work(packing_estimate(node, target), parts))


def _channel(
    f: Function,
    size: int,
    source: str,
    to: str,
    there: str,
    width: int,
    segments: Sequence[Segment],
    taps: int,
) -> None:
    """The weights of one output channel, or zeros, into its lane of a panel."""
    element = f"i{8 * size}"

    def put(source: str, to: str) -> None:
        value = f.load(element, source, size)
        f.store(element, f.select(there, element, value, "0"), to, size)

    for count, each in segments:
        step = each * width * size  # from one tap to the next
        with f.loop(0, count) as blocks, f.loop(0, each) as channels:
            channel = f.add(f.mul(blocks.index, each), channels.index)
            begin = f.offset(source, f.mul(channel, taps * size))
            end = f.offset(to, f.mul(blocks.index, taps * step))
            end = f.offset(end, f.mul(channels.index, width * size))
            if taps <= MOST_UNROLLED:
                for tap in range(taps):
                    put(f.offset(begin, tap * size), f.offset(end, tap * step))
            else:
                with f.loop(0, taps) as loop:
                    put(f.offset(begin, f.mul(loop.index, size)), f.offset(end, f.mul(loop.index, step)))
        source = f.offset(source, count * each * taps * size)
        to = f.offset(to, count * taps * step)
