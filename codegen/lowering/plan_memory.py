"""plan_memory: where every value lives while the model runs.

Values whose sizes are known once the inputs are become buffers of one arena, placed so that buffers alive at
the same time do not overlap: at compile time when every size is a number, else by the runtime's planner from
the lifetimes given here. What is data-dependent in size lives in buffers that the context owns. What is part
of another value (`views.py`) has no memory of its own. Positions number all nodes of all regions, those of a
region just before the node that holds it, so that one plan serves them all.

Branches of an If have their buffers in the arena where that is small at compile time. Otherwise each has an
arena of its own, which the run makes when it enters the branch: no run needs memory for one that it does not
take.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import field

from ...ir import dims, dtypes
from ...ir.dims import Dimension, number
from ...ir.graph import Constant, Graph, Node, TensorType, Type, Value, walk
from ...ir.ops import If, Loop, Reorder, RuntimeCall
from ...ir.verify import InvalidGraph
from ...records import dataclass
from ..abi import VALUE_BYTES, aligned
from ..kernel import Code
from .views import are_apart, parts_of, root_of, view_of

ARENA_LIMIT = 8 << 30  # bytes of a static arena


@dataclass(frozen=True)
class Location:
    """Where a value's first byte is: `kind`[index] + offset.

    `input`, `output`: what the caller gave · `constant`: entry of MemoryPlan.constants · `arena`: entry of
    MemoryPlan.buffers · `heap`: a buffer of the context · `pointer`: wherever the run says (the result of a
    branch). The last two, and outputs, keep their address in slot `slot` of the context's values. `object`: a
    sequence, optional or map, described by an onnxc_value in arena buffer `slot` and kept alive by the
    context's slot `index`."""

    kind: str
    index: int
    offset: Dimension = 0
    slot: int = -1


@dataclass
class Buffer:
    """A piece of the arena: its bytes, the first and last position at which it is in use, its offset when
    all are numbers."""

    nbytes: Dimension
    first: int
    last: int
    offset: int | None = None


@dataclass(frozen=True)
class Branch:
    """The arena of a branch: entries `first` to `end` of MemoryPlan.buffers, in memory of the context."""

    first: int
    end: int
    memory: Location


@dataclass(frozen=True)
class Texts:
    """The context's slots that keep the characters of a Loop's strings: of what it has collected, of what it
    carries, and of what it carries next while that is copied."""

    collected: int
    carried: int
    following: int


@dataclass
class MemoryPlan:
    """The locations of all values and of the kernels' temporaries."""

    locations: dict[Value, Location] = field(default_factory=dict)
    temporaries: dict[Node, list[Location]] = field(default_factory=dict)
    # of a Loop, for each carried value
    staging: dict[Node, list[Location | None]] = field(default_factory=dict)
    texts: dict[Node, Texts] = field(default_factory=dict)  # of a Loop whose body makes text
    buffers: list[Buffer] = field(default_factory=list)
    # operands in the form their kernel wants
    packed: dict[tuple[Node, int], Location] = field(default_factory=dict)
    constants: list[Constant] = field(default_factory=list)
    copies: list[tuple[int, Value]] = field(default_factory=list)  # outputs that are copied when the run ends
    # of branches that have an arena; their buffers follow all those of the run's
    branches: dict[Graph, Branch] = field(default_factory=dict)
    over: set[Value] = field(default_factory=set)  # results in the memory of an operand, which is there
    static: bool = True
    arena_bytes: int = 0  # when static
    slots: int = 0
    heaps: int = 0

    @property
    def first_of_branches(self) -> int:
        """The number of buffers that are placed before the run."""
        return min((branch.first for branch in self.branches.values()), default=len(self.buffers))

    def in_branches(self) -> set[Node]:
        """The nodes of branches that have an arena."""
        return {node for branch in self.branches for node in walk(branch)}


def plan_memory(graph: Graph, codes: Mapping[Node, Code]) -> MemoryPlan:
    """A plan for graph, whose nodes run the given codes."""
    plan = _Planner(graph, codes).plan
    small = plan.static and plan.arena_bytes <= ARENA_LIMIT
    if small or not any(isinstance(node.op, If) for node in walk(graph)):
        return plan
    return _Planner(graph, codes, branches_apart=True).plan


def known_at_entry(graph: Graph) -> set[str]:
    """The dimension variables that the inputs' shapes tell."""
    return {
        s.name
        for v in graph.inputs
        if isinstance(v.type, TensorType)
        for d in v.shape
        for s in dims.symbols(d)
    }


def is_text(value: Value) -> bool:
    """Whether it is a tensor of strings."""
    return isinstance(value.type, TensorType) and value.dtype == "string"


def states_of(graph: Graph) -> dict[Value, int]:
    """Of each input that is a state the number of the output that is its next value."""
    return {graph.inputs[old]: new for old, new in graph.states}


class _Planner:
    def __init__(self, graph: Graph, codes: Mapping[Node, Code], branches_apart: bool = False):
        self.graph, self.codes, self.plan = graph, codes, MemoryPlan()
        self.branches_apart = branches_apart
        self.waiting: list[Node] = []  # Ifs whose branches are located when what is around them is
        self.entry = known_at_entry(graph)
        self.before = {new: old for old, new in states_of(graph).items()}
        self.position = {node: k for k, node in enumerate(walk(graph))}
        self.end = len(self.position)
        # views, operands of joins and region inputs → what they are part of
        self.source: dict[Value, tuple[Value, Dimension]] = {}
        self.keeps: dict[Value, list[Value]] = {}  # results of regions → what they may point to
        # nodes whose results lie where the plan says
        self.movable = {n for n in self.position if n in codes or parts_of(n) is not None}
        self.first: dict[Value, int] = {}
        self.last: dict[Value, int] = {}
        self._aliases(graph)
        self._lifetimes(graph, self.end)
        self._extend()
        self._overwrite()
        self._place(graph)

    # What is part of what ------------------------------------------------------------------------

    def _aliases(self, graph: Graph) -> None:
        for node in graph.nodes:
            view = view_of(node)
            if view is not None:
                self.source[node.outputs[0]] = view
            for value, begin in zip(node.inputs, parts_of(node) or ()):
                part, offset = root_of(value)
                self.source[part] = node.outputs[0], begin - offset
            match node.op:
                case If(then=then, otherwise=otherwise):
                    for branch in (then, otherwise):
                        self.source.update(
                            (inner, (outer, 0)) for inner, outer in zip(branch.inputs, node.inputs[1:])
                        )
                        self._aliases(branch)
                    for k, output in enumerate(node.outputs):
                        self.keeps[output] = [then.outputs[k], otherwise.outputs[k]]
                case Loop(body=body, carried=carried):
                    captured = zip(body.inputs[2 + carried :], node.inputs[2 + carried :])
                    self.source.update((inner, (outer, 0)) for inner, outer in captured)
                    for k in range(carried):
                        self.source[node.outputs[k]] = (body.inputs[2 + k], 0)
                    self._aliases(body)

    def root(self, value: Value) -> tuple[Value, Dimension]:
        """(the value whose memory it is, offset in bytes)"""
        offset: Dimension = 0
        while value in self.source:
            value, more = self.source[value]
            offset = offset + more
        return value, offset

    # Lifetimes -----------------------------------------------------------------------------------

    def _lifetimes(self, graph: Graph, end: int) -> None:
        """First and last use of every root; `end` is the position at which the graph's outputs are read."""
        for node in graph.nodes:
            here = self.position[node]
            for value in node.inputs:
                self._use(value, here)
            start = here
            match node.op:
                case If(then=then, otherwise=otherwise):
                    self._lifetimes(then, here)
                    self._lifetimes(otherwise, here)
                case Loop(body=body, carried=carried):
                    start = min((self.position[n] for n in walk(body)), default=here)
                    for value in body.inputs[: 2 + carried]:
                        self.first[value] = start
                        self._use(value, here)
                    self._lifetimes(body, here)
            for value in node.outputs:
                root, _ = self.root(value)
                self.first[root] = min(self.first.get(root, start), start)
                self._use(value, here)
        for value in graph.outputs:
            self._use(value, end)

    def _use(self, value: Value, position: int) -> None:
        value, _ = self.root(value)
        self.last[value] = max(self.last.get(value, -1), position)

    def _extend(self) -> None:
        """What the result of a region may point to lives as long as the result, innermost regions last."""
        for output, kept in reversed(self.keeps.items()):
            last = self.last.get(self.root(output)[0], -1)
            for value in kept:
                self._use(value, last)

    # What takes the memory of something else -------------------------------------------------------

    def _overwrite(self) -> None:
        """Lets what a loop carries on be written where the loop keeps it, and results be written over
        operands that are read for the last time."""
        nodes, outputs = list(walk(self.graph)), set(self.graph.outputs)
        for node in nodes:
            if isinstance(node.op, Loop):
                self._carry_in_place(node.op)
        for node in nodes:
            for index in self.codes[node].over if node in self.codes else ():
                value, result = node.inputs[index], node.outputs[0]
                root, offset = self.root(value)
                dies = self.last[root] == self.position[node] and root.producer in self.movable
                placed = result in self.source or (result in outputs and not _may_be_output(root, result))
                if dies and not placed and self._fits_over(node, result, root):
                    self.source[result] = root, offset
                    self.last[root] = self.last[result]
                    self.plan.over.add(result)

    def _carry_in_place(self, loop: Loop) -> None:
        """What becomes of a carried value has its memory, if all that reads it is done by then."""
        body, homes = loop.body, loop.body.inputs[2 : 2 + loop.carried]
        inside = set(walk(body))
        for home, value in zip(homes, body.outputs[1:]):
            root, _ = self.root(value)
            moves = root is value and root.producer in inside & self.movable
            moves = moves and self._planned_alike(value, home)
            kept = [*body.outputs, *(v for several in self.keeps.values() for v in several)]
            if not moves or any(self.root(v)[0] is home for v in kept):
                continue
            readers = [n for n in inside if any(self.root(v)[0] is home for v in n.inputs)]
            done = max((self.position[n] for n in readers), default=-1)
            ready = self.first[root]
            in_time = root.node in self.codes and self._fits_over(root.node, root, home)
            if done < ready or (done == ready and in_time):
                self.source[root] = home, 0

    def _fits_over(self, node: Node, result: Value, root: Value) -> bool:
        """Whether a node may write its result over memory that it reads: all of its operands there are
        stored alike, in the same place, and the kernel reads them in time."""
        there = [k for k, v in enumerate(node.inputs) if self.root(v)[0] is root]
        over = self.codes[node].over if node in self.codes else ()
        return (
            all(k in over and _stored_alike(node.inputs[k], result) for k in there)
            and len({self.root(node.inputs[k])[1] for k in there}) <= 1
        )

    def _planned_alike(self, a: Value, b: Value) -> bool:
        """Whether two values are stored alike in memory that is planned."""
        return _stored_alike(a, b) and self._planned(a.tensor.nbytes) and self._planned(b.tensor.nbytes)

    def _planned(self, nbytes: Dimension) -> bool:
        return {s.name for s in dims.symbols(nbytes)} <= self.entry

    # Locations -----------------------------------------------------------------------------------

    def _place(self, graph: Graph) -> None:
        for index, value in enumerate(graph.inputs):
            self.plan.locations[value] = Location("input", index)
        self._claim_outputs(graph)
        self._locate(graph)
        for index, value in enumerate(graph.outputs):
            if self.plan.locations.get(value) is None:
                self._of(value)
            if self.plan.locations[value].kind != "output" or self.plan.locations[value].index != index:
                self.plan.copies.append((index, value))
        self._locate_branches()
        buffers = self.plan.buffers
        scratch = [step.scratch for code in self.codes.values() for step in code.steps]
        numbers = all(isinstance(size, int) for size in (*(b.nbytes for b in buffers), *scratch))
        self.plan.static = numbers and not self.plan.branches
        if self.plan.static:
            self.plan.arena_bytes = place(buffers)

    def _claim_outputs(self, graph: Graph) -> None:
        """Lets nodes write straight into the caller's outputs where sizes are known by then."""
        defined, at = set(self.entry), {}
        for node in graph.nodes:
            at[node] = set(defined)
            defined |= _bound(node)
            at[node] = set(defined) if isinstance(node.op, RuntimeCall) else at[node]
        for index, value in enumerate(graph.outputs):
            root, offset = self.root(value)
            maker = root.producer
            if (
                not isinstance(value.type, TensorType)
                or maker is None
                or maker not in at
                or root in self.plan.locations
            ):
                continue
            if isinstance(maker.op, (If, Loop)) or offset != 0 or not _may_be_output(root, value):
                continue  # of these only a dense value may lie anywhere
            told = {s.name for d in value.shape for s in dims.symbols(d)} <= at[maker]
            if told and (index not in self.before or self._may_take(self.before[index], root)):
                self.plan.locations[root] = Location("output", index, 0, self._slot())

    def _may_take(self, state: Value, root: Value) -> bool:
        """Whether the next value of a state may be written to its memory where the caller has one for both:
        whatever is written lies behind the state, or is what was there, or comes when nobody reads it any
        more."""
        for node in self.graph.nodes:
            for value in node.outputs:
                there, offset = self.root(value)
                if there is not root or view_of(node) is not None or parts_of(node) is not None:
                    continue
                behind = dims.less(offset, state.tensor.nbytes) is False
                same = isinstance(node.op, Reorder) and self.root(node.inputs[0]) == (state, offset)
                last, here = self.last.get(state, -1), self.position[node]
                done = last < here or (last == here and self._changes(node, value, state, offset))
                if not (behind or same or done):
                    return False
        return True

    def _changes(self, node: Node, result: Value, state: Value, offset: Dimension) -> bool:
        """Whether a node reads a state only where it writes its result."""
        read = [v for v in node.inputs if self.root(v)[0] is state]
        return self._fits_over(node, result, state) and all(self.root(v)[1] == offset for v in read)

    def _locate(self, graph: Graph) -> None:
        for node in graph.nodes:
            for index, value in enumerate(node.inputs):
                packed = _packed(node, index)
                if packed is None:
                    self._of(value)
                else:
                    self.plan.packed[node, index] = Location("constant", self._constant(packed))
            match node.op:
                case If() if self.branches_apart:
                    self.waiting.append(node)
                case If(then=then, otherwise=otherwise):
                    self._locate(then)
                    self._locate(otherwise)
                case Loop(body=body, carried=carried):
                    for value in body.inputs[: 2 + carried]:
                        self._new(value)
                    self._locate(body)
                    self.plan.staging[node] = self._staging(node)
                    if any(_makes_text(n) for n in walk(body)):
                        self.plan.texts[node] = Texts(self._held(), self._held(), self._held())
            for value in node.outputs:
                self._of(value)
            if node in self.codes:
                here = self.position[node]
                self.plan.temporaries[node] = [
                    self._buffer(nbytes, here, here) for nbytes in self.codes[node].temporaries
                ]
        for value in graph.outputs:
            self._of(value)

    def _locate_branches(self) -> None:
        """Locates what is in branches of their own arenas, outermost ones first. An If's have one memory, and
        so have Ifs of which one is done with it before the other begins."""
        held: dict[int, list[Buffer]] = {}  # by slots of the context what is ever there
        while self.waiting:
            op, bounds = self.waiting.pop(0).op, [len(self.plan.buffers)]
            for branch in (op.then, op.otherwise):
                self._locate(branch)
                bounds.append(len(self.plan.buffers))
            its = self.plan.buffers[bounds[0] :]
            if not its:
                continue
            first, last = min(b.first for b in its), max(b.last for b in its)
            free = (k for k, others in held.items() if all(b.last < first or last < b.first for b in others))
            index = next(free, None)
            if index is None:
                index = self._held()
            held.setdefault(index, []).extend(its)
            memory = Location("heap", index, 0, self._slot())
            for branch, begin, end in zip((op.then, op.otherwise), bounds, bounds[1:]):
                if begin < end:
                    self.plan.branches[branch] = Branch(begin, end, memory)

    def _staging(self, node: Node) -> list[Location | None]:
        """Where the next carried values wait until all are read: those that are, or may point to, what is
        carried now and would be overwritten."""
        body, carried, here = node.op.body, node.op.carried, self.position[node]
        homes = {self.root(v)[0] for v in body.inputs[2 : 2 + carried]}
        found: list[Location | None] = []
        for into, value in zip(body.inputs[2:], body.outputs[1 : 1 + carried]):
            root, offset = self.root(value)
            stays = root is into and offset == 0
            points = carried > 1 and self.plan.locations[root].kind == "pointer"
            found.append(
                self._memory(value.type, here, here) if not stays and (root in homes or points) else None
            )
        return found

    def _of(self, value: Value) -> None:
        """Gives a value its location, through what it is part of."""
        if value in self.plan.locations:
            return
        root, offset = self.root(value)
        if root not in self.plan.locations:
            if root.constant is not None:
                self.plan.locations[root] = Location("constant", self._constant(root.constant))
            elif not isinstance(root.type, TensorType):
                self._new(root)
            elif root in self.keeps:
                self.plan.locations[root] = Location("pointer", 0, 0, self._slot())
            elif root.producer is not None and isinstance(root.producer.op, RuntimeCall):
                self.plan.locations[root] = self._heap()
            else:
                self._new(root)
        base = self.plan.locations[root]
        if root is not value:
            self.plan.locations[value] = Location(base.kind, base.index, base.offset + offset, base.slot)

    def _new(self, value: Value) -> None:
        if isinstance(value.type, TensorType) and are_apart(value.type):
            raise InvalidGraph(f"the images of {value} are parts of nothing")
        first = self.first.get(value, 0)
        self.plan.locations[value] = self._memory(value.type, first, self.last.get(value, first))

    def _memory(self, type_: Type, first: int, last: int) -> Location:
        if isinstance(type_, TensorType):
            return self._buffer(type_.nbytes, first, last)
        return Location("object", self._held(), 0, self._buffer(VALUE_BYTES, first, last).index)

    def _buffer(self, nbytes: Dimension, first: int, last: int) -> Location:
        if self._planned(nbytes):
            self.plan.buffers.append(Buffer(nbytes, first, last))
            return Location("arena", len(self.plan.buffers) - 1)
        return self._heap()

    def _heap(self) -> Location:
        return Location("heap", self._held(), 0, self._slot())

    def _held(self) -> int:
        """A slot of the context, for memory or an object."""
        self.plan.heaps += 1
        return self.plan.heaps - 1

    def _slot(self) -> int:
        self.plan.slots += 1
        return self.plan.slots - 1

    def _constant(self, constant: Constant) -> int:
        self.plan.constants.append(constant)
        return len(self.plan.constants) - 1


def _may_be_output(root: Value, value: Value) -> bool:
    """Whether what a value is part of, from its first byte on, may lie in the caller's memory for an output;
    an operator in C tells its own shape."""
    tells = root is not value and root.producer is not None and isinstance(root.producer.op, RuntimeCall)
    return not tells and root.tensor.nbytes == value.tensor.nbytes and root.tensor.layout is None


def _stored_alike(a: Value, b: Value) -> bool:
    """Whether every element of two values is as many bytes from the first."""
    x, y = a.type, b.type
    return (
        isinstance(x, TensorType)
        and isinstance(y, TensorType)
        and x.layout == y.layout
        and dtypes.itemsize(x.dtype) == dtypes.itemsize(y.dtype)
        and x.rank == y.rank
        and all(dims.equal(m, n) for m, n in zip(x.shape, y.shape))
    )


def _packed(node: Node, index: int) -> Constant | None:
    """A constant operand as the node's kernel packs it; None where it is read as it is."""
    if node.inputs[index].constant is None or node.choice is None or index not in node.choice.packed:
        return None
    return node.choice.kernel.pack(node, node.choice, index)


def _makes_text(node: Node) -> bool:
    """Whether a node's result may be strings whose characters go when it runs again: operators in C make
    them, all others copy strings as they are."""
    return isinstance(node.op, RuntimeCall) and any(map(is_text, node.outputs))


def _bound(node: Node) -> set[str]:
    """The variables that a node gives a value."""
    names = {s.name for s in getattr(node.op, "symbols", ())}
    types: list[Type] = [v.type for v in node.outputs] if isinstance(node.op, (If, Loop, RuntimeCall)) else []
    return names | {
        s.name for t in types if isinstance(t, TensorType) for d in t.shape for s in dims.symbols(d)
    }


def place(buffers: list[Buffer]) -> int:
    """Gives buffers of known sizes their offsets; the bytes of the whole. They are placed in the order of use
    and, where that leaves gaps, the largest first too (Pisarchyk and Lee, "Efficient Memory Management for
    Deep Neural Net Inference"): the smaller of the two is taken. `runtime_c/plan.c` has the same rule."""
    end, most, offsets = _first_fit(sorted(buffers, key=lambda b: (b.first, -number(b.nbytes))), by_use=True)
    if end > most:
        smaller, _, others = _first_fit(sorted(buffers, key=lambda b: -number(b.nbytes)), by_use=False)
        if smaller < end:
            end, offsets = smaller, others
    for buffer in buffers:
        buffer.offset = offsets[id(buffer)]
    return end


def _first_fit(buffers: list[Buffer], by_use: bool) -> tuple[int, int, dict[int, int]]:
    """(bytes of the whole, the most in use at one position, the offset of each buffer by its id): one after
    the other at the lowest place that is free while it is in use. In the order of use what is not any more
    need not be looked at."""
    placed: list[tuple[int, int, Buffer]] = []  # offset and end, ascending
    end = most = 0
    offsets = {}
    for buffer in buffers:
        offset, size = 0, aligned(number(buffer.nbytes))
        if by_use:
            placed = [entry for entry in placed if entry[2].last >= buffer.first]
            most = max(most, size + sum(high - low for low, high, _ in placed))
        for low, high, other in placed:
            if other.last < buffer.first or buffer.last < other.first:
                continue
            if offset + size <= low:
                break
            offset = max(offset, high)
        offsets[id(buffer)] = offset
        end = max(end, offset + size)
        insort(placed, (offset, offset + size, buffer), key=lambda entry: entry[0])
    return end, most, offsets
