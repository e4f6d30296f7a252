"""Writes LLVM IR as text: the one emitter behind every kernel and the functions that call them.

`Text` collects functions, declarations and tables; `Function` appends instructions to one of them and knows
how to loop, branch and address memory. Values are strings as LLVM writes them (`%7`, `42`); what an
instruction gives is a `Reg` that knows its type, so that the next one need not restate it, and operands that
do not agree are a TypeError where they are written. Constants (`0`, `zeroinitializer`) take the type of what
they meet. Kernels are written in their final form; no IR pass runs over them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, reduce
from typing import Generic, TypeVar, cast

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
    """The LLVM type of an element in memory, where a bool is a byte."""
    return "i8" if dtype == "bool" else scalar_type(dtype)


def vector_type(element: str, lanes: int) -> str:
    """`<16 x float>`, or the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@cache
def shape_of(type_: str) -> tuple[str, int]:
    """(element, lanes) of a type: the opposite of `vector_type`."""
    if not type_.startswith("<"):
        return type_, 1
    lanes, _, element = type_[1:-1].partition(" x ")
    return element, int(lanes)


def like(type_: str, element: str) -> str:
    """As many lanes of another element type."""
    return vector_type(element, shape_of(type_)[1])


# Values ------------------------------------------------------------------------------------------


class Reg(str):
    """A value as LLVM writes it, which knows its type ("" where nobody said)."""

    __slots__ = ("type",)  # there are hundreds of thousands of them
    type: str

    def __new__(cls, name: str, type_: str) -> Reg:
        value = str.__new__(cls, name)
        value.type = type_
        return value

    @property
    def typed(self) -> str:
        return f"{self.type} {self}"


def literal(value: float | int | bool, dtype: str) -> Reg:
    """One element of a constant as LLVM writes it; floats by their bits, so that they are exact."""
    if dtype in ("float32", "float64"):
        text = "0x" + struct.pack(">d", float(value)).hex().upper()
    elif dtype in ("float16", "bfloat16"):
        import numpy as np

        bits = np.asarray(value, np.float64).astype(dtypes.numpy_dtype(dtype)).view(np.uint16)
        text = f"0x{'H' if dtype == 'float16' else 'R'}{int(bits):04X}"
    else:
        text = str(int(value))
    return Reg(text, scalar_type(dtype))


def splat(value: float | int | bool, dtype: str, lanes: int) -> Reg:
    """A constant vector of equal elements."""
    one = literal(value, dtype)
    return one if lanes == 1 else Reg(f"splat ({one.typed})", vector_type(one.type, lanes))


def vector_constant(element: str, values: Sequence[int | str]) -> Reg:
    """`<i64 0, i64 1, ...>`"""
    return Reg("<" + ", ".join(f"{element} {v}" for v in values) + ">", vector_type(element, len(values)))


def is_number(value: str | int) -> bool:
    """Whether an integer is known while the text is written."""
    return isinstance(value, int) or value.lstrip("-").isdigit()


def type_of(instruction: str, *values: str | int, default: str = "") -> str:
    """The type that values share; TypeError, naming the instruction, where they do not or none has one."""
    type_ = default
    for value in values:
        if isinstance(value, Reg) and value.type:
            if type_ and type_ != value.type:
                raise TypeError(f"{instruction}: {value} is {value.type}, not {type_}")
            type_ = value.type
    if not type_:
        raise TypeError(f"{instruction}: none of {', '.join(map(str, values))} has a type")
    return type_


Body = TypeVar("Body", bound="Function")


class Text(Generic[Body]):
    """The functions, declarations and constant tables of one kernel or module."""

    def __init__(self, target: Target, kind: type[Body] | None = None):
        self.target = target
        self.kind: type[Function] = kind or Function
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
    ) -> Iterator[Body]:
        """A function being written: `with text.function("tile", ["ptr noalias %a", "i64 %k"]) as f:`"""
        function = cast(Body, self.kind(self))
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

    def __init__(self, index: Reg, carried: Sequence[str]):
        self.index, self.carried = index, list(carried)
        self.following = list(carried)
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
        self._hoisted: dict[str, Reg] = {}

    # Plain instructions ------------------------------------------------------------------------

    def name(self, type_: str = "") -> Reg:
        self._counter += 1
        return Reg(f"%v{self._counter}", type_)

    def value(self, instruction: str, type_: str = "") -> Reg:
        """`%v7 = instruction`, which gives a value of that type; the methods below write most of them."""
        result = self.name(type_)
        self.lines.append(f"  {result} = {instruction}")
        return result

    def statement(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def hoisted(self, instruction: str, type_: str) -> Reg:
        """An instruction of the entry block, written once however often it is asked for."""
        if instruction not in self._hoisted:
            result = self._hoisted[instruction] = self.name(type_)
            self.prologue.append(f"  {result} = {instruction}")
        return self._hoisted[instruction]

    def comment(self, text: str) -> None:
        self.lines.append(f"  ; {text}")

    def binary(self, operation: str, a: str | int, b: str | int, type_: str = "") -> Reg:
        """`operation type a, b`: fadd, and, shl, ..."""
        type_ = type_of(operation, a, b, default=type_)
        return self.value(f"{operation} {type_} {a}, {b}", type_)

    def cast(self, operation: str, value: str, to: str, source: str = "") -> Reg:
        """bitcast, zext, trunc, fpext, sitofp, ...; nothing where a value has the type already."""
        source = type_of(operation, value, default=source)
        return Reg(value, to) if source == to else self.value(f"{operation} {source} {value} to {to}", to)

    def call(self, returns: str, function: str, *arguments: str) -> Reg:
        """`call float @f(float %x)`: arguments are registers, or text with its type."""
        return self.value(f"call {returns} {function}({_arguments(arguments)})", returns)

    def run(self, function: str, *arguments: str) -> None:
        """A call that returns nothing."""
        self.statement(f"call void {function}({_arguments(arguments)})")

    def intrinsic(self, name: str, type_: str, *values: str) -> Reg:
        """An intrinsic overloaded on one type: `intrinsic("fma", "<16 x float>", a, b, c)`. Add fast-math
        flags to none."""
        type_of(name, *values, default=type_)
        function = self.text.declare(f"llvm.{name}.{mangled(type_)}", type_, [type_] * len(values))
        return self.call(type_, function, *(f"{type_} {v}" for v in values))

    # Integers: constants fold here, so static shapes emit no arithmetic.

    def add(self, a: str | int, b: str | int, type_: str = "i64") -> str:
        if is_number(a) and is_number(b):
            return str(int(a) + int(b))
        if str(a) == "0":
            return _word(b)
        return _word(a) if str(b) == "0" else self.binary("add", a, b, type_)

    def sub(self, a: str | int, b: str | int, type_: str = "i64") -> str:
        if is_number(a) and is_number(b):
            return str(int(a) - int(b))
        return _word(a) if str(b) == "0" else self.binary("sub", a, b, type_)

    def mul(self, a: str | int, b: str | int) -> str:
        if is_number(a) and is_number(b):
            return str(int(a) * int(b))
        if "0" in (str(a), str(b)):
            return "0"
        if str(a) == "1":
            return _word(b)
        return _word(a) if str(b) == "1" else self.binary("mul", a, b, "i64")

    def divide(self, a: str | int, b: str | int) -> tuple[str, str]:
        """(a // b, a % b) of i64 with a >= 0 and b > 0; the divisor is a size that is never zero here."""
        if str(b) == "1":
            return _word(a), "0"
        if is_number(a) and is_number(b):
            return str(int(a) // int(b)), str(int(a) % int(b))
        quotient = self.binary("udiv", a, b, "i64")
        return quotient, self.sub(a, self.mul(quotient, b))

    def round_down(self, count: str | int, step: int) -> str:
        """count - count % step, count >= 0."""
        if is_number(count):
            return str(int(count) // step * step)
        if step & (step - 1) == 0:
            return _word(count) if step == 1 else self.binary("and", count, -step, "i64")
        return self.mul(self.divide(count, step)[0], step)

    def minimum(self, a: str | int, b: str | int) -> str:
        if is_number(a) and is_number(b):
            return str(min(int(a), int(b)))
        return self.intrinsic("smin", "i64", _word(a), _word(b))

    def maximum(self, a: str | int, b: str | int) -> str:
        if is_number(a) and is_number(b):
            return str(max(int(a), int(b)))
        return self.intrinsic("smax", "i64", _word(a), _word(b))

    # Conditions --------------------------------------------------------------------------------

    def compare(self, predicate: str, a: str | int, b: str | int, type_: str = "") -> Reg:
        """An icmp; `predicate` as LLVM spells it (eq, ne, slt, sle, ult, ...). Two numbers are i64."""
        known = any(isinstance(x, Reg) and x.type for x in (a, b))
        type_ = type_of(predicate, a, b, default=type_ if known or type_ else "i64")
        return self.value(f"icmp {predicate} {type_} {a}, {b}", like(type_, "i1"))

    def select(self, condition: str, type_: str, a: str, b: str) -> Reg:
        """a where the i1, or each lane of the mask, holds, else b."""
        type_ = type_of("select", a, b, default=type_)
        kind = getattr(condition, "type", "") or "i1"
        return self.value(f"select {kind} {condition}, {type_} {a}, {type_} {b}", type_)

    def invert(self, condition: str) -> Reg:
        """Where the i1 or the mask does not hold."""
        type_ = getattr(condition, "type", "") or "i1"
        return self.binary("xor", condition, splat(True, "bool", shape_of(type_)[1]), type_)

    def all_of(self, *conditions: str) -> str:
        """Whether all i1 hold; true of none."""
        return reduce(lambda a, b: self.binary("and", a, b, "i1"), conditions) if conditions else "true"

    # Lanes -------------------------------------------------------------------------------------

    def shuffle(self, a: str, b: str, picks: Sequence[int | None], type_: str = "") -> Reg:
        """The lanes of a and b, counted one after the other, that picks name; any value for None."""
        type_ = type_of("shufflevector", a, b, default=type_)
        order = ", ".join(f"i32 {'poison' if p is None else p}" for p in picks)
        return self.value(
            f"shufflevector {type_} {a}, {type_} {b}, <{len(picks)} x i32> <{order}>",
            f"<{len(picks)} x {shape_of(type_)[0]}>",
        )

    def extract(self, vector: str, lane: int | str, type_: str = "") -> Reg:
        """One lane; a number, or a register of any integer type."""
        type_ = type_of("extractelement", vector, default=type_)
        place = lane.typed if isinstance(lane, Reg) and lane.type else f"i64 {lane}"
        return self.value(f"extractelement {type_} {vector}, {place}", shape_of(type_)[0])

    def insert(self, vector: str, element: str, lane: int, type_: str = "") -> Reg:
        """The vector with that lane replaced."""
        type_ = type_of("insertelement", vector, default=type_)
        word = type_of("insertelement", element, default=shape_of(type_)[0])
        return self.value(f"insertelement {type_} {vector}, {word} {element}, i64 {lane}", type_)

    def broadcast(self, element: str, value: str, lanes: int) -> Reg:
        """A vector of equal lanes."""
        element = type_of("broadcast", value, default=element)
        if lanes == 1:
            return Reg(value, element)
        vector = vector_type(element, lanes)
        first = self.insert("poison", value, 0, vector)
        order = f"<{lanes} x i32> zeroinitializer"
        return self.value(f"shufflevector {vector} {first}, {vector} poison, {order}", vector)

    # Memory ------------------------------------------------------------------------------------

    def offset(self, pointer: str, nbytes: str | int) -> str:
        """pointer + nbytes"""
        type_of("getelementptr", pointer, default="ptr")
        type_of("getelementptr", nbytes, default="i64")
        if str(nbytes) == "0":
            return pointer
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {nbytes}", "ptr")

    def element(self, pointer: str, index: str | int, size: int) -> str:
        """The address of element `index` of an array of elements of `size` bytes."""
        return self.offset(pointer, self.mul(index, size))

    def load(self, type_: str, pointer: str, align: int = 1) -> Reg:
        type_of("load", pointer, default="ptr")
        return self.value(f"load {type_}, ptr {pointer}, align {align}", type_)

    def store(self, type_: str, value: str, pointer: str, align: int = 1) -> None:
        type_of("store", pointer, default="ptr")
        type_of("store", value, default=type_)
        self.statement(f"store {type_} {value}, ptr {pointer}, align {align}")

    def keep_order(self) -> None:
        """What reads or writes memory stays on its side of this place when LLVM orders instructions."""
        self.statement('call void asm sideeffect "", "~{memory}"()')

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
        type_of("br", condition, default="i1")
        self.statement(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def phi(self, type_: str, *incoming: tuple[str, str]) -> Reg:
        """incoming: (value, label)."""
        type_of("phi", *(value for value, _ in incoming), default=type_)
        return self.value(f"phi {type_} " + ", ".join(f"[{v}, %{block}]" for v, block in incoming), type_)

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
        certain = is_number(start) and is_number(stop) and int(start) < int(stop)
        if certain:
            self.branch(body)
        else:
            self.branch_if(self.compare("slt", start, stop), body, after)
        self.label(body)
        index = self.name("i64")
        position = len(self.lines)
        names = [self.name(type_) for type_, _ in carried]
        self.lines.extend([""] * (1 + len(carried)))  # the phis, known when the body is
        loop = Loop(index, names)
        yield loop
        following = self.binary("add nsw", index, step)
        latch = self.block
        self.lines[position] = f"  {index} = phi i64 [{start}, %{before}], [{following}, %{latch}]"
        for k, ((type_, initial), name, value) in enumerate(zip(carried, names, loop.following, strict=True)):
            type_of("phi", initial, value, default=type_)
            self.lines[position + 1 + k] = (
                f"  {name} = phi {type_} [{initial}, %{before}], [{value}, %{latch}]"
            )
        self.branch_if(self.compare("slt", following, stop), body, after)
        self.label(after)
        for (type_, initial), value in zip(carried, loop.following, strict=True):
            incoming = [(value, latch)] if certain else [(value, latch), (initial, before)]
            loop.results.append(self.phi(type_, *incoming))

    def repeat(
        self,
        state: Sequence[tuple[str, str]],
        condition: Callable[[Sequence[Reg]], str],
        step: Callable[[Sequence[Reg]], Sequence[str]],
    ) -> Sequence[Reg]:
        """The state after stepping while the condition, an i1, holds; state: (type, initial value)."""
        before = self.block
        head, body, after = (self.fresh_label(name) for name in ("while", "do", "end"))
        self.branch(head)
        self.label(head)
        place = len(self.lines)
        names = [self.name(type_) for type_, _ in state]
        self.lines.extend([""] * len(state))
        self.branch_if(condition(names), body, after)
        self.label(body)
        following = step(names)
        for k, ((type_, first), name, value) in enumerate(zip(state, names, following, strict=True)):
            type_of("phi", first, value, default=type_)
            self.lines[place + k] = f"  {name} = phi {type_} [{first}, %{before}], [{value}, %{self.block}]"
        self.branch(head)
        self.label(after)
        return names

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What follows runs only where the i1 holds."""
        then, after = self.fresh_label("then"), self.fresh_label("after")
        self.branch_if(condition, then, after)
        self.label(then)
        yield
        self.branch(after)
        self.label(after)

    def either(
        self, condition: str, type_: str, one: Callable[[], Sequence[str]], other: Callable[[], Sequence[str]]
    ) -> list[Reg]:
        """The values of that type that `one` computes where the i1 holds, else those of `other`."""
        labels, after = [self.fresh_label(name) for name in ("then", "else")], self.fresh_label("after")
        self.branch_if(condition, *labels)
        found = []
        for label, compute in zip(labels, (one, other)):
            self.label(label)
            values = compute()
            found.append([(value, self.block) for value in values])
            self.branch(after)
        self.label(after)
        return [self.phi(type_, *incoming) for incoming in zip(*found, strict=True)]


@cache
def mangled(type_: str) -> str:
    """LLVM's suffix of an overloaded intrinsic: `<16 x float>` → v16f32."""
    element, lanes = shape_of(type_)
    if lanes > 1 or type_.startswith("<"):
        return f"v{lanes}{mangled(element)}"
    return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}.get(type_, type_)


def _word(value: str | int) -> str:
    return value if isinstance(value, str) else str(value)


def _arguments(values: Sequence[str]) -> str:
    return ", ".join(value.typed if isinstance(value, Reg) and value.type else value for value in values)
