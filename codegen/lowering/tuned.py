"""Tuned: how long choices were seen to take beside each other, which selection believes where it knows it.

Of a node's choices the first that is known keeps its estimate, and the others that are known get that times
what they were seen to take of it: estimates of other nodes, and of reorders, stay comparable. Nodes and
choices are known by texts that are the same in every process, layouts of operands left out of the node's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from ...ir.graph import Node, TensorType, Value
from ...records import dataclass
from ..costs import Estimate
from ..kernel import Choice
from .equal_nodes import form_in, seen

if TYPE_CHECKING:
    from .lower import Lowered

#: Of nodes by their names, of their choices by theirs: the time beside that of the first.
Ratios = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Tuned:
    """ratios: what was seen. doubt: by how much estimates of the other choices for those nodes may be too
    high, so that who is that near is chosen, and can be seen too. given: is told what was lowered so."""

    ratios: Ratios = field(default_factory=dict)
    doubt: float = 1.0
    given: Callable[[Lowered], None] = lambda lowered: None

    def applied(self, node: Node, choices: Sequence[Choice]) -> list[Choice]:
        """The choices for the node, their estimates as they are believed now."""
        known = self.ratios.get(node_name(node)) if self.ratios and len(choices) > 1 else None
        if not known:
            return list(choices)
        names = [choice_name(choice) for choice in choices]
        first = next((choices[names.index(name)] for name in known if name in names), None)
        if first is None:
            return list(choices)
        whole = first.time / known[choice_name(first)]
        return [
            _believed(choice, whole * known[name] if name in known else choice.time / self.doubt)
            for choice, name in zip(choices, names)
        ]


def node_name(node: Node) -> str:
    """A name that nodes share between which kernels see no difference, however their operands are stored."""
    bare = {value: _bare(value) for value in (*node.inputs, *node.outputs)}
    inputs, outputs = (tuple(bare[value] for value in its) for its in (node.inputs, node.outputs))
    text = repr(seen(Node(node.op, inputs, outputs), form_in(node)))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def choice_name(choice: Choice) -> str:
    """The kernel, its tiling, and the layouts that it reads and writes."""
    layouts = ", ".join(str(layout) for layout in choice.inputs)
    return f"{choice.name} {choice.tiling} ({layouts}) -> {choice.output}"


def _bare(value: Value) -> Value:
    type_ = replace(value.type, layout=None) if isinstance(value.type, TensorType) else value.type
    return Value(type_, constant=value.constant)


def _believed(choice: Choice, time: float) -> Choice:
    """The choice with another estimate, cut as its own is."""
    if choice.time <= 0 or time == choice.time:
        return choice
    parts = {name: part * time / choice.time for name, part in vars(choice.cost).items()}
    return replace(choice, cost=Estimate(**parts))
