"""Graphs from IR text with kernels and a memory plan, and models that are run in any memory."""

from support.agreement import rival, same
from support.poison import unlike_poisoned

import onnxc
from onnxc.codegen.lowering.check_plan import check_plan
from onnxc.codegen.lowering.lower import lower
from onnxc.ir.graph import walk
from onnxc.ir.ops import Loop
from onnxc.ir.text_parser import parse
from onnxc.target import TARGETS


class Planned:
    """A graph's text after kernel selection, and its plan; values are known by their names."""

    def __init__(self, text):
        lowered = lower(parse(text), TARGETS["x86-64-v3"])
        self.graph, self.codes, self.plan = lowered.graph, lowered.codes, lowered.plan
        check_plan(self.graph, self.codes, self.plan)
        self.loops = [n.op for n in walk(self.graph) if isinstance(n.op, Loop)]
        self.values = {}
        for value in (v for n in walk(self.graph) for v in n.outputs):
            self.values.setdefault(value.name, value)  # copies have the name too

    def place(self, name):
        """(kind, index, offset) of a value."""
        at = self.plan.locations[self.values[name]]
        return at.kind, at.index, at.offset

    def carried(self, index):
        """The body's input for what the only loop carries."""
        return self.loops[0].body.inputs[2 + index]

    def offset_in(self, part, whole):
        """Bytes from the first of one value to that of another, in the same buffer."""
        (*where, begin), (*same_place, at) = self.place(whole), self.place(part)
        assert where == same_place
        return at - begin

    def kernels(self):
        """The ops that a kernel runs."""
        return [type(n.op).__name__ for n in walk(self.graph) if n.choice is not None]


def apart(planned, *names):
    """Whether the values lie in buffers of their own."""
    return len({planned.place(name)[:2] for name in names}) == len(names)


def agrees_in_any_memory(model, folder, runs):
    """Every run gives what ONNX Runtime gives, and the same bits where all memory holds garbage."""
    path, session = onnxc.compile(model, folder / "model.so"), rival(model)
    for feeds in runs:
        for got, expected in zip(onnxc.load(path).run(None, feeds), session.run(None, feeds), strict=True):
            same(got, expected, 1e-5)
        assert not unlike_poisoned(path, feeds)


POINTWISE = "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)"
PLANE = 4 * 4 * 8 * 4  # bytes of 8 channels of 4 x 4 pixels


def convolved(channels, rest, batch=1):
    """A graph that goes on with a blocked image %a of so many channels."""
    return f"""graph g(%x: float32[{batch}, 8, 4, 4]) {{
        %w = constant float32[{channels}, 8, 3, 3] splat 0.5
        %v = constant float32[8, 8, 1, 1] splat 0.25
        %k = constant float32[8, 8, 3, 3] splat 0.25
        %a = conv(%x, %w) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        {rest}
    }}"""
