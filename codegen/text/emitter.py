"""Writes LLVM IR as text: the one emitter behind every kernel and the functions that call them.

`Text` collects functions, declarations and tables; `Function` appends instructions to one of them and knows
how to loop, branch and address memory. SSA values are plain strings (`%7`, `42`, `zeroinitializer`) and types
are LLVM's words, so a kernel generator reads like the loop it emits. Kernels are written in their final form;
no IR pass runs over them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...ir import dtypes
from ...target import Target

ENTRY = "KERNEL"  # how kernel text calls its entry; helpers are `KERNEL.tile14` and the like

_FLOAT_NAMES = {"float64": "double", "float32": "float", "float16": "half", "bfloat16": "bfloat"}


def scalar_type(dtype: str) -> str:
    """LLVM's type for computing with one element; bool is i1 there and a byte in memory."""
    if dtype in _FLOAT_NAMES:
        return _FLOAT_NAMES[dtype]
    return "i1" if dtype == "bool" else f"i{8 * dtypes.itemsize(dtype)}"


def memory_type(dtype: str) -> str:
    return "i8" if dtype == "bool" else scalar_type(dtype)


def vector_type(element: str, lanes: int) -> str:
    """`<16 x float>`, or the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def literal(value: float | int | bool, dtype: str) -> str:
    """One element of a constant as LLVM writes it; floats by their bits, so that they are exact."""
    if dtype in ("float32", "float64"):
        return "0x" + struct.pack(">d", float(value)).hex().upper()
    if dtype in ("float16", "bfloat16"):
        import numpy as np

        bits = np.asarray(value, np.float64).astype(dtypes.numpy_dtype(dtype)).view(np.uint16)
        return f"0x{'H' if dtype == 'float16' else 'R'}{int(bits):04X}"
    return str(int(value))


def splat(value: float | int | bool, dtype: str, lanes: int) -> str:
    """A constant vector of equal elements."""
    one = literal(value, dtype)
    return one if lanes == 1 else f"splat ({scalar_type(dtype)} {one})"


class Text:
    """The functions, declarations and constant tables of one kernel or module."""

    def __init__(self, target: Target):
        self.target = target
        self.declarations: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.functions: list[str] = []

    def declare(self, name: str, returns: str, parameters: Sequence[str]) -> str:
        """Declares an external function or intrinsic once; returns `@name`."""
        self.declarations[name] = f"declare {returns} @{name}({', '.join(parameters)})"
        return f"@{name}"

    def table(self, element: str, values: Sequence[str], name: str) -> str:
        """A constant array; returns `@name`."""
        body = ", ".join(f"{element} {v}" for v in values)
        self.tables[name] = (
            f"@{name} = internal unnamed_addr constant [{len(values)} x {element}] [{body}], align 64"
        )
        return f"@{name}"

    @contextmanager
    def function(
        self,
        name: str,
        parameters: Sequence[str],
        returns: str = "void",
        linkage: str = "internal",
        attributes: str = "nounwind",
    ) -> Iterator[Function]:
        """A function being written: `with text.function("tile", ["ptr noalias %a", "i64 %k"]) as f:`"""
        function = Function(self)
        yield function
        header = f"define {linkage} {returns} @{name}({', '.join(parameters)}) {attributes} {{"
        lines = [header.replace("  ", " "), "entry:", *function.prologue, *function.lines, "}"]
        self.functions.append("\n".join(lines))

    def __str__(self) -> str:
        return (
            "\n\n".join(
                [
                    *self.tables.values(),
                    *self.functions,
                    *(self.declarations[k] for k in sorted(self.declarations)),
                ]
            )
            + "\n"
        )


class Loop:
    """A loop being written: its index, the values carried into this iteration, and those after the loop."""

    def __init__(self, index: str, carried: list[str]):
        self.index, self.carried = index, carried
        self.following: list[str] = list(carried)
        self.results: list[str] = []

    def carry(self, *values: str) -> None:
        """Sets what the next iteration gets as `carried`."""
        self.following = list(values)


class Function:
    """The body of one function. Every method that computes returns the name of its result."""

    def __init__(self, text: Text):
        self.text, self.target = text, text.target
        self.lines: list[str] = []
        # entry-block instructions that dominate everything, such as argument loads
        self.prologue: list[str] = []
        self.block = "entry"
        self._counter = 0
        self._hoisted: dict[str, str] = {}

    # Plain instructions ------------------------------------------------------------------------

    def name(self) -> str:
        self._counter += 1
        return f"%v{self._counter}"

    def value(self, instruction: str) -> str:
        """`%v7 = instruction`"""
        result = self.name()
        self.lines.append(f"  {result} = {instruction}")
        return result

    def statement(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def hoisted(self, instruction: str) -> str:
        """An instruction of the entry block, written once however often it is asked for."""
        if instruction not in self._hoisted:
            result = self._hoisted[instruction] = self.name()
            self.prologue.append(f"  {result} = {instruction}")
        return self._hoisted[instruction]

    def comment(self, text: str) -> None:
        self.lines.append(f"  ; {text}")

    def call(self, returns: str, function: str, *arguments: str) -> str:
        """`call float @f(float %x)`: arguments are "type value"."""
        return self.value(f"call {returns} {function}({', '.join(arguments)})")

    def intrinsic(self, name: str, type_: str, *values: str) -> str:
        """An intrinsic overloaded on one type: `intrinsic("fma", "<16 x float>", a, b, c)`. Add fast-math
        flags to none."""
        function = self.text.declare(f"llvm.{name}.{mangled(type_)}", type_, [type_] * len(values))
        return self.call(type_, function, *(f"{type_} {v}" for v in values))

    # Integers: constants fold here, so static shapes emit no arithmetic.

    def add(self, a: str | int, b: str | int, type_: str = "i64") -> str:
        if _is_number(a) and _is_number(b):
            return str(int(a) + int(b))
        if str(a) == "0":
            return str(b)
        return str(a) if str(b) == "0" else self.value(f"add {type_} {a}, {b}")

    def sub(self, a: str | int, b: str | int, type_: str = "i64") -> str:
        if _is_number(a) and _is_number(b):
            return str(int(a) - int(b))
        return str(a) if str(b) == "0" else self.value(f"sub {type_} {a}, {b}")

    def mul(self, a: str | int, b: str | int, type_: str = "i64") -> str:
        if _is_number(a) and _is_number(b):
            return str(int(a) * int(b))
        if "0" in (str(a), str(b)):
            return "0"
        if str(a) == "1":
            return str(b)
        return str(a) if str(b) == "1" else self.value(f"mul {type_} {a}, {b}")

    def divide(self, a: str | int, b: str | int) -> tuple[str, str]:
        """(a // b, a % b) of i64 with a >= 0 and b > 0; the divisor is a size that is never zero here."""
        if str(b) == "1":
            return str(a), "0"
        if _is_number(a) and _is_number(b):
            return str(int(a) // int(b)), str(int(a) % int(b))
        quotient = self.value(f"udiv i64 {a}, {b}")
        return quotient, self.sub(a, self.mul(quotient, b))

    def minimum(self, a: str | int, b: str | int) -> str:
        if _is_number(a) and _is_number(b):
            return str(min(int(a), int(b)))
        return self.intrinsic("smin", "i64", str(a), str(b))

    def maximum(self, a: str | int, b: str | int) -> str:
        if _is_number(a) and _is_number(b):
            return str(max(int(a), int(b)))
        return self.intrinsic("smax", "i64", str(a), str(b))

    def compare(self, predicate: str, a: str | int, b: str | int, type_: str = "i64") -> str:
        """An icmp; `predicate` as LLVM spells it (eq, ne, slt, sle, ult, ...)."""
        return self.value(f"icmp {predicate} {type_} {a}, {b}")

    def select(self, condition: str, type_: str, a: str, b: str) -> str:
        kind = "i1"
        return self.value(f"select {kind} {condition}, {type_} {a}, {type_} {b}")

    # Memory ------------------------------------------------------------------------------------

    def offset(self, pointer: str, nbytes: str | int) -> str:
        """pointer + nbytes"""
        return pointer if str(nbytes) == "0" else self.value(f"getelementptr i8, ptr {pointer}, i64 {nbytes}")

    def element(self, pointer: str, index: str | int, size: int) -> str:
        """The address of element `index` of an array of elements of `size` bytes."""
        return self.offset(pointer, self.mul(index, size))

    def load(self, type_: str, pointer: str, align: int = 1) -> str:
        return self.value(f"load {type_}, ptr {pointer}, align {align}")

    def store(self, type_: str, value: str, pointer: str, align: int = 1) -> None:
        self.statement(f"store {type_} {value}, ptr {pointer}, align {align}")

    def broadcast(self, element: str, value: str, lanes: int) -> str:
        """A vector of equal lanes."""
        if lanes == 1:
            return value
        vector = vector_type(element, lanes)
        first = self.value(f"insertelement {vector} poison, {element} {value}, i64 0")
        return self.value(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer")

    # Control flow ------------------------------------------------------------------------------

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def fresh_label(self, hint: str) -> str:
        self._counter += 1
        return f"{hint}{self._counter}"

    def branch(self, label: str) -> None:
        self.statement(f"br label %{label}")

    def branch_if(self, condition: str, then: str, otherwise: str) -> None:
        self.statement(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def phi(self, type_: str, *incoming: tuple[str, str]) -> str:
        """incoming: (value, label)."""
        return self.value(f"phi {type_} " + ", ".join(f"[{v}, %{block}]" for v, block in incoming))

    @contextmanager
    def loop(
        self, start: str | int, stop: str | int, step: str | int = 1, carried: Sequence[tuple[str, str]] = ()
    ) -> Iterator[Loop]:
        """for index in range(start, stop, step), step > 0. `carried` are (type, initial value) of what
        iterations hand on:

            with f.loop(0, k, carried=[("float", "0.0")]) as loop:
                loop.carry(f.value(f"fadd float {loop.carried[0]}, {x}"))
            total, = loop.results
        """
        before, body, after = self.block, self.fresh_label("loop"), self.fresh_label("done")
        certain = _is_number(start) and _is_number(stop) and int(start) < int(stop)
        if certain:
            self.branch(body)
        else:
            self.branch_if(self.compare("slt", start, stop), body, after)
        self.label(body)
        index = self.name()
        position = len(self.lines)
        names = [self.name() for _ in carried]
        self.lines.extend([""] * (1 + len(carried)))  # the phis, known when the body is
        loop = Loop(index, names)
        yield loop
        following = self.value(f"add nsw i64 {index}, {step}")
        latch = self.block
        self.lines[position] = f"  {index} = phi i64 [{start}, %{before}], [{following}, %{latch}]"
        for k, ((type_, initial), name, value) in enumerate(zip(carried, names, loop.following, strict=True)):
            self.lines[position + 1 + k] = (
                f"  {name} = phi {type_} [{initial}, %{before}], [{value}, %{latch}]"
            )
        self.branch_if(self.compare("slt", following, stop), body, after)
        self.label(after)
        for (type_, initial), value in zip(carried, loop.following, strict=True):
            incoming = [(value, latch)] if certain else [(value, latch), (initial, before)]
            loop.results.append(self.phi(type_, *incoming))

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What follows runs only where the i1 holds."""
        then, after = self.fresh_label("then"), self.fresh_label("after")
        self.branch_if(condition, then, after)
        self.label(then)
        yield
        self.branch(after)
        self.label(after)


def mangled(type_: str) -> str:
    """LLVM's suffix of an overloaded intrinsic: `<16 x float>` → v16f32."""
    if type_.startswith("<"):
        lanes, element = type_[1:-1].split(" x ")
        return f"v{lanes}{mangled(element)}"
    return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}.get(type_, type_)


def _is_number(value: str | int) -> bool:
    return isinstance(value, int) or value.lstrip("-").isdigit()
