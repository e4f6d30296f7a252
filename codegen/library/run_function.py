"""`run`: the nodes in order, as straight-line code around calls of the runtime's `parallel`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...ir import dims, dtypes
from ...ir.dims import Dim, Dimension
from ...ir.graph import Graph, Node, TensorType, Value
from ...ir.ops import Bind, Elements, If, Loop, RuntimeCall, requirements
from .. import abi
from ..kernel import Argument, Code, Step
from ..lowering.plan_memory import MemoryPlan
from ..text.emitter import Function
from .function_body import Tables
from .run_regions import Regions

#: Operands between fences that keep LLVM, not the processor, from looking at all stores of a call together:
#: it compares each with each.
FENCED = 8


class RunFunction(Regions):
    """`run`: the nodes in order."""

    def __init__(
        self,
        f: Function,
        tables: Tables,
        graph: Graph,
        plan: MemoryPlan,
        codes: Mapping[Node, Code],
        kernels: Mapping[str, str],
        offsets: Sequence[int],
    ):
        super().__init__(f, tables, graph, plan, offsets)
        self.codes, self.kernels = codes, kernels

    def emit(self) -> None:
        self.nodes(self.graph.nodes)
        for index, value in self.plan.copies:
            self._copy_output(index, value)
        values, behind = self.context("values"), 8 * self.plan.slots
        self.f.prologue.append(f"  %words = getelementptr i8, ptr {values}, i64 {behind}")
        self.close()

    def nodes(self, nodes: Iterable[Node]) -> None:
        outer = self.origin
        for node in nodes:
            self.origin = node.origin
            if node.origin:
                self.f.comment(node.origin.replace("\n", " ").replace("\r", " "))
            self._checks(node)
            match node.op:
                case Bind():
                    self._bind(node)
                case Elements():
                    self._elements(node)
                case If():
                    self._if(node)
                case Loop():
                    self._loop(node)
                case RuntimeCall():
                    self._call(node)
                case _ if node in self.codes:
                    self._kernel(node)
        self.origin = outer

    def _copy_output(self, index: int, value: Value) -> None:
        f = self.f
        if not isinstance(value.type, TensorType):
            status = f.call(
                "i32",
                self.service("output_value"),
                "ptr %ctx",
                "ptr %outputs",
                f"i32 {index}",
                f"ptr {self.address(value)}",
            )
            return self.leave_if_failed(status)
        self.copy(self._output(index, value.shape), self.address(value), self.dimension(value.tensor.nbytes))

    # Nodes ---------------------------------------------------------------------------------------

    def _kernel(self, node: Node) -> None:
        f = self.f
        outputs = [self.make(v) for v in node.outputs]
        code = self.codes[node]
        temporaries = [
            self.obtain(at, nbytes) for at, nbytes in zip(self.plan.temporaries[node], code.temporaries)
        ]
        for step in code.steps:
            if step.copies is not None and self._is_there(node, step.copies):
                continue
            if step.copies is not None and self._may_be_there(node, step.copies):
                apart = f.compare("ne", self.address(node.inputs[step.copies]), outputs[0], "ptr")
                with f.when(apart), self.region():
                    self._step(node, step, outputs, temporaries)
                continue
            self._step(node, step, outputs, temporaries)

    def _step(self, node: Node, step: Step, outputs: Sequence[str], temporaries: Sequence[str]) -> None:
        f, index = self.f, self.tables.node(node.origin)
        words = [self._argument(node, a, outputs, temporaries) for a in step.arguments]
        self._word_array(words, ["i64" if a.kind in ("size", "run") else "ptr" for a in step.arguments])
        self._scratch(node, step.scratch)
        status = f.call(
            "i32",
            self.service("parallel"),
            "ptr %ctx",
            f"ptr @{self.kernels[step.text]}",
            "ptr %words",
            f"i64 {self._parts(step.parts, node)}",
            f"i64 {self.dimension(step.work)}",
            f"i64 {self.dimension(step.unit)}",
            f"i32 {index}",
        )
        self.leave_if_failed(status)

    def _is_there(self, node: Node, operand: int) -> bool:
        """Whether an operand has the memory of the result."""
        return self.plan.locations[node.inputs[operand]] == self.plan.locations[node.outputs[0]]

    def _may_be_there(self, node: Node, operand: int) -> bool:
        """Whether an operand is a state and the result its next value: the caller may have one place for
        both."""
        at, to = self.plan.locations[node.inputs[operand]], self.plan.locations[node.outputs[0]]
        pair = (at.index, to.index) in self.graph.states and at.offset == to.offset
        return pair and (at.kind, to.kind) == ("input", "output")

    def _parts(self, parts: Dimension, node: Node) -> str:
        """None where the results turn out to have no elements, however large other sizes are."""
        sizes = [value.tensor.nbytes for value in node.outputs]
        number = self.dimension(parts)
        if any(isinstance(size, int) and size > 0 for size in sizes):
            return number
        empty = self.f.compare("eq", self.dimension(sum(sizes)), 0)
        return self.f.select(empty, "i64", "0", number)

    def _argument(
        self, node: Node, argument: Argument, outputs: Sequence[str], temporaries: Sequence[str]
    ) -> str:
        match argument.kind:
            case "input":
                packed = self.plan.packed.get((node, argument.index))
                return self.at(packed) if packed is not None else self.address(node.inputs[argument.index])
            case "output":
                return outputs[argument.index]
            case "temporary":
                return temporaries[argument.index]
            case "run":
                place = self._at("%ctx", abi.CONTEXT["run_count"])
                return self.f.hoisted(f"load i64, ptr {place}, align 8", "i64")
        return self.dimension(argument.dimension)

    def _scratch(self, node: Node, nbytes: Dimension) -> None:
        """Scratch that bind did not ask for."""
        if nbytes == 0 if node in self.later else {s.name for s in dims.symbols(nbytes)} <= self.entry:
            return
        with self.overflow_checked(self.origin):
            self.dimension(nbytes)
        status = self.f.call("i32", self.service("scratch"), "ptr %ctx", f"i64 {self.size(nbytes)}")
        self.leave_if_failed(status)

    def _elements(self, node: Node) -> None:
        address, dtype = self.make(node.outputs[0]), node.op.dtype
        width = dtypes.itemsize(dtype)
        for k, element in enumerate(node.op.dims):
            value = self.dimension(element)
            if width < 8:
                value = self.f.cast("trunc", value, f"i{8 * width}", "i64")
            self.f.store(f"i{8 * width}", value, self.f.offset(address, width * k))

    def _bind(self, node: Node) -> None:
        address = self.address(node.inputs[0])
        for k, symbol in enumerate(node.op.symbols):
            value = self.f.load("i64", self.f.offset(address, 8 * k))
            if symbol.minimum is not None:
                least = str(symbol.minimum)
                wrong = self.f.compare("slt", value, least)
                self.fail_if(wrong, node.origin, "invalid_value", value, least, least=True)
            self.set_variable(symbol.name, value)
            self.defined.add(symbol.name)
        self._forget({s.name for s in node.op.symbols})

    def _call(self, node: Node) -> None:
        """A runtime function: operands and results as onnxc_value, the attributes behind them, then the
        sizes it returned."""
        f, op = self.f, node.op
        results = len(node.inputs) * abi.VALUE_BYTES
        place = results + len(node.outputs) * abi.VALUE_BYTES
        for k, value in enumerate(node.inputs):
            place = self._fill_value(k * abi.VALUE_BYTES, value, place)
            if k % FENCED == FENCED - 1:
                f.statement('fence syncscope("singlethread") seq_cst')
        attributes = place
        places = [self.plan.locations[v] for v in node.outputs]
        slots = [~at.index if at.kind == "output" else at.index for at in places]
        for number in (*slots, *op.attributes):
            f.store("i64", str(number), f.offset("%words", place), 8)
            place += 8
        self.words = max(self.words, place // 8)
        operation = self.tables.operations.setdefault(op.symbol, len(self.tables.operations))
        status = f.call(
            "i32",
            self.service("call"),
            "ptr %ctx",
            f"i32 {operation}",
            "ptr %words",
            f"i32 {len(node.inputs)}",
            f"ptr {f.offset('%words', results)}",
            f"i32 {len(node.outputs)}",
            f"ptr {f.offset('%words', attributes)}",
            f"i32 {self.tables.node(node.origin)}",
        )
        self.leave_if_failed(status)
        fresh = self._fresh(node)
        for k, value in enumerate(node.outputs, len(node.inputs)):
            result = f.offset("%words", k * abi.VALUE_BYTES)
            self._expect(result, "kind", abi.KINDS[value.type.kind], "wrong_kind", node.origin)
            if isinstance(value.type, TensorType):
                self._expect(result, "rank", value.rank, "rank_mismatch", node.origin)
                self._expect(result, "dtype", dtypes.NUMBERS[value.dtype], "wrong_dtype", node.origin)
                data = f.load("ptr", f.offset(result, abi.VALUE["data"]), 8)
                f.store("ptr", data, self.slot("values", self.plan.locations[value].slot), 8)
                self._take_shape(
                    value, f.load("ptr", f.offset(result, abi.VALUE["dims"]), 8), fresh, node.origin
                )
            else:
                self._copy_object(self.plan.locations[value], result, hold=False)
        self._forget(fresh)

    def _expect(self, result: str, field_name: str, expected: int, code: str, origin: str) -> None:
        """Fails the run where a field of a result is not what the graph was compiled for: what a sequence
        holds may differ."""
        f = self.f
        found = f.load("i32", f.offset(result, abi.VALUE[field_name]), 4)
        needed = str(expected) if code == "rank_mismatch" else None
        got = f.cast("sext", found, "i64", "i32")
        self.fail_if(f.compare("ne", found, expected, "i32"), origin, code, got, needed)

    def _fill_value(self, base: int, value: Value, place: int) -> int:
        """Writes an operand's onnxc_value at byte `base` of the words, its dims at `place`; the next free
        place."""
        f, words = self.f, "%words"
        if not isinstance(value.type, TensorType):
            self.copy(f.offset(words, base), self.address(value), str(abi.VALUE_BYTES))
            return place
        fields = {
            "struct_size": abi.VALUE_BYTES,
            "kind": abi.KINDS["tensor"],
            "dtype": dtypes.NUMBERS[value.dtype],
            "rank": value.rank,
        }
        for name, number in fields.items():
            f.store("i32", str(number), f.offset(words, base + abi.VALUE[name]), 4)
        f.store("ptr", f.offset(words, place), f.offset(words, base + abi.VALUE["dims"]), 8)
        f.store("ptr", self.address(value), f.offset(words, base + abi.VALUE["data"]), 8)
        nbytes = self.dimension(value.tensor.nbytes)
        for name, size in (("bytes", nbytes), ("capacity", nbytes), ("object", "0")):
            f.store("i64", size, f.offset(words, base + abi.VALUE[name]), 8)
        for axis, extent in enumerate(value.shape):
            f.store("i64", self.dimension(extent), f.offset(words, place + 8 * axis), 8)
        return place + 8 * value.rank

    def _take_shape(self, value: Value, array: str, fresh: set[str], origin: str) -> None:
        """Binds the variables that are new in a result's type from the shape that the run found."""
        for axis, size in enumerate(value.shape):
            found = self.f.load("i64", self.f.offset(array, 8 * axis), 8)
            if isinstance(size, Dim) and str(size) in fresh and str(size) not in self.defined:
                self.defined.add(str(size))
                self.set_variable(str(size), found)
                self.known.pop(size, None)
            else:
                expected = self.dimension(size)
                self.fail_if(self.f.compare("ne", found, expected), origin, "dims_mismatch", found, expected)

    # Checks --------------------------------------------------------------------------------------

    def _checks(self, node: Node) -> None:
        """What inference took for granted and only the run can tell."""
        for need in requirements(node):
            key = (need.kind, need.a, need.b)
            if key in self.checked:
                continue
            self.checked.add(key)
            with self.overflow_checked(need.origin):
                got, expected = self.dimension(need.a), self.dimension(need.b)
            if need.kind == "inside":
                before = self.f.compare("slt", self.f.add(got, expected), 0)
                wrong = self.f.binary("or", before, self.f.compare("sge", expected, got), "i1")
                self.fail_if(wrong, need.origin, need.code, expected)
                continue
            wrong = self.f.compare("slt" if need.kind == "least" else "ne", got, expected)
            if need.kind == "broadcast":
                wrong = self.f.binary("and", wrong, self.f.compare("ne", got, 1), "i1")
            expects = need.code in ("dims_mismatch", "invalid_reshape")
            least = expects and need.kind == "least"
            self.fail_if(wrong, need.origin, need.code, got, expected if expects else None, least)
