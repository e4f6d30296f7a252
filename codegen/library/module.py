"""Emits a lowered graph as functions: `bind`, which turns the inputs' shapes into sizes, and `run`, which
calls the kernels.

`run` is straight-line code around calls of the runtime's `parallel`; branches and loops of the model become
branches and loops of `run`. All state is in the context: dimension variables in `dims`, addresses that only
the run knows in `values`. Shape arithmetic is checked for overflow wherever a size is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...records import dataclass
from ..lowering.lower import Lowered
from ..text.emitter import Function, Text
from .bind_function import BindFunction
from .function_body import Tables
from .run_function import RunFunction


@dataclass(frozen=True)
class Module:
    """What code generation hands on: the text of `bind` and `run`, and the numbers of its
    tables."""

    text: str
    node_names: tuple[str, ...]
    runtime_ops: tuple[str, ...]
    dim_count: int
    value_count: int
    heap_count: int


def emit_module(
    lowered: Lowered, kernels: Mapping[str, str], offsets: Sequence[int], entry_points: tuple[str, str]
) -> Module:
    """kernels: text of a step → the name its entry has in the library; offsets: of plan.constants in the
    weights; entry_points: the names of `bind` and `run`."""
    graph, plan, codes = lowered.graph, lowered.plan, lowered.codes
    text, tables = Text(lowered.target, Function), Tables()
    bind_name, run_name = entry_points
    with text.function(bind_name, ["ptr %ctx", "ptr %inputs"], "i32", "hidden") as f:
        BindFunction(f, tables, graph, plan, codes).emit()
    with text.function(run_name, ["ptr %ctx", "ptr %inputs", "ptr %outputs"], "i32", "hidden") as f:
        run = RunFunction(f, tables, graph, plan, codes, kernels, offsets)
        run.emit()
    for name in sorted(set(kernels.values())):
        text.declarations[name] = f"declare hidden i32 @{name}(ptr, i64, i64, ptr)"
    return Module(
        str(text),
        tuple(tables.nodes) or ("",),
        tuple(tables.operations),
        len(tables.variables),
        plan.slots + run.words,
        plan.heaps,
    )
