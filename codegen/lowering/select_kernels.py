"""select_kernels: which kernel runs each node, and in which layout each value is stored.

Nodes are taken in order, twice: every kernel offers its choices for the node as its operands are stored so
far, and the least estimated time wins, that of reorders included: those that the choice asks for, unless
another reader did, and those that the readers of its result ask for, which the second time are known. A view
or join takes no time.
A blocked value then gets the widest halo that any of its consumers reads, which may suit other tilings of its
kernel better, what lies in the images of a join or is a part of images learns how far these are apart, and
Reorder nodes are put where a consumer wants another layout than the producer gives, or a join another place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from ...errors import UnsupportedError
from ...ir import dims
from ...ir.graph import Graph, Layout, Node, TensorType, Value
from ...ir.ops import (
    Bind,
    Concat,
    Contract,
    Conv,
    Elements,
    If,
    Loop,
    Op,
    Reorder,
    Require,
    Reshape,
    RuntimeCall,
    Slice,
    Unfold,
)
from ...target import Target
from ..costs import Estimate
from ..kernel import LEVEL_WITHIN, Choice, Kernel, choices_of, chosen
from ..kernels import KERNELS, loop_nest
from ..tiles import gemm_tiling
from ..tiles.blocked import without_halo
from ..tiles.matrix import image_blocks
from .arithmetic import arithmetic_of, reason_of
from .equal_nodes import itself, seen
from .expand import expanded
from .plan_memory import known_at_entry, states_of
from .tuned import Tuned
from .views import (
    cut_axes,
    insides,
    keeps_pixels,
    may_be,
    part_layout,
    parts_of,
    reshaped_layout,
    unfolded_layout,
    view_of,
)


def select_kernels(graph: Graph, target: Target, tuned: Tuned | None = None) -> Graph:
    """graph with a Choice on every node that a kernel runs, layouts on types, and Reorder nodes between.
    tuned: what was seen of choices, which is believed rather than their estimates."""
    return _Selection(target, known_at_entry(graph), states_of(graph), tuned or Tuned()).graph(graph)


def runs_kernel(node: Node) -> bool:
    """Whether a kernel runs the node, rather than the run function itself or nobody."""
    return not _runs_itself(node.op) and view_of(node) is None and parts_of(node) is None


def _runs_itself(op: Op) -> bool:
    return isinstance(op, (Bind, Elements, If, Loop, Require, RuntimeCall))


class _Selection:
    """`entry`: the variables that are known before the run, with which an arena is planned. `states`: inputs
    and the numbers of the outputs that may have their memory."""

    def __init__(self, target: Target, entry: set[str], states: Mapping[Value, int], tuned: Tuned):
        self.target, self.entry, self.states, self.tuned = target, entry, states, tuned
        self.reordered: set[tuple[Value, int | None]] = set()  # operands, by the block that somebody reads
        self.placed: set[Value] = set()  # what lies in the result of a join
        self.read: dict[Value, set[int | None]] = {}  # results, by the blocks that their readers want
        self.known: dict[object, list[Choice]] = {}  # offers
        self.many: dict[object, list[Choice]] = {}  # those where open sizes are large
        self.least: dict[object, float] = {}  # nanoseconds where all symbols are 1

    def graph(self, graph: Graph) -> Graph:
        self.read = {value: {None} for value in graph.outputs}
        whole, chosen = self._choose(graph, self._inner)
        self.read = _blocks_read(whole, chosen)
        _, chosen = self._choose(whole, lambda op: op)
        return self._insert(chosen, self._borders(chosen), self._pitches(chosen))

    # Which kernel --------------------------------------------------------------------------------

    def _choose(self, graph: Graph, inner: Callable[[Op], Op]) -> tuple[Graph, Graph]:
        """graph with what stands for nodes that no kernel takes, its regions lowered; and the same with
        choices on all nodes, produced values having their block, but no halo yet."""
        new: dict[Value, Value] = {}
        nodes, whole = [], []
        pending = list(reversed(graph.nodes))
        self.reordered.clear()
        self.placed.clear()
        while pending:
            node = pending.pop()
            inputs = tuple(new.get(v, v) for v in node.inputs)
            op = inner(node.op)
            dense = Node(op, inputs, tuple(_stored(v, None) for v in node.outputs), node.origin)
            wanted = [self.read.get(v, set()) for v in node.outputs]
            best = dense if _runs_itself(op) else self._best(dense, wanted)
            if best is None:
                pending.extend(reversed(expanded(node) or _refused(dense)))
                continue
            nodes.append(best)
            whole.append(Node(op, node.inputs, node.outputs, node.origin))
            new.update(zip(node.outputs, best.outputs))
        outputs = tuple(new.get(v, v) for v in graph.outputs)
        return replace(graph, nodes=tuple(whole)), replace(graph, nodes=tuple(nodes), outputs=outputs)

    def _inner(self, op: Op) -> Op:
        """op with its regions lowered too; fused groups are their kernel's business."""
        if isinstance(op, (If, Loop)):
            inner = _Selection(self.target, self.entry, self.states, self.tuned)
            inner.known, inner.many, inner.least = self.known, self.many, self.least
            changed: dict[str, Any] = {k: inner.graph(v) for k, v in vars(op).items() if isinstance(v, Graph)}
            return replace(op, **changed)
        return op

    def _best(self, node: Node, wanted: Sequence[set[int | None]]) -> Node | None:
        """The node with the cheapest of its choices; None where it has none. wanted: the blocks in which its
        results are read."""
        choices = self._offered(node)
        options = self._kernelless(node) + [(choice.output, choice) for choice in choices]
        ways = [
            Node(node.op, node.inputs, tuple(_stored(v, layout) for v in node.outputs), node.origin, choice)
            for layout, choice in options
        ]
        best = min(ways, key=lambda way: self._cost(way) + self._handing_on(way, wanted), default=None)
        if best is not None:
            self.reordered.update((value, _block_of(layout)) for value, layout in self._apart(best))
            if _is_join(best):
                self.placed.update(root for root in self._inside(best, self.placed) if root is not None)
        return best

    def _kernelless(self, node: Node) -> list[tuple[Layout | None, None]]:
        """The layouts in which the node is a view, or a join whose memory can be planned; that of blocked
        images is blocked, or each would be reordered, and most likely the result too."""
        found = []
        blocked = [layout for layout in map(_layout, node.inputs) if layout is not None]
        joins, overlap = isinstance(node.op, Concat), isinstance(node.op, Unfold)
        if overlap:  # only images in blocks do
            blocked += map(Layout, image_blocks(self.target, node.inputs[0].dtype))
        alone = bool(blocked) and (joins or overlap)
        for layout in dict.fromkeys([b.alone for b in blocked] if alone else [*blocked, None]):
            made = _made(Node(node.op, tuple(_stored(v, layout) for v in node.inputs), node.outputs))
            outputs = tuple(_stored(v, made) for v in node.outputs)
            part = part_layout(outputs[0].tensor, (node.op.axis,)) if joins else layout
            stored = Node(node.op, tuple(_stored(v, part) for v in node.inputs), outputs)
            if view_of(stored) is not None or (parts_of(stored) is not None and self._planned(outputs[0])):
                found.append((made, None))
        return found

    def _planned(self, value: Value) -> bool:
        return {s.name for s in dims.symbols(value.tensor.nbytes)} <= self.entry

    def _offered(self, node: Node) -> list[Choice]:
        """The choices for a node whose operands are stored so far as their types say, or all dense: of those
        with equal layouts the fastest, since nothing else tells them apart."""
        choices = [choice for way in _stored_ways(node) for choice in self.candidates(way)]
        fastest: dict[object, Choice] = {}
        for choice in self.tuned.applied(node, self._scaling(node, choices)):
            layouts = choice.inputs, choice.output
            if layouts not in fastest or choice.time < fastest[layouts].time:
                fastest[layouts] = choice
        return list(fastest.values())

    def candidates(self, node: Node, of: Kernel | None = None) -> list[Choice]:
        """What the kernels, or one of them, offer for the node, who are asked once for equal ones."""
        key = seen(node, itself), of
        if key not in self.known:
            kernels = KERNELS if of is None else (of,)
            self.known[key] = [c for kernel in kernels for c in choices_of(kernel, node, self.target)]
        return self.known[key]

    def _with_fixed(self, node: Node, choice: Choice) -> Estimate:
        """What a choice is estimated to take, of which so much is fixed as its kernel takes for such a node
        where every size that only the run knows is 1; if it offers nothing for that, as it says itself."""
        tensors = [v.tensor for v in (*node.inputs, *node.outputs) if isinstance(v.type, TensorType)]
        if all(dims.is_static(tensor.shape) for tensor in tensors):
            return choice.cost
        layouts = choice.inputs, choice.output
        key = seen(node, itself), choice.kernel, layouts
        if key not in self.least:
            stored = tuple(_stored(v, w) for v, w in zip(node.inputs, _wanted(node)))
            with dims.of_ones():
                offered = choices_of(choice.kernel, replace(node, inputs=stored), self.target)
            times = [other.time for other in offered if (other.inputs, other.output) == layouts]
            self.least[key] = min(times, default=choice.cost.fixed)
        return replace(choice.cost, fixed=min(self.least[key], choice.time))

    def _scaling(self, node: Node, choices: list[Choice]) -> list[Choice]:
        """The choices that stay good whatever the run's sizes are: loop_nest may be the fastest for one row
        of a product and the slowest by far for a hundred. It is one of them where it takes less than half of
        the others' time for many, too, as for a single column."""
        fast = [choice for choice in choices if choice.kernel is not loop_nest]
        if not fast or not _is_product(node) or all(dims.is_static(v.shape) for v in node.inputs):
            return choices
        if _best_time(choices, loop=True) < _best_time(choices, loop=False):
            many = self._of_many(node, KERNELS)
            if 2 * _best_time(many, loop=True) < _best_time(many, loop=False):
                return choices
        return self._lasting(node, fast)

    def _lasting(self, node: Node, choices: list[Choice]) -> list[Choice]:
        """The choices for a matrix product, without those of kernels that take as long as another's and for
        many rows longer."""
        least = min(choice.time for choice in choices)
        level = {choice.kernel for choice in choices if choice.time <= LEVEL_WITHIN * least}
        if len(level) == 1 or not isinstance(node.op, Contract):
            return choices
        times: dict[Kernel, float] = {}
        for choice in self._of_many(node, level):
            times[choice.kernel] = min(choice.time, times.get(choice.kernel, math.inf))
        worse = {kernel for kernel, time in times.items() if time > LEVEL_WITHIN * min(times.values())}
        return [choice for choice in choices if choice.kernel not in worse]

    def _of_many(self, node: Node, kernels: Collection[Kernel]) -> list[Choice]:
        """What kernels offer for the node where its open sizes are large; asked once for equal ones."""
        key = seen(node, itself), frozenset(kernels)
        if key not in self.many:
            with dims.of_many(gemm_tiling.UNKNOWN):
                ways = _stored_ways(node)
                self.many[key] = [c for w in ways for k in kernels for c in choices_of(k, w, self.target)]
        return self.many[key]

    def _cost(self, node: Node) -> float:
        """Nanoseconds for a node, for bringing its operands into the layouts that it reads, and for copying
        those that do not lie inside the result of a join."""
        apart = self._apart(node)
        total = node.choice.time if node.choice is not None else 0.0
        if _is_join(node):
            inside = zip(node.inputs, self._inside(node, self.placed))
            copied = [v for v, root in inside if root is None and v not in dict(apart)]
            if copied and copied[0] is node.inputs[0] and copied[0] in self.states:
                copied = copied[1:]  # a state that grows is there already
            total += sum(chosen(self._reorder(v, _layout(v), copies=True)).time for v in copied)
        new = [(v, layout) for v, layout in apart if (v, _block_of(layout)) not in self.reordered]
        return total + sum(self._reordering(value, layout) for value, layout in new)

    def _handing_on(self, node: Node, wanted: Sequence[set[int | None]]) -> float:
        """Nanoseconds for bringing its results into the layouts that their readers want."""
        others = ((v, block) for v, blocks in zip(node.outputs, wanted) for block in blocks - {_block(v)})
        layouts = [(v, without_halo(block, v.rank - 2) if block else None) for v, block in others]
        return sum(self._reordering(value, layout) for value, layout in layouts)

    def _reordering(self, value: Value, layout: Layout | None) -> float:
        """Nanoseconds for bringing a value into a layout."""
        node = self._reorder(value, layout)
        return node.choice.time if node.choice is not None else 0.0

    def _apart(self, node: Node) -> list[tuple[Value, Layout | None]]:
        """The operands that must be reordered for the node, and the layouts in which it reads them."""
        return [
            (value, layout)
            for value, layout in zip(node.inputs, _wanted(node))
            if value.constant is None and not _fits(_layout(value), layout)
        ]

    def _inside(self, join: Node, placed: Collection[Value]) -> list[Value | None]:
        """For every operand of a join the value that is written there, None where it is reordered or copied:
        what lies in another, and parts of what is written elsewhere, where there are several images."""
        apart, part = dict(self._apart(join)), part_layout(join.outputs[0].tensor, (join.op.axis,))
        whole = part is not None and part.pitch != 0
        found = zip(join.inputs, insides(join, placed))
        return [None if v in apart or (whole and v is not root) else root for v, root in found]

    # Which border --------------------------------------------------------------------------------

    def _borders(self, graph: Graph) -> dict[Value, Layout]:
        """For every blocked value the widest halo that a consumer reads."""
        borders: dict[Value, Layout] = {}
        for node in graph.nodes:
            for value, wanted in zip(node.inputs, _wanted(node)):
                if wanted is not None:
                    borders[value] = _widest(value.rank - 2, borders.get(value), wanted)
        shared = [n for n in graph.nodes if n.choice is None and any(map(_layout, n.outputs))]  # memory
        before = None
        while before != borders:
            before = dict(borders)
            for node in reversed(shared):
                values = (*node.inputs, *node.outputs)
                if isinstance(node.op, Reshape):
                    (x,), (out,) = node.inputs, node.outputs
                    borders[x] = _widest(x.rank - 2, borders.get(x), _seen(borders.get(out), out, x))
                    borders[out] = _widest(out.rank - 2, borders.get(out), _seen(borders[x], x, out))
                    continue
                widest = _widest(values[0].rank - 2, *map(borders.get, values))
                borders.update(dict.fromkeys(values, widest))
        return borders

    def _pitches(self, graph: Graph) -> dict[Value, int]:
        """For every value whose images are to be parts of those of a join how many blocks these have."""
        placed: set[Value] = set()
        joins: list[tuple[Node, list[Value]]] = []
        for node in filter(_is_join, graph.nodes):
            joins.append((node, [root for root in self._inside(node, placed) if root is not None]))
            placed.update(joins[-1][1])
        pitches: dict[Value, int] = {}
        for node, values in reversed(joins):
            whole = node.outputs[0]
            part = part_layout(whole.tensor, (node.op.axis,))
            if part is not None and part.pitch:
                pitches.update(dict.fromkeys(values, pitches.get(whole, part.pitch)))
        return pitches

    # Where to reorder ----------------------------------------------------------------------------

    def _insert(self, graph: Graph, borders: dict[Value, Layout], pitches: dict[Value, int]) -> Graph:
        """graph with the borders and pitches in its layouts, and with Reorder nodes where a value is read in
        another layout, belongs in the result of a join, or is a state that would be overwritten."""
        stored = _Rewritten(self._reorder, borders)
        placed: set[Value] = set()  # what lies in the result of a join
        for node in graph.nodes:
            outputs = tuple(_stored(v, _final_layout(node, v, borders, pitches)) for v in node.outputs)
            views = node.choice is None and isinstance(node.op, (Reshape, Slice, Unfold))
            shares = views or _is_join(node)
            exact = shares and _layout(outputs[0]) is not None  # what is seen may have less
            inputs = stored.operands(node, outputs, views, exact)
            if views and exact:
                outputs = (_stored(outputs[0], _made(Node(node.op, inputs, outputs))),)
            if _is_join(node):
                inputs = self._joined(Node(node.op, inputs, outputs), placed, stored.nodes)
            choice = self._final_choice(node, inputs, outputs)
            stored.nodes.append(Node(node.op, inputs, outputs, node.origin, choice))
            stored.become.update(zip(node.outputs, outputs))
        results = [stored.as_wanted(v, None) for v in graph.outputs]
        for k, value in enumerate(results):
            if any(self.states.get(source, k) != k for source in may_be(value)):
                copy = self._reorder(value, None, copies=True)  # before that state is overwritten
                stored.nodes.append(copy)
                results[k] = copy.outputs[0]
        return replace(graph, nodes=tuple(stored.nodes), outputs=tuple(results))

    def _final_choice(
        self, node: Node, inputs: tuple[Value, ...], outputs: tuple[Value, ...]
    ) -> Choice | None:
        """The node's choice, now that it is known how its operands and results are stored."""
        if node.choice is None:
            return None
        choice = self._with_border(Node(node.op, inputs, outputs, node.origin), node.choice)
        cost = self._with_fixed(node, choice)
        return replace(choice, cost=cost, arithmetic=arithmetic_of(node), why=reason_of(node))

    def _with_border(self, node: Node, choice: Choice) -> Choice:
        """Of the choices of its kernel with the same layouts the fastest, now that the border is known with
        which the result is stored."""
        if not any(layout is not None and any(layout.halo) for layout in map(_layout, node.outputs)):
            return choice
        offered = self.tuned.applied(node, self.candidates(node, choice.kernel))
        alike = [other for other in offered if (other.inputs, other.output) == (choice.inputs, choice.output)]
        return min(alike, key=lambda other: other.time, default=choice)

    def _joined(self, join: Node, placed: set[Value], nodes: list[Node]) -> tuple[Value, ...]:
        """The operands of a join, copies of those that do not lie inside its result."""
        found = []
        for value, root in zip(join.inputs, insides(join, placed)):
            if root is None:
                nodes.append(self._reorder(value, _layout(value), copies=True))
                value = root = nodes[-1].outputs[0]
            placed.add(root)
            found.append(value)
        return tuple(found)

    def _reorder(self, value: Value, layout: Layout | None, copies: bool = False) -> Node:
        """The node that brings a value into a layout: a kernel, unless the bytes are the same already."""
        node = Node(
            Reorder(layout),
            (value,),
            (Value(replace(value.tensor, layout=layout), value.name),),
            f"{'place' if copies else 'layout'} of {value.name or 'a value'}",
        )
        if view_of(node) is not None:
            return node
        return replace(node, choice=min(self.candidates(node), key=lambda choice: choice.time))


class _Rewritten:
    """The nodes of a graph as they are written anew, what its values have `become`, and those that were
    reordered for a reader, once for each layout. `borders`: of each value the widest that is read."""

    def __init__(self, reorder: Callable[[Value, Layout | None], Node], borders: Mapping[Value, Layout]):
        self.reorder, self.borders = reorder, borders
        self.nodes: list[Node] = []
        self.become: dict[Value, Value] = {}
        self.reordered: dict[tuple[Value, Layout | None], Value] = {}

    def operands(self, node: Node, outputs: tuple[Value, ...], views: bool, exact: bool) -> tuple[Value, ...]:
        """The node's operands in the layouts in which it reads them, results being stored as `outputs`; those
        that its kernel packs as they are."""
        wanted = _wanted(replace(node, outputs=outputs))
        if views and not isinstance(node.op, Unfold):  # whose images follow each other
            wanted = (self._with_pitch(node.inputs[0], wanted[0]),)
        packed = node.choice.packed if node.choice is not None else ()
        return tuple(
            self.become.get(v, v)
            if k in packed and v.constant is not None
            else self.as_wanted(v, layout, exact)
            for k, (v, layout) in enumerate(zip(node.inputs, wanted))
        )

    def as_wanted(self, value: Value, wanted: Layout | None, exact: bool = False) -> Value:
        """What a value has become, in the wanted layout; not `exact`: maybe with a wider border."""
        current = self.become.get(value, value)
        if not isinstance(value.type, TensorType):
            return current
        if current.tensor.layout == wanted if exact else _fits(current.tensor.layout, wanted):
            return current
        layout = wanted
        if wanted is not None and not exact:
            border = replace(self.borders[value], block=wanted.block)
            layout = border if _fits(border, wanted) else wanted
        if (value, layout) not in self.reordered:
            self.nodes.append(self.reorder(current, layout))
            self.reordered[value, layout] = self.nodes[-1].outputs[0]
        return self.reordered[value, layout]

    def _with_pitch(self, value: Value, wanted: Layout | None) -> Layout | None:
        """The layout that is wanted, with the pitch of the value if nothing else differs."""
        layout = _layout(self.become.get(value, value))
        return layout if layout and wanted and layout.alone == wanted else wanted


def _final_layout(
    node: Node, value: Value, borders: Mapping[Value, Layout], pitches: Mapping[Value, int]
) -> Layout | None:
    """The layout of a result with its border and pitch; of what is seen, the border that both have."""
    layout = _layout(value)
    if layout is None:
        return None
    border = borders.get(value) or _widest(value.rank - 2)
    layout = replace(border, block=layout.block, pitch=pitches.get(value, 0))
    if _is_seen(node):
        return _seen(_seen(layout, value, node.inputs[0]), node.inputs[0], value)
    return layout


def _refused(node: Node) -> NoReturn:
    operands = ", ".join(str(v.type) for v in node.inputs)
    raise UnsupportedError(f"no kernel takes {type(node.op).__name__} of {operands}")


def _best_time(choices: Sequence[Choice], loop: bool) -> float:
    """The least nanoseconds of loop_nest, or of all others."""
    return min((c.time for c in choices if (c.kernel is loop_nest) == loop), default=math.inf)


def _stored_ways(node: Node) -> list[Node]:
    """The node with its operands as they are stored so far, and all dense."""
    if not any(_layout(v) for v in node.inputs):
        return [node]
    inputs = tuple(_stored(v, None) for v in node.inputs)
    return [node, Node(node.op, inputs, node.outputs, node.origin)]


def _is_product(node: Node) -> bool:
    return isinstance(node.op, (Conv, Contract))


def _blocks_read(graph: Graph, chosen: Graph) -> dict[Value, set[int | None]]:
    """The blocks in which every value of graph is read by nodes as they were chosen, None being dense. What
    nobody computes, a view or join, wants its operands as its readers want its result, if these may be in
    blocks."""
    read: dict[Value, set[int | None]] = {value: {None} for value in graph.outputs}
    for node, choice in reversed(list(zip(graph.nodes, chosen.nodes))):
        if choice.choice is None and not _runs_itself(node.op):
            of_result = {None} if _is_dense(node) else read.get(node.outputs[0], set())
            blocks = [of_result] * len(node.inputs)
        else:
            blocks = [{_block_of(layout)} for layout in _wanted(choice)]
        for value, wanted in zip(node.inputs, blocks):
            if value.constant is None and isinstance(value.type, TensorType):
                read.setdefault(value, set()).update(wanted)
    return read


def _is_dense(view: Node) -> bool:
    """Whether it sees what only lies so where it is dense."""
    x, out = view.inputs[0], view.outputs[0]
    return isinstance(view.op, Reshape) and not keeps_pixels(x.tensor, out.tensor)


def _block(value: Value) -> int | None:
    return _block_of(_layout(value))


def _block_of(layout: Layout | None) -> int | None:
    return layout.block if layout else None


def _layout(value: Value) -> Layout | None:
    return value.tensor.layout if isinstance(value.type, TensorType) else None


def _stored(value: Value, layout: Layout | None) -> Value:
    type_ = replace(value.tensor, layout=layout) if isinstance(value.type, TensorType) else value.type
    return Value(type_, value.name, value.constant, value.elements)


def _wanted(node: Node) -> tuple[Layout | None, ...]:
    """The layouts in which a node reads its operands: a view's are those of its result, a join's those of its
    parts."""
    if node.choice is not None:
        return node.choice.inputs or (None,) * len(node.inputs)
    if _is_seen(node):
        return (_seen(_layout(node.outputs[0]), node.outputs[0], node.inputs[0]),)
    if isinstance(node.op, Unfold):
        layout = _layout(node.outputs[0])
        return (layout.alone if layout is not None else None,)
    if isinstance(node.op, Concat):
        return (part_layout(node.outputs[0].tensor, (node.op.axis,)),) * len(node.inputs)
    viewed = isinstance(node.op, (Reshape, Slice))
    return (_layout(node.outputs[0]) if viewed else None,) * len(node.inputs)


def _is_seen(node: Node) -> bool:
    """Whether the node's result is its operand, in blocks, with other axes."""
    return node.choice is None and isinstance(node.op, Reshape) and _layout(node.outputs[0]) is not None


def _seen(layout: Layout | None, of: Value, to: Value) -> Layout | None:
    return reshaped_layout(layout, of.tensor, to.tensor)


def _made(node: Node) -> Layout | None:
    """The layout of what is seen of an operand, or joined of several that are stored like the first."""
    if isinstance(node.op, Reshape):
        return _seen(_layout(node.inputs[0]), *node.inputs, *node.outputs)
    if isinstance(node.op, Slice):
        return part_layout(node.inputs[0].tensor, cut_axes(node))
    if isinstance(node.op, Unfold):
        return unfolded_layout(node)
    return _layout(node.inputs[0]) if node.inputs else None


def _is_join(node: Node) -> bool:
    return node.choice is None and isinstance(node.op, Concat)


def _widest(axes: int, *borders: Layout | None) -> Layout:
    """For each of the spatial axes the widest of some halos: where not all hold the same, of those that hold
    the greatest fill. Who wants another gets a copy."""
    wide = [border for border in borders if border is not None and any(border.halo)]
    fill = max((border.fill for border in wide), default=0)
    return Layout(0, tuple(map(max, zip((0,) * axes, *(b.halo for b in wide if b.fill == fill)))), fill)


def _fits(layout: Layout | None, wanted: Layout | None) -> bool:
    """Whether a value stored so can be read by who wants it like that: the same block, and no less of a halo
    that holds the same."""
    if layout is None or wanted is None:
        return layout is wanted
    wide = all(a >= b for a, b in zip(layout.halo or wanted.halo, wanted.halo))
    filled = layout.fill == wanted.fill or not any(wanted.halo)
    return layout.block == wanted.block and wide and filled
