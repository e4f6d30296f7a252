"""Emits a lowered graph as functions: `bind`, which turns the inputs' shapes into sizes, and `run`, which
calls the kernels.

`run` is straight-line code around calls of the runtime's `parallel`; branches and loops of the model become
branches and loops of `run`. All state is in the context: dimension variables in `dims`, addresses that only
the run knows in `values`. Shape arithmetic is checked for overflow wherever a size is made from it.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce

from .. import dims, dtypes
from ..dims import Dim, Dimension, Symbol
from ..ir import Graph, Node, TensorType, Value
from ..ops import Bind, Elements, If, Loop, RuntimeCall
from ..passes.plan_memory import Location, Plan, known_at_entry, view_of
from ..requirements import requirements
from ..target import Target
from . import abi
from .emitter import Function, Text
from .kernel import Argument, Code


@dataclass(frozen=True)
class Module:
    """What code generation hands on: the text of `bind` and `run`, and the tables that the C side
    completes."""

    text: str
    node_names: tuple[str, ...]
    runtime_ops: tuple[str, ...]
    dim_count: int
    value_count: int
    heap_count: int


@dataclass
class Tables:
    """Numbers given out while functions are written."""

    variables: dict[str, int] = field(default_factory=dict)  # dimension variable → slot of context.dims
    nodes: dict[str, int] = field(default_factory=dict)  # origin → index of its name
    operations: dict[str, int] = field(default_factory=dict)  # runtime function → index

    def variable(self, name: str) -> int:
        return self.variables.setdefault(name, len(self.variables))

    def node(self, origin: str) -> int:
        return self.nodes.setdefault(origin, len(self.nodes))


def emit_module(
    graph: Graph,
    plan: Plan,
    codes: Mapping[Node, Code],
    kernels: Mapping[str, str],
    offsets: Sequence[int],
    target: Target,
    prefix: str,
) -> Module:
    """kernels: text of a step → the name its entry has in the library; offsets: of plan.constants in the
    weights."""
    text, tables = Text(target), Tables()
    with text.function(f"{prefix}__bind", ["ptr %ctx", "ptr %inputs"], "i32", "hidden") as f:
        _Bind(f, tables, graph, plan, codes).emit()
    with text.function(f"{prefix}__run", ["ptr %ctx", "ptr %inputs", "ptr %outputs"], "i32", "hidden") as f:
        _Run(f, tables, graph, plan, codes, kernels, offsets).emit()
    for name in sorted(set(kernels.values())):
        text.declarations[name] = f"declare hidden i32 @{name}(ptr, i64, i64, ptr)"
    return Module(
        str(text),
        tuple(tables.nodes) or ("",),
        tuple(tables.operations),
        len(tables.variables),
        plan.slots,
        plan.heaps,
    )


class _Body:
    """What bind and run share: dimensions, failures, the context's fields."""

    def __init__(self, f: Function, tables: Tables):
        self.f, self.tables = f, tables
        self.known: dict[Dim, str] = {}  # computed so far on every path to here
        self.overflows: list[str] | None = None  # what tells of overflow, while sizes are checked

    def context(self, name: str) -> str:
        """A pointer field of the context."""
        return self.f.hoisted(f"load ptr, ptr {self._at('%ctx', abi.CONTEXT[name])}, align 8")

    def service(self, name: str) -> str:
        """A function of the runtime."""
        return self.f.hoisted(f"load ptr, ptr {self._at(self.context('api'), abi.API[name])}, align 8")

    def _at(self, pointer: str, offset: int) -> str:
        return pointer if offset == 0 else self.f.hoisted(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def slot(self, array: str, index: int) -> str:
        """The address of an 8-byte entry of one of the context's arrays."""
        return self._at(self.context(array), 8 * index)

    def input_field(self, index: int, name: str, type_: str) -> str:
        address = self._at("%inputs", index * abi.VALUE_BYTES + abi.VALUE[name])
        return self.f.hoisted(f"load {type_}, ptr {address}, align 8")

    # Dimensions ----------------------------------------------------------------------------------

    def dimension(self, value: Dimension) -> str:
        """The number that a dimension has in this run, as an i64."""
        if isinstance(value, int):
            return str(value)
        if value not in self.known:
            total = "0"
            for monomial, coefficient in value.terms:
                factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
                term = str(coefficient) if coefficient != 1 or not factors else factors.pop(0)
                for factor in factors:
                    term = self._arithmetic("mul", term, factor)
                total = term if total == "0" else self._arithmetic("add", total, term)
            self.known[value] = total
        return self.known[value]

    def _arithmetic(self, operation: str, a: str, b: str) -> str:
        """a + b or a * b; while sizes are checked, overflow is noted."""
        if self.overflows is None:
            return self.f.value(f"{operation} i64 {a}, {b}")
        intrinsic = self.f.text.declare(f"llvm.s{operation}.with.overflow.i64", "{i64, i1}", ["i64", "i64"])
        pair = self.f.value(f"call {{i64, i1}} {intrinsic}(i64 {a}, i64 {b})")
        self.overflows.append(self.f.value(f"extractvalue {{i64, i1}} {pair}, 1"))
        return self.f.value(f"extractvalue {{i64, i1}} {pair}, 0")

    def _atom(self, atom: Symbol | dims.Apply) -> str:
        f = self.f
        if isinstance(atom, Symbol):
            return f.load("i64", self.slot("dims", self.tables.variable(atom.name)), 8)
        a, b = self.dimension(atom.left), self.dimension(atom.right)
        match atom.kind:
            case "min":
                return f.minimum(a, b)
            case "max":
                return f.maximum(a, b)
            case "eq" | "lt":
                return f.value(f"zext i1 {f.compare('eq' if atom.kind == 'eq' else 'slt', a, b)} to i64")
            case "broadcast":
                return f.select(f.compare("eq", a, 1), "i64", b, a)
        zero = f.compare("eq", b, 0)
        divisor = f.select(zero, "i64", "1", b)
        lowest = f.compare("eq", divisor, -1)  # the most negative number by -1 would trap
        divisor = f.select(lowest, "i64", "1", divisor)
        quotient = f.value(f"sdiv i64 {a}, {divisor}")
        if atom.kind != "truncdiv":
            rest = f.sub(a, f.mul(quotient, divisor))
            against = f.value(f"xor i64 {rest}, {divisor}")
            down = f.value(f"and i1 {f.compare('ne', rest, 0)}, {f.compare('slt', against, 0)}")
            quotient = f.select(down, "i64", f.sub(quotient, 1), quotient)
        quotient = f.select(lowest, "i64", f.sub("0", a), quotient)
        if atom.kind == "mod":
            return f.select(zero, "i64", "0", f.sub(a, f.mul(quotient, b)))
        return f.select(zero, "i64", "0", quotient)

    @contextmanager
    def overflow_checked(self, origin: str) -> Iterator[None]:
        """Sizes that are computed inside fail the run where they overflow."""
        unchecked, self.known, self.overflows = self.known, {}, []
        yield
        overflows, self.overflows, self.known = self.overflows, None, {**unchecked, **self.known}
        if overflows:
            some = reduce(lambda a, b: self.f.value(f"or i1 {a}, {b}"), overflows)
            self.fail_if(some, origin, "size_overflow")

    def set_variable(self, name: str, value: str) -> None:
        self.f.store("i64", value, self.slot("dims", self.tables.variable(name)), 8)

    # Failure -------------------------------------------------------------------------------------

    def fail_if(
        self, condition: str, origin: str, code: str, value: str = "0", expected: str | None = None
    ) -> None:
        """Records an error of the node and leaves, where the condition holds."""
        with self.f.when(condition):
            what = f"ptr %ctx, i32 {self.tables.node(origin)}, i32 {abi.ERRORS[code]}"
            if expected is None:
                self.f.statement(f"call i32 {self.service('fail')}({what}, i64 {value})")
            else:
                self.f.statement(
                    f"call i32 {self.service('fail_expected')}({what}, i64 {expected}, i64 {value})"
                )
            self.leave()

    def leave(self) -> None:
        """Returns with the error that is recorded; what is written after it never runs."""
        self.f.branch("failed")
        self.f.label(self.f.fresh_label("unreachable"))

    def leave_if_failed(self, status: str) -> None:
        self.leave_if(self.f.compare("ne", status, 0, "i32"))

    def leave_if(self, condition: str) -> None:
        following = self.f.fresh_label("next")
        self.f.branch_if(condition, "failed", following)
        self.f.label(following)

    def close(self) -> None:
        self.f.statement("ret i32 0")
        self.f.label("failed")
        self.f.statement("ret i32 1")


class _Bind(_Body):
    """`bind`: dimension variables from the inputs' shapes, their agreement, and the sizes that the arena
    needs."""

    def __init__(self, f: Function, tables: Tables, graph: Graph, plan: Plan, codes: Mapping[Node, Code]):
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
                self.f.statement(f"call i32 {self.service('fail_input')}(ptr %ctx, i32 {index}, i32 {axis}, "
                                 f"i64 {self.dimension(size)})")
                self.leave()

    def _axis(self, index: int, axis: int) -> str:
        return self.f.hoisted(
            f"load i64, ptr {self._at(self.input_field(index, 'dims', 'ptr'), 8 * axis)}, align 8"
        )

    def _sizes(self) -> None:
        f, entry = self.f, known_at_entry(self.graph)
        with self.overflow_checked("the model's inputs"):
            if not self.plan.static:
                for index, buffer in enumerate(self.plan.buffers):
                    size = f.maximum(self.dimension(buffer.nbytes), 0)
                    f.store("i64", size, self.slot("sizes", index), 8)
            scratch = "64"
            for nbytes in dict.fromkeys(s.scratch for code in self.codes.values() for s in code.steps):
                if {s.name for s in dims.symbols(nbytes)} <= entry:
                    scratch = f.maximum(scratch, self.dimension(nbytes))
            f.store("i64", scratch, self._at("%ctx", abi.CONTEXT["scratch_bytes"]), 8)


class _Run(_Body):
    """`run`: the nodes in order."""

    def __init__(self, f: Function, tables: Tables, graph: Graph, plan: Plan, codes: Mapping[Node, Code],
                 kernels: Mapping[str, str], offsets: Sequence[int]):
        super().__init__(f, tables)
        self.graph, self.plan, self.codes, self.kernels, self.offsets = graph, plan, codes, kernels, offsets
        self.entry = known_at_entry(graph)
        self.defined = set(self.entry)
        self.origin = ""  # of the node being written
        self.words = 1
        self.checked: set[tuple] = set()
        self.pending = {  # outputs that nodes write: asked for just before
            location.slot: (location.index, graph.outputs[location.index])
            for location in plan.locations.values() if location.kind == "output"
        }

    def emit(self) -> None:
        self.nodes(self.graph.nodes)
        for index, value in self.plan.copies:
            self._copy_output(index, value)
        self.f.prologue.append(f"  %words = alloca [{self.words} x i64], align 16")
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
                case _ if view_of(node) is not None and node not in self.codes:
                    pass
                case _:
                    self._kernel(node)
        self.origin = outer

    # Addresses -----------------------------------------------------------------------------------

    def address(self, value: Value) -> str:
        """The address of a value's first byte, in memory that exists already."""
        return self.at(self.plan.locations[value])

    def at(self, location: Location) -> str:
        f = self.f
        match location.kind:
            case "input" if isinstance(self.graph.inputs[location.index].type, TensorType):
                base = self.input_field(location.index, "data", "ptr")
            case "input":
                base = self._at("%inputs", location.index * abi.VALUE_BYTES)
            case "object":
                base = self._arena(location.slot)
            case "constant":
                base = self._at(self.context("weights"), self.offsets[location.index])
            case "arena":
                base = self._arena(location.index)
            case _:
                base = f.load("ptr", self.slot("values", location.slot), 8)
        return f.offset(base, self.dimension(location.offset))

    def _arena(self, index: int) -> str:
        if self.plan.static:
            return self._at(self.context("arena"), self.plan.buffers[index].offset)
        offset = self.f.load("i64", self.slot("offsets", index), 8)
        return self.f.offset(self.context("arena"), offset)

    def make(self, value: Value) -> str:
        """The address for a value that is about to be written; its memory is obtained where it is not
        planned."""
        return self.obtain(self.plan.locations[value], value.type.nbytes)

    def obtain(self, location: Location, nbytes: Dimension) -> str:
        f = self.f
        if location.kind == "heap":
            pointer = f.call(
                "ptr", self.service("buffer"), "ptr %ctx", f"i32 {location.index}", f"i64 {self.size(nbytes)}"
            )
            self.leave_if(f.value(f"icmp eq ptr {pointer}, null"))
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
        f = self.f
        array = self._word_array([self.dimension(d) for d in shape])
        pointer = f.call(
            "ptr",
            self.service("output"),
            "ptr %ctx",
            "ptr %outputs",
            f"i32 {index}",
            f"i32 {len(shape)}",
            f"ptr {array}",
        )
        self.leave_if(f.value(f"icmp eq ptr {pointer}, null"))
        f.store("ptr", pointer, self.slot("values", slot), 8)

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
        array = self._word_array([self.dimension(d) for d in value.shape])
        pointer = f.call(
            "ptr",
            self.service("output"),
            "ptr %ctx",
            "ptr %outputs",
            f"i32 {index}",
            f"i32 {value.rank}",
            f"ptr {array}",
        )
        self.leave_if(f.value(f"icmp eq ptr {pointer}, null"))
        self.copy(pointer, self.address(value), self.dimension(value.type.nbytes))

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

    # Nodes ---------------------------------------------------------------------------------------

    def _kernel(self, node: Node) -> None:
        f, index = self.f, self.tables.node(node.origin)
        outputs = [self.make(v) for v in node.outputs]
        code = self.codes[node]
        temporaries = [
            self.obtain(at, nbytes) for at, nbytes in zip(self.plan.temporaries[node], code.temporaries)
        ]
        for step in code.steps:
            words = [self._argument(node, a, outputs, temporaries) for a in step.arguments]
            self._word_array(words, ["i64" if a.kind in ("size", "run") else "ptr" for a in step.arguments])
            self._scratch(step.scratch)
            status = f.call(
                "i32", self.service("parallel"), "ptr %ctx", f"ptr @{self.kernels[step.text]}", "ptr %words",
                f"i64 {self.dimension(step.parts)}", f"i64 {self.dimension(step.work)}", f"i32 {index}",
            )
            self.leave_if_failed(status)

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
                return self.f.hoisted(f"load i64, ptr {self._at('%ctx', abi.CONTEXT['run_count'])}, align 8")
        return self.dimension(argument.dimension)

    def _scratch(self, nbytes: Dimension) -> None:
        """Scratch of a size that bind did not know."""
        if {s.name for s in dims.symbols(nbytes)} <= self.entry:
            return
        status = self.f.call("i32", self.service("scratch"), "ptr %ctx", f"i64 {self.size(nbytes)}")
        self.leave_if_failed(status)

    def _elements(self, node: Node) -> None:
        address, dtype = self.make(node.outputs[0]), node.op.dtype
        width = dtypes.itemsize(dtype)
        for k, element in enumerate(node.op.dims):
            value = self.dimension(element)
            if width < 8:
                value = self.f.value(f"trunc i64 {value} to i{8 * width}")
            self.f.store(f"i{8 * width}", value, self.f.offset(address, width * k))

    def _bind(self, node: Node) -> None:
        address = self.address(node.inputs[0])
        for k, symbol in enumerate(node.op.symbols):
            value = self.f.load("i64", self.f.offset(address, 8 * k))
            if symbol.minimum is not None:
                self.fail_if(
                    self.f.compare("slt", value, symbol.minimum), node.origin, "invalid_value", value
                )
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
        attributes = place
        for number in (*(self.plan.locations[v].index for v in node.outputs), *op.attributes):
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
            if isinstance(value.type, TensorType):
                self._expect(result, "rank", value.rank, "rank_mismatch", node.origin)
                self._expect(result, "dtype", abi.DTYPES[value.dtype], "wrong_dtype", node.origin)
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
        self.fail_if(
            f.compare("ne", found, expected, "i32"), origin, code, f.value(f"sext i32 {found} to i64")
        )

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
            "dtype": abi.DTYPES[value.dtype],
            "rank": value.rank,
        }
        for name, number in fields.items():
            f.store("i32", str(number), f.offset(words, base + abi.VALUE[name]), 4)
        f.store("ptr", f.offset(words, place), f.offset(words, base + abi.VALUE["dims"]), 8)
        f.store("ptr", self.address(value), f.offset(words, base + abi.VALUE["data"]), 8)
        nbytes = self.dimension(value.type.nbytes)
        for name, number in (("bytes", nbytes), ("capacity", nbytes), ("object", "0")):
            f.store("i64", number, f.offset(words, base + abi.VALUE[name]), 8)
        for axis, size in enumerate(value.shape):
            f.store("i64", self.dimension(size), f.offset(words, place + 8 * axis), 8)
        return place + 8 * value.rank

    def _copy_object(self, location: Location, source: str, hold: bool) -> None:
        """Lets a sequence, optional or map be what the onnxc_value at `source` says; `hold`: and keeps it
        alive."""
        f = self.f
        self.copy(self.at(location), source, str(abi.VALUE_BYTES))
        if hold:
            found = f.load("ptr", f.offset(source, abi.VALUE["object"]), 8)
            f.statement(f"call void {self.service('hold')}(ptr %ctx, i32 {location.index}, ptr {found})")

    def _take_shape(self, value: Value, array: str, fresh: set[str], origin: str) -> None:
        """Binds the variables that are new in a result's type from the shape that the run found."""
        for axis, size in enumerate(value.shape):
            found = self.f.load("i64", self.f.offset(array, 8 * axis), 8)
            if isinstance(size, Dim) and str(size) in fresh and str(size) not in self.defined:
                self.defined.add(str(size))
                self.set_variable(str(size), found)
                self.known.pop(size, None)
            else:
                self.fail_if(
                    self.f.compare("ne", found, self.dimension(size)), origin, "dims_mismatch", found
                )

    def _fresh(self, node: Node) -> set[str]:
        """The variables that a node's results define."""
        names: set[str] = set()
        for value in node.outputs:
            if isinstance(value.type, TensorType):
                names |= {s.name for d in value.shape for s in dims.symbols(d)}
        return names - self.defined

    # Regions -------------------------------------------------------------------------------------

    @contextmanager
    def region(self):
        """Code that may not run: what it computes is not known after it."""
        known, checked, defined = dict(self.known), set(self.checked), set(self.defined)
        yield
        self.known, self.checked, self.defined = known, checked, defined

    def _forget(self, names: set[str]) -> None:
        """Drops what was computed from variables that have other values now."""
        if names:
            self.known = {
                d: v for d, v in self.known.items() if not names & {s.name for s in dims.symbols(d)}
            }

    def _if(self, node: Node) -> None:
        f, op, fresh = self.f, node.op, self._fresh(node)
        condition = f.compare("ne", f.load("i8", self.address(node.inputs[0])), 0, "i8")
        labels = f.fresh_label("then"), f.fresh_label("else"), f.fresh_label("joined")
        f.branch_if(condition, labels[0], labels[1])
        for branch, label in ((op.then, labels[0]), (op.otherwise, labels[1])):
            f.label(label)
            with self.region():
                self.nodes(branch.nodes)
                for inner, outer in zip(branch.outputs, node.outputs):
                    if isinstance(outer.type, TensorType):
                        f.store(
                            "ptr",
                            self.address(inner),
                            self.slot("values", self.plan.locations[outer].slot),
                            8,
                        )
                    else:
                        self._copy_object(self.plan.locations[outer], self.address(inner), hold=True)
                self._give_shapes(branch.outputs, node, fresh)
            f.branch(labels[2])
        f.label(labels[2])
        self.defined |= fresh
        self._forget(fresh)

    def _give_shapes(self, inner: Sequence[Value], node: Node, fresh: set[str]) -> None:
        """Sets the variables of a node's result types from the shapes of the region's values that the
        results are."""
        given: set[str] = set()
        for value, outer in zip(inner, node.outputs):
            if not isinstance(outer.type, TensorType):
                continue
            for found, size in zip(value.shape, outer.shape):
                number = self.dimension(found)
                if isinstance(size, Dim) and str(size) in fresh and str(size) not in given:
                    given.add(str(size))
                    self.set_variable(str(size), number)
                elif isinstance(size, Dim) and str(size) in given:
                    stored = self.f.load("i64", self.slot("dims", self.tables.variable(str(size))), 8)
                    self.fail_if(self.f.compare("ne", stored, number), node.origin, "dims_mismatch", stored)

    def _loop(self, node: Node) -> None:
        f, op, body = self.f, node.op, node.op.body
        fresh = self._fresh(node)
        iteration, condition, *carried = body.inputs[: 2 + op.carried]
        trips = f.load("i64", self.address(node.inputs[0]))
        varying = self._varying(node)
        self._carry(node.inputs[2 : 2 + op.carried], carried, varying, [None] * op.carried)
        scans = [
            (inner, outer) for inner, outer in zip(body.outputs[1 + op.carried :], node.outputs[op.carried :])
        ]
        counter = f.hoisted("alloca i64")
        f.store("i64", "0", counter, 8)
        f.store("i8", f.load("i8", self.address(node.inputs[1])), self.address(condition))
        self._open_scans(node, scans)
        head, inside, after = f.fresh_label("iterate"), f.fresh_label("body"), f.fresh_label("finished")
        f.branch(head)
        f.label(head)
        self._forget(varying)
        now = f.load("i64", counter, 8)
        goes_on = f.compare("ne", f.load("i8", self.address(condition)), 0, "i8")
        more = f.value(f"and i1 {goes_on}, {f.compare('slt', now, trips)}")
        f.branch_if(more, inside, after)
        f.label(inside)
        with self.region():
            self.defined |= varying
            f.store("i64", now, self.address(iteration))
            self.leave_if_failed(f.call("i32", self.service("cancelled"), "ptr %ctx"))
            self.nodes(body.nodes)
            for inner, outer in scans:
                self._append(node, inner, outer, now)
            again = f.load("i8", self.address(body.outputs[0]))
            self._carry(body.outputs[1 : 1 + op.carried], carried, varying, self.plan.staging[node])
            f.store("i8", again, self.address(condition))
            f.store("i64", f.value(f"add i64 {now}, 1"), counter, 8)
        f.branch(head)
        f.label(after)
        self._finish_loop(node, carried, varying, fresh, now)

    def _varying(self, node: Node) -> set[str]:
        """The variables that the body's carried inputs define."""
        names: set[str] = set()
        for value in node.op.body.inputs[2 : 2 + node.op.carried]:
            if isinstance(value.type, TensorType):
                names |= {s.name for d in value.shape for s in dims.symbols(d)}
        return names - self.defined

    def _carry(self, values: Sequence[Value], carried: Sequence[Value], varying: set[str],
               staging: Sequence[Location | None]) -> None:
        """Copies values into the memory of the carried ones, by way of `staging` where that would overwrite
        what is still to be read; the sizes follow."""
        locations = self.plan.locations
        sources = [
            None if locations[value] == locations[into] else self._source(value, stage)
            for value, into, stage in zip(values, carried, staging)
        ]
        shapes = [
            [self.dimension(d) for d in v.shape] if isinstance(v.type, TensorType) else [] for v in values
        ]
        for sizes, into in zip(shapes, carried):
            for number, size in zip(sizes, into.shape if sizes else ()):
                if isinstance(size, Dim) and str(size) in varying:
                    self.set_variable(str(size), number)
        self._forget(varying)
        for source, into in zip(sources, carried):
            if source is None:
                continue
            if isinstance(into.type, TensorType):
                self.copy(self.make(into), *source)
            else:
                self._copy_object(locations[into], source[0], hold=True)

    def _source(self, value: Value, stage: Location | None) -> tuple[str, str]:
        """(address, bytes) of a value, of its copy when there is a stage for it."""
        if not isinstance(value.type, TensorType):
            source = self.address(value)
            if stage is not None:
                self._copy_object(stage, source, hold=True)
                source = self.at(stage)
            return source, str(abi.VALUE_BYTES)
        source, nbytes = self.address(value), self.size(value.type.nbytes)
        if stage is not None:
            copied = self.obtain(stage, value.type.nbytes)
            self.copy(copied, source, nbytes)
            source = copied
        return source, nbytes

    def _open_scans(self, node: Node, scans: Sequence[tuple[Value, Value]]) -> None:
        """Memory for collected values whose number and size are known, and zero for the sizes that
        iterations will tell."""
        for inner, outer in scans:
            if self.plan.locations[outer].kind != "heap":
                self.make(outer)
            for size in outer.shape[1:]:
                if isinstance(size, Dim) and str(size) not in self.defined and size.terms[0][0]:
                    self.set_variable(str(size), "0")

    def _append(self, node: Node, inner: Value, outer: Value, now: str) -> None:
        """Stores an iteration's value as row `now` of the collected one."""
        f, location = self.f, self.plan.locations[outer]
        for found, size in zip(inner.shape, outer.shape[1:]):
            if not isinstance(size, Dim) or str(size) in self.defined:
                continue
            slot, number = self.slot("dims", self.tables.variable(str(size))), self.dimension(found)
            changed = f.compare("ne", f.load("i64", slot, 8), number)
            later = f.compare("ne", now, 0)
            self.fail_if(f.value(f"and i1 {changed}, {later}"), node.origin, "dims_mismatch", number)
            f.store("i64", number, slot, 8)
        row = self.size(inner.type.nbytes)
        if location.kind == "heap":
            total = f.mul(f.value(f"add i64 {now}, 1"), row)
            pointer = f.call(
                "ptr", self.service("buffer"), "ptr %ctx", f"i32 {location.index}", f"i64 {total}"
            )
            self.leave_if(f.value(f"icmp eq ptr {pointer}, null"))
            f.store("ptr", pointer, self.slot("values", location.slot), 8)
        self.copy(f.offset(self.address(outer), f.mul(now, row)), self.address(inner), row)

    def _finish_loop(
        self, node: Node, carried: Sequence[Value], varying: set[str], fresh: set[str], now: str
    ) -> None:
        """The sizes of the loop's results."""
        self._give_shapes(carried, node, fresh)
        for outer in node.outputs[node.op.carried :]:
            count = outer.shape[0]
            if isinstance(count, Dim) and str(count) in fresh:
                self.set_variable(str(count), now)
            location = self.plan.locations[outer]
            if location.kind == "heap":  # there may have been no iteration to make it
                pointer = self.f.call(
                    "ptr", self.service("buffer"), "ptr %ctx", f"i32 {location.index}", "i64 0"
                )
                self.leave_if(self.f.value(f"icmp eq ptr {pointer}, null"))
                self.f.store("ptr", pointer, self.slot("values", location.slot), 8)
        self.defined |= fresh
        self._forget(fresh | varying)

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
            wrong = self.f.compare("slt" if need.kind == "least" else "ne", got, expected)
            if need.kind == "broadcast":
                wrong = self.f.value(f"and i1 {wrong}, {self.f.compare('ne', got, 1)}")
            expects = need.kind != "least" and need.code in ("dims_mismatch", "invalid_reshape")
            self.fail_if(wrong, need.origin, need.code, got, expected if expects else None)
