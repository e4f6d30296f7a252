"""States: which output of a model is the next value of which input.

The two may share memory, so that a run changes it in place. A state that grows along an axis (the keys of
an attention, [batch, heads, length, depth]) is taken and given with that axis first, [length, batch, heads,
depth]: what is there stays where it is, and what is new is written behind it. Kernels read either order.
A state does not grow along an axis of a known size: where only the run knows the next one, it compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..errors import ModelError, quote
from ..ir import dims
from ..ir.dims import Dimension
from ..ir.graph import Graph, Node, Rewriter, TensorType, Value, make_node
from ..ir.ops import Concat, Require, Reshape, Transpose
from ..ir.verify import growing_axis


def with_states(graph: Graph, outputs: Sequence[str], wanted: Mapping[str, str]) -> Graph:
    """graph with the states that a caller names, input → output; a `*` in both stands for the same text.

    outputs: the names of the graph's outputs. Raises ModelError for names and types that do not fit."""
    inputs = [value.name for value in graph.inputs]
    pairs = _pairs(graph, outputs, wanted)
    for k, r in pairs.items():
        before, after = graph.inputs[k].type, graph.outputs[r].type
        try:
            graph = _of_known_sizes(graph, k, r)
            axis = growing_axis(before, graph.outputs[r].type)
        except ValueError as error:
            reason = f"{before} cannot become {after}: {error}"
            raise ModelError(f"the state {quote(inputs[k])} = {quote(outputs[r])}: {reason}") from None
        if axis is not None and any(d != 1 for d in graph.inputs[k].shape[:axis]):
            graph = _axis_first(graph, k, r, axis)
    return replace(graph, states=tuple(pairs.items()))


def _of_known_sizes(graph: Graph, old: int, new: int) -> Graph:
    """graph whose runs fail where a next value has another size than a number that its state has; ValueError
    where that is known of all."""
    before, value = graph.inputs[old].type, graph.outputs[new]
    after = value.type
    if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before.rank != after.rank:
        return graph
    shape = tuple(size if isinstance(size, int) else d for size, d in zip(before.shape, after.shape))
    if shape == after.shape:
        return graph
    origin = "" if value.producer is None else value.producer.origin
    needed = []
    for size, found in zip(shape, after.shape):
        if dims.equal(size, found) is False:
            raise ValueError(f"a size of {size} does not grow to {found}")
        if size != found:
            needed.append(make_node(Require("equal", (found, size)), (), origin))
    sized = make_node(Reshape(shape), [value], origin, [value.name])
    outputs = (*graph.outputs[:new], *sized.outputs, *graph.outputs[new + 1 :])
    return replace(graph, nodes=(*graph.nodes, *needed, sized), outputs=outputs)


def sizes_of_states(graph: Graph, outputs: Sequence[str], wanted: Mapping[str, str]) -> dict[str, int]:
    """The variables of inputs that must be numbers: those of axes that the next value has a number for."""
    found: dict[str, int] = {}
    for size, following in _sizes(graph, outputs, wanted):
        atom = dims.single_atom(size)
        if isinstance(atom, dims.Symbol) and isinstance(following, int):
            found[atom.name] = following
    return found


def facts_of_states(graph: Graph, outputs: Sequence[str], wanted: Mapping[str, str]) -> dict[str, Dimension]:
    """What holds because a state of a known size never grows: by how much more its next value would have room
    for, `max(needed - size, 0)`, is 0."""
    found: dict[str, Dimension] = {}
    for size, following in _sizes(graph, outputs, wanted):
        atom = dims.single_atom(following - size)
        if isinstance(size, int) and isinstance(atom, dims.Apply) and (atom.kind, atom.right) == ("max", 0):
            found[atom.key] = 0
    return found


def _sizes(
    graph: Graph, outputs: Sequence[str], wanted: Mapping[str, str]
) -> Iterator[tuple[Dimension, Dimension]]:
    """Each size of the states that are tensors, and that of the next value."""
    for k, r in _pairs(graph, outputs, wanted).items():
        before, after = graph.inputs[k].type, graph.outputs[r].type
        if isinstance(before, TensorType) and isinstance(after, TensorType):
            yield from zip(before.shape, after.shape)


def _pairs(graph: Graph, outputs: Sequence[str], wanted: Mapping[str, str]) -> dict[int, int]:
    """The number of each state's input and that of its output."""
    inputs = [value.name for value in graph.inputs]
    pairs: dict[int, int] = {}
    for old, new in _expanded(wanted, inputs):
        k, r = _find(old, inputs, "input"), _find(new, outputs, "output")
        if k in pairs or r in pairs.values():
            raise ModelError(f"the state {quote(old)} = {quote(new)}: one of the two has another already")
        pairs[k] = r
    return pairs


def _expanded(wanted: Mapping[str, str], inputs: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of names, patterns replaced by what they match."""
    found = []
    for old, new in wanted.items():
        if old.count("*") != 1 or new.count("*") != 1:
            found.append((old, new))
            continue
        pattern = re.escape(old).replace(r"\*", "(.+)")
        matches = [match for name in inputs if (match := re.fullmatch(pattern, name))]
        if not matches:
            raise ModelError(f"no input of the model matches {quote(old)}")
        found += [(match[0], new.replace("*", match[1])) for match in matches]
    return found


def _find(name: str, names: Sequence[str], what: str) -> int:
    """The place of a name among names."""
    if name not in names:
        known = ", ".join(map(quote, names[:8])) + (", ..." if len(names) > 8 else "")
        raise ModelError(f"the model has no {what} {quote(name)} to be a state; it has {known or 'none'}")
    return names.index(name)


def _axis_first(graph: Graph, old: int, new: int, axis: int) -> Graph:
    """graph with one input and its next value stored with an axis first."""
    past, present = graph.inputs[old], graph.outputs[new]
    turn = Transpose((axis, *(a for a in range(past.rank) if a != axis)))
    stored = Value(TensorType(past.dtype, tuple(past.shape[a] for a in turn.perm)), past.name)
    rewriter = Rewriter(graph)
    rewriter.replace((past,), rewriter.add(turn.inverse, (stored,)))
    following: Value | None = None
    for node in graph.nodes:
        if _appends(node, past, present, axis):
            parts = [rewriter.add(turn, (rewriter.of(v),))[0] for v in node.inputs[1:]]
            (following,) = rewriter.add(Concat(0), (stored, *parts), node.origin, [present.name])
            rewriter.replace(node.outputs, rewriter.add(turn.inverse, (following,), node.origin))
        else:
            rewriter.copy(node)
    if following is None:
        (following,) = rewriter.add(turn, (rewriter.of(present),), names=[present.name])
    made = rewriter.finish()
    return replace(
        made,
        inputs=(*graph.inputs[:old], stored, *graph.inputs[old + 1 :]),
        outputs=(*made.outputs[:new], following, *made.outputs[new + 1 :]),
    )


def _appends(node: Node, past: Value, present: Value, axis: int) -> bool:
    return node.op == Concat(axis) and node.inputs[0] is past and node.outputs[0] is present
