"""check_plan: whether every node finds its operands where the plan has them.

The graph is run on labels instead of data: memory is what wrote each range of bytes of each buffer, input and
output. Who reads finds the labels of the value, in buffers that are in use by then; who writes takes the
place of what was there. Bodies run twice (deep inside others once), branches both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...ir import dims
from ...ir.dims import Dimension
from ...ir.graph import Graph, Node, TensorType, Value, walk
from ...ir.ops import If, Loop
from ...ir.verify import InvalidGraph
from ..kernel import Code
from .plan_memory import Location, MemoryPlan
from .views import are_apart, parts_of, view_of

Piece = tuple[Value, int, int]  # bytes `begin` to `end` of what a node wrote as a value
Space = tuple[str, int]  # kind and index of a Location
Range = tuple[int, int, Piece]  # where a piece begins and ends
Memory = dict[Space, list[Range]]

MUTABLE = ("arena", "output", "heap")  # kinds of locations that nodes write
SIZE = 3  # that every dimension variable has
NESTED_TWICE = 4  # loops around each other of which each runs twice


def check_plan(graph: Graph, codes: Mapping[Node, Code], plan: MemoryPlan) -> None:
    """Raises InvalidGraph where a node would not read what it should, be the caller's memory for a state and
    for its next value one or two."""
    for shared in (False, True) if graph.states else (False,):
        _Run(graph, codes, plan, shared).check()


class _Run:
    def __init__(self, graph: Graph, codes: Mapping[Node, Code], plan: MemoryPlan, shared: bool):
        self.graph, self.codes, self.plan = graph, codes, plan
        self.position = {node: k for k, node in enumerate(walk(graph))}
        self.memory: Memory = {}
        self.homes: dict[Space, Space] = {}  # of outputs that have the memory of a state
        for old, new in graph.states if shared else ():
            self.homes["output", new] = "input", old
            whole = 0, self.number(graph.inputs[old].tensor.nbytes)
            self.memory["input", old] = [(*whole, (graph.inputs[old], *whole))]
        self.loops = 0  # around what runs
        self.stands: dict[Value, list[Value]] = {}  # values of regions → what they are

    def check(self) -> None:
        self.nodes(self.graph.nodes)
        end, copied = len(self.position), dict(self.plan.copies)
        for value in self.graph.outputs:
            self.read(value, end, "an output")
        for index, value in self.plan.copies:
            self.read(value, end, "a copied output")
            to = Location("output", index)
            if self.place(self.plan.locations[value], 0) != self.place(to, 0):
                self.write(None, to, getattr(value.type, "nbytes", 0), end, "a copied output")
        for index, value in enumerate(self.graph.outputs):
            if index not in copied:
                self.read(value, end, "an output")

    # Values --------------------------------------------------------------------------------------

    def number(self, size: Dimension) -> int:
        names = {s.name for s in dims.symbols(size)}
        return max(0, dims.evaluate(size, dict.fromkeys(names, SIZE)))

    def pieces(self, value: Value) -> list[Piece]:
        """What lies in the memory of a value, first byte first."""
        if len(self.stands.get(value, ())) == 1:
            return self.pieces(self.stands[value][0])
        node = value.producer
        view = view_of(node) if node is not None else None
        if view is not None:
            return self.part(view[0], self.number(view[1]), value.tensor)
        if node is not None and parts_of(node) is not None:
            parts = [self.pieces(part) for part in node.inputs]
            if node.op.axis != 1 or not are_apart(node.inputs[0].tensor):
                return [piece for part in parts for piece in part]
            images = range(self.number(value.shape[0]))
            sizes = [self.number(part.tensor.image_bytes) for part in node.inputs]
            return [
                p for n in images for part, k in zip(parts, sizes) for p in _cut(part, n * k, (n + 1) * k)
            ]
        return [(value, 0, self.number(value.tensor.nbytes))]

    def part(self, whole: Value, begin: int, part: TensorType) -> list[Piece]:
        """What lies in the memory of a part of a value, from there on."""
        pieces = self.pieces(whole)
        if not are_apart(part):
            return _cut(pieces, begin, begin + self.number(part.nbytes))
        inside = self.number(whole.tensor.image_bytes if are_apart(whole.tensor) else part.batch_stride)
        size = self.number(part.image_bytes)
        first, begin = divmod(begin, self.number(part.batch_stride))
        places = (n * inside + begin for n in range(first, first + self.number(part.shape[0])))
        return [piece for place in places for piece in _cut(pieces, place, place + size)]

    def runs(self, type_: TensorType) -> list[tuple[int, int]]:
        """Where the bytes of a value lie, from its first one: (begin, end) of what lies together."""
        if not are_apart(type_):
            return [(0, self.number(type_.nbytes))]
        step, size = self.number(type_.batch_stride), self.number(type_.image_bytes)
        return [(n * step, n * step + size) for n in range(self.number(type_.shape[0]))]

    def place(self, location: Location, nbytes: Dimension) -> tuple[Space, int, int]:
        begin, space = self.number(location.offset), (location.kind, location.index)
        return self.homes.get(space, space), begin, begin + self.number(nbytes)

    def mutable(self, space: Space) -> bool:
        return space[0] in MUTABLE or space in self.homes.values()

    def alive(self, location: Location, position: int, who: str) -> None:
        if location.kind == "arena":
            buffer = self.plan.buffers[location.index]
            if not buffer.first <= position <= buffer.last:
                raise InvalidGraph(
                    f"{who} at {position} uses buffer {location.index}, "
                    f"which is in use from {buffer.first} to {buffer.last}"
                )

    def read(self, value: Value, position: int, who: str) -> None:
        if not isinstance(value.type, TensorType):
            return
        location = self.plan.locations[value]
        if location.kind == "pointer":
            for inner in self.stands.get(value, ()):  # what either branch left
                self.read(inner, position, who)
        space, start, _ = self.place(location, value.tensor.nbytes)
        if not self.mutable(space):
            return
        self.alive(location, position, who)
        pieces, read = self.pieces(value), 0
        for low, high in self.runs(value.tensor):
            begin = start + low
            for origin, first, last in _cut(pieces, read, read + high - low):
                end = begin + last - first
                if last > first and not any(
                    a <= begin and end <= b and piece[0] is origin and piece[1] + begin - a == first
                    for a, b, piece in self.memory.get(space, ())
                ):
                    raise InvalidGraph(f"{who} at {position} does not find {value} in {location}")
                begin = end
            read += high - low

    def write(
        self, value: Value | None, location: Location, nbytes: Dimension, position: int, who: str
    ) -> None:
        self.alive(location, position, who)
        space, start, _ = self.place(location, nbytes)
        written = 0
        for begin, end in [(0, self.number(nbytes))] if value is None else self.runs(value.tensor):
            self.overwrite(space, start + begin, start + end)
            if value is not None and begin < end:
                piece = value, written, written + end - begin
                self.memory[space].append((start + begin, start + end, piece))
            written += end - begin

    def overwrite(self, space: Space, begin: int, end: int) -> None:
        """Forgets what lay there."""
        kept: list[Range] = []
        for a, b, (origin, first, _) in self.memory.get(space, ()):
            for low, high in ((a, min(b, begin)), (max(a, end), b)):
                if low < high:
                    kept.append((low, high, (origin, first + low - a, first + high - a)))
        self.memory[space] = kept

    def write_value(self, value: Value, position: int, who: str) -> None:
        if isinstance(value.type, TensorType):
            self.write(value, self.plan.locations[value], value.tensor.nbytes, position, who)

    # Nodes ---------------------------------------------------------------------------------------

    def nodes(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            here, who = self.position[node], type(node.op).__name__
            if view_of(node) is not None or parts_of(node) is not None:
                continue
            for index, value in enumerate(node.inputs):
                if (node, index) not in self.plan.packed:
                    self.read(value, here, who)
            match node.op:
                case If():
                    self.branches(node)
                case Loop():
                    self.loop(node)
                case _:
                    self.kernel(node, here, who)

    def kernel(self, node: Node, here: int, who: str) -> None:
        code = self.codes.get(node, Code(()))
        for location, nbytes in zip(self.plan.temporaries.get(node, ()), code.temporaries):
            self.write(None, location, nbytes, here, who)
        if code.steps and all(step.copies is not None for step in code.steps) and self.is_there(node):
            self.stands[node.outputs[0]] = [node.inputs[0]]
            return
        for value in node.outputs:
            if isinstance(value.type, TensorType):
                self.apart(node, code, value, who)
            self.write_value(value, here, who)

    def is_there(self, node: Node) -> bool:
        """Whether a node would copy a state to where it is."""
        at, to = (self.plan.locations[v] for v in (node.inputs[0], node.outputs[0]))
        return at != to and self.place(at, 0) == self.place(to, 0)

    def apart(self, node: Node, code: Code, result: Value, who: str) -> None:
        """A result lies over no operand, unless the kernel may write it there."""
        space, begin, _ = self.place(self.plan.locations[result], result.tensor.nbytes)
        written = [(begin + a, begin + b) for a, b in self.runs(result.tensor)]
        for index, value in enumerate(node.inputs):
            if (node, index) in self.plan.packed or not isinstance(value.type, TensorType):
                continue
            other, begin, _ = self.place(self.plan.locations[value], value.tensor.nbytes)
            read = [(begin + a, begin + b) for a, b in self.runs(value.tensor)]
            apart = all(max(a, c) >= min(b, d) for a, b in read for c, d in written)
            if other != space or not self.mutable(space) or apart:
                continue
            if index not in code.over or read != written or value.tensor.layout != result.tensor.layout:
                raise InvalidGraph(f"{who} writes {result} over {value}")

    def branches(self, node: Node) -> None:
        before, ends, here = _copy(self.memory), [], self.position[node]
        for branch in (node.op.then, node.op.otherwise):
            self.memory = _copy(before)
            self.stands.update((inner, [outer]) for inner, outer in zip(branch.inputs, node.inputs[1:]))
            self.nodes(branch.nodes)
            for value in branch.outputs:
                self.read(value, here, "the end of a branch")
            ends.append(self.memory)
        self.memory = {}
        for space in {*ends[0], *ends[1]}:
            one, other = ends[0].get(space, []), ends[1].get(space, [])
            old = before.get(space, [])
            self.memory[space] = [r for r in one if r not in old or r in other]
            self.memory[space] += [r for r in other if r not in old]
        self.stands.update(
            (outer, [one, other])
            for outer, one, other in zip(node.outputs, node.op.then.outputs, node.op.otherwise.outputs)
        )

    def loop(self, node: Node) -> None:
        op, body, here = node.op, node.op.body, self.position[node]
        start = min((self.position[n] for n in walk(body)), default=here)
        homes = body.inputs[2 : 2 + op.carried]
        self.stands.update(
            (inner, [outer])
            for inner, outer in zip(body.inputs[2 + op.carried :], node.inputs[2 + op.carried :])
        )
        scanned = list(zip(body.outputs[1 + op.carried :], node.outputs[op.carried :]))
        for value in (*body.inputs[: 2 + op.carried], *(outer for _, outer in scanned)):
            self.write_value(value, here, "a loop")
        rounds = 2 if self.loops < NESTED_TWICE else 1
        self.loops += 1
        for _ in range(rounds):
            for (kind, index), found in self.memory.items():
                if kind == "arena" and not (
                    self.plan.buffers[index].first <= start and here <= self.plan.buffers[index].last
                ):
                    found.clear()
            self.write_value(body.inputs[0], start, "a loop")
            self.nodes(body.nodes)
            for value in body.outputs:
                self.read(value, here, "the end of a round")
            self.carry(body.outputs[1:], homes, self.plan.staging[node], here)
            self.write_value(body.inputs[1], here, "a loop")
        self.loops -= 1
        self.stands.update((outer, [home]) for outer, home in zip(node.outputs, homes))

    def carry(
        self, values: Iterable[Value], homes: Iterable[Value], staging: Iterable[Location | None], here: int
    ) -> None:
        """What a round leaves becomes what the next one begins with."""
        moves = list(zip(values, homes, staging))
        for value, _, stage in moves:
            if isinstance(value.type, TensorType) and stage is not None:
                self.write(None, stage, value.tensor.nbytes, here, "a loop")
        for value, home, stage in moves:
            if stage is None:
                self.read(value, here, "what a loop carries")
            if not isinstance(home.type, TensorType) or value is home:
                continue
            self.write_value(home, here, "a loop")


def _cut(pieces: list[Piece], begin: int, end: int) -> list[Piece]:
    """Bytes begin to end of what lies there."""
    found, at = [], 0
    for origin, first, last in pieces:
        low, high = max(begin, at), min(end, at + last - first)
        if low < high:
            found.append((origin, first + low - at, first + high - at))
        at += last - first
    return found


def _copy(memory: Memory) -> Memory:
    return {space: list(found) for space, found in memory.items()}
