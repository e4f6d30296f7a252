"""Where `run` has its values: addresses in the arena, the context's values, the model's inputs and outputs.

Most memory is planned. What only the run can tell the size of is obtained from the runtime just before it is
written, and so is an output of the model, whose shape is known then.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dims
from ...ir.dims import Dimension
from ...ir.graph import Graph, Node, TensorType, Value
from .. import abi
from ..lowering.plan_memory import Location, MemoryPlan, known_at_entry
from ..text.emitter import Function
from .function_body import FunctionBody, Tables


class RunMemory(FunctionBody):
    """The part of the run function that addresses and obtains memory."""

    def __init__(self, f: Function, tables: Tables, graph: Graph, plan: MemoryPlan, offsets: Sequence[int]):
        super().__init__(f, tables)
        self.graph, self.plan, self.offsets = graph, plan, offsets
        self.entry = known_at_entry(graph)
        self.later = plan.in_branches()
        self.branch_of = {k: b for b in plan.branches.values() for k in range(b.first, b.end)}  # of buffers
        self.defined = set(self.entry)  # dimension variables
        self.checked: set[tuple] = set()  # requirements that are known to hold
        self.origin = ""  # of the node being written
        self.words = 1  # of arguments, behind the context's values: too many for a small stack
        self.pending = {  # outputs that nodes write: asked for just before
            location.slot: (location.index, graph.outputs[location.index])
            for location in plan.locations.values()
            if location.kind == "output"
        }

    def address(self, value: Value) -> str:
        """The address of a value's first byte, in memory that exists already."""
        return self.at(self.plan.locations[value])

    def at(self, location: Location) -> str:
        f = self.f
        match location.kind:
            case "input" if isinstance(self.graph.inputs[location.index].type, TensorType):
                base = self.input_field(location.index, "data")
            case "input":
                base = self._at("%inputs", location.index * abi.VALUE_BYTES)
            case "object":
                base = self._arena(location.slot)
            case "constant":
                strings = self.plan.constants[location.index].dtype == "string"
                base = self._at(
                    self.context("strings" if strings else "weights"), self.offsets[location.index]
                )
            case "arena":
                base = self._arena(location.index)
            case _:
                base = f.load("ptr", self.slot("values", location.slot), 8)
        return f.offset(base, self.dimension(location.offset))

    def _arena(self, index: int) -> str:
        planned = self.plan.buffers[index].offset
        if planned is not None:
            return self._at(self.context("arena"), planned)
        offset = self.f.load("i64", self.slot("offsets", index), 8)
        if index not in self.branch_of:
            return self.f.offset(self.context("arena"), offset)
        return self.f.offset(self.at(self.branch_of[index].memory), offset)

    def make(self, value: Value) -> str:
        """The address for a value that is about to be written; its memory is obtained where it is not
        planned and no operand has it."""
        location = self.plan.locations[value]
        return self.at(location) if value in self.plan.over else self.obtain(location, value.tensor.nbytes)

    def obtain(self, location: Location, nbytes: Dimension) -> str:
        f = self.f
        if location.kind == "heap":
            pointer = f.call(
                "ptr", self.service("buffer"), "ptr %ctx", f"i32 {location.index}", f"i64 {self.size(nbytes)}"
            )
            self.leave_if(f.compare("eq", pointer, "null", "ptr"))
            f.store("ptr", pointer, self.slot("values", location.slot), 8)
            return pointer
        if location.kind == "output" and location.slot in self.pending:
            index, value = self.pending.pop(location.slot)
            self.size(nbytes)
            self._open_output(index, value.shape, location.slot)
        return self.at(location)

    def size(self, value: Dimension) -> str:
        """A number of bytes made from data-dependent dimensions: overflow and negative sizes fail the run."""
        if {s.name for s in dims.symbols(value)} <= self.entry:
            return self.dimension(value)
        with self.overflow_checked(self.origin):
            result = self.dimension(value)
        self.fail_if(self.f.compare("slt", result, 0), self.origin, "size_overflow")
        return result

    def _open_output(self, index: int, shape: Sequence[Dimension], slot: int) -> None:
        self.f.store("ptr", self._output(index, shape), self.slot("values", slot), 8)

    def _output(self, index: int, shape: Sequence[Dimension]) -> str:
        """The memory of an output of the model, of the given shape."""
        f, array = self.f, self._word_array([self.dimension(d) for d in shape])
        pointer = f.call(
            "ptr",
            self.service("output"),
            "ptr %ctx",
            "ptr %outputs",
            f"i32 {index}",
            f"i32 {len(shape)}",
            f"ptr {array}",
        )
        self.leave_if(f.compare("eq", pointer, "null", "ptr"))
        return pointer

    def copy(self, to: str, source: str, nbytes: str) -> None:
        memmove = self.f.text.declare("llvm.memmove.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        self.f.statement(f"call void {memmove}(ptr {to}, ptr {source}, i64 {nbytes}, i1 false)")

    def _word_array(self, words: Sequence[str], types: Sequence[str] | None = None) -> str:
        """The argument array, filled."""
        self.words = max(self.words, len(words))
        for k, word in enumerate(words):
            self.f.store(types[k] if types else "i64", word, self._word(k), 8)
        return "%words"

    def _word(self, k: int) -> str:
        return self.f.offset("%words", 8 * k)

    def _copy_object(self, location: Location, source: str, hold: bool) -> None:
        """Lets a sequence, optional or map be what the onnxc_value at `source` says; `hold`: and keeps it
        alive."""
        f = self.f
        self.copy(self.at(location), source, str(abi.VALUE_BYTES))
        if hold:
            found = f.load("ptr", f.offset(source, abi.VALUE["object"]), 8)
            f.statement(f"call void {self.service('hold')}(ptr %ctx, i32 {location.index}, ptr {found})")

    def _fresh(self, node: Node) -> set[str]:
        """The variables that a node's results define."""
        names: set[str] = set()
        for value in node.outputs:
            if isinstance(value.type, TensorType):
                names |= {s.name for d in value.shape for s in dims.symbols(d)}
        return names - self.defined
