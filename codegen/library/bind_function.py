"""`bind`: dimension variables from the inputs' shapes, their agreement, and the sizes of the arena."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir import dims
from ...ir.dims import Dimension
from ...ir.graph import Graph, Node, TensorType
from .. import abi
from ..kernel import Code
from ..lowering.plan_memory import MemoryPlan, known_at_entry
from ..text.emitter import Function
from .function_body import FunctionBody, Tables


class BindFunction(FunctionBody):
    """`bind`: dimension variables from the inputs' shapes, their agreement, and the sizes that the arena
    needs."""

    def __init__(
        self, f: Function, tables: Tables, graph: Graph, plan: MemoryPlan, codes: Mapping[Node, Code]
    ):
        super().__init__(f, tables)
        self.graph, self.plan, self.codes = graph, plan, codes

    def emit(self) -> None:
        self._variables()
        self._sizes()
        self.close()

    def _variables(self) -> None:
        bound: set[str] = set()
        later: list[tuple[int, int, Dimension]] = []
        for index, value in enumerate(self.graph.inputs):
            if not isinstance(value.type, TensorType):
                continue
            for axis, size in enumerate(value.shape):
                if isinstance(size, int):
                    continue  # the runtime compares it with the description
                name = next(iter(dims.symbols(size))).name
                if str(size) == name and name not in bound:
                    bound.add(name)
                    self.set_variable(name, self._axis(index, axis))
                else:
                    later.append((index, axis, size))
        for index, axis, size in later:
            wrong = self.f.compare("ne", self._axis(index, axis), self.dimension(size))
            with self.f.when(wrong):
                self.f.statement(
                    f"call i32 {self.service('fail_input')}(ptr %ctx, i32 {index}, i32 {axis}, "
                    f"i64 {self.dimension(size)})"
                )
                self.leave()

    def _axis(self, index: int, axis: int) -> str:
        return self.f.load("i64", self.f.offset(self.input_field(index, "dims"), 8 * axis), 8)

    def _sizes(self) -> None:
        f, entry = self.f, known_at_entry(self.graph)
        with self.overflow_checked("the model's inputs"):
            if not self.plan.static:
                for index, buffer in enumerate(self.plan.buffers[: self.plan.first_of_branches]):
                    size = f.maximum(self.dimension(buffer.nbytes), 0)
                    f.store("i64", size, self.slot("sizes", index), 8)
            scratch, later = "64", self.plan.in_branches()
            steps = (s for node, code in self.codes.items() if node not in later for s in code.steps)
            for nbytes in dict.fromkeys(s.scratch for s in steps):
                if {s.name for s in dims.symbols(nbytes)} <= entry:
                    scratch = f.maximum(scratch, self.dimension(nbytes))
            f.store("i64", scratch, self._at("%ctx", abi.CONTEXT["scratch_bytes"]), 8)
