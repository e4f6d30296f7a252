"""What `bind` and `run` are written with: the context's fields, shape arithmetic, failures.

A dimension is computed from the variables in the context where it is needed, once on every path, and so are
the parts that it has in common with others: a model has thousands of sizes, made of a few dozen. A sum
of many terms is often a product of sums, which is fewer instructions. While a size is made from it, each
addition and multiplication notes overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import partial, reduce
from typing import NamedTuple

from ...ir import dims
from ...ir.dims import Dim, Dimension, Monomial, Symbol
from ...records import dataclass
from .. import abi
from ..text.emitter import Function

MANY = 3  # terms of a sum that is computed as a product where it is one: bytes of lengths and pixels


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


class Known(NamedTuple):
    """A register, and whether its overflow fails the run."""

    number: str
    checked: bool


class FunctionBody:
    """What bind and run share: dimensions, failures, the context's fields."""

    def __init__(self, f: Function, tables: Tables):
        self.f, self.tables = f, tables
        self.known: dict[Dim, Known] = {}  # computed so far on every path to here
        self.overflows: list[str] | None = None  # what tells of overflow, while sizes are checked

    def context(self, name: str) -> str:
        """A pointer field of the context."""
        return self.f.hoisted(f"load ptr, ptr {self._at('%ctx', abi.CONTEXT[name])}, align 8", "ptr")

    def service(self, name: str) -> str:
        """A function of the runtime."""
        return self.f.hoisted(f"load ptr, ptr {self._at(self.context('api'), abi.API[name])}, align 8", "ptr")

    def _at(self, pointer: str, offset: int) -> str:
        if offset == 0:
            return pointer
        return self.f.hoisted(f"getelementptr i8, ptr {pointer}, i64 {offset}", "ptr")

    def slot(self, array: str, index: int) -> str:
        """The address of an 8-byte entry of one of the context's arrays."""
        return self._at(self.context(array), 8 * index)

    def input_field(self, index: int, name: str) -> str:
        """Read where it is used: thousands of inputs, each in a register from the entry on, take LLVM a time
        square in their number."""
        address = self.f.offset("%inputs", index * abi.VALUE_BYTES + abi.VALUE[name])
        return self.f.load("ptr", address, 8)

    # Dimensions ----------------------------------------------------------------------------------

    def dimension(self, value: Dimension) -> str:
        """The number that a dimension has in this run, as an i64."""
        if isinstance(value, int):
            return str(value)
        known = self.known.get(value)
        if known is None or (self.overflows is not None and not known.checked):
            known = self.known[value] = Known(self._computed(value), self.overflows is not None)
        return known.number

    def _computed(self, value: Dim) -> str:
        """Of its parts, which other dimensions may have in common with it."""
        atom = dims.single_atom(value)
        if atom is not None:
            return self._atom(atom)
        if len(value.terms) == 1 and value.terms[0][1] == 1:
            factors = [dims.of_atom(atom) for atom, power in value.terms[0][0] for _ in range(power)]
            return reduce(partial(self._arithmetic, "mul"), map(self.dimension, factors))
        if len(value.terms) >= MANY:
            factor, inner, rest = dims.nested(value)
            if factor != 1:
                product = self._arithmetic("mul", self.dimension(factor), self.dimension(inner))
                return product if rest == 0 else self._arithmetic("add", product, self.dimension(rest))
        return reduce(partial(self._arithmetic, "add"), (self._term(*term) for term in value.terms))

    def _term(self, monomial: Monomial, coefficient: int) -> str:
        if not monomial:
            return str(coefficient)
        factor = self.dimension(Dim(((monomial, 1),)))
        return factor if coefficient == 1 else self._arithmetic("mul", factor, str(coefficient))

    def _arithmetic(self, operation: str, a: str, b: str) -> str:
        """a + b or a * b; while sizes are checked, overflow is noted."""
        if self.overflows is None:
            return self.f.binary(operation, a, b, "i64")
        intrinsic = self.f.text.declare(f"llvm.s{operation}.with.overflow.i64", "{i64, i1}", ["i64", "i64"])
        pair = self.f.value(f"call {{i64, i1}} {intrinsic}(i64 {a}, i64 {b})")
        self.overflows.append(self.f.value(f"extractvalue {{i64, i1}} {pair}, 1", "i1"))
        return self.f.value(f"extractvalue {{i64, i1}} {pair}, 0", "i64")

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
                return f.cast("zext", f.compare("eq" if atom.kind == "eq" else "slt", a, b), "i64")
            case "product":
                return self._arithmetic("mul", a, b)
            case "broadcast":
                return f.select(f.compare("eq", a, 1), "i64", b, a)
        if isinstance(atom.right, int) and atom.right > 0:
            return self._divided_by_number(atom.kind, a, atom.right, dims.at_least(atom.left, 0))
        return self._divided(atom.kind, a, b)

    def _divided_by_number(self, kind: str, a: str, b: int, positive: bool) -> str:
        """a // b, a % b or a / b towards zero for a positive number, which most divisors are. positive:
        whether a is never below zero."""
        f, exponent = self.f, b.bit_length() - 1
        if kind != "truncdiv" and b == 1 << exponent:
            if kind == "mod":
                return f.binary("and", a, b - 1, "i64")
            return f.binary("ashr", a, exponent, "i64")
        if positive or kind == "truncdiv":
            quotient = f.binary("udiv" if positive else "sdiv", a, b, "i64")
            return f.sub(a, f.mul(quotient, b)) if kind == "mod" else quotient
        quotient = f.binary("sdiv", a, b, "i64")
        rest = f.sub(a, f.mul(quotient, b))
        below = f.compare("slt", rest, 0)
        if kind == "mod":
            return f.select(below, "i64", f.add(rest, b), rest)
        return f.add(quotient, f.cast("sext", below, "i64"))

    def _divided(self, kind: str, a: str, b: str) -> str:
        """The same where only the run knows b; 0 where that is 0."""
        f = self.f
        zero = f.compare("eq", b, 0)
        divisor = f.select(zero, "i64", "1", b)
        lowest = f.compare("eq", divisor, -1)  # the most negative number by -1 would trap
        divisor = f.select(lowest, "i64", "1", divisor)
        quotient: str = f.binary("sdiv", a, divisor, "i64")
        if kind != "truncdiv":
            rest = f.sub(a, f.mul(quotient, divisor))
            against = f.binary("xor", rest, divisor, "i64")
            down = f.binary("and", f.compare("ne", rest, 0), f.compare("slt", against, 0), "i1")
            quotient = f.select(down, "i64", f.sub(quotient, 1), quotient)
        quotient = f.select(lowest, "i64", f.sub("0", a), quotient)
        if kind == "mod":
            return f.select(zero, "i64", "0", f.sub(a, f.mul(quotient, b)))
        return f.select(zero, "i64", "0", quotient)

    @contextmanager
    def overflow_checked(self, origin: str) -> Iterator[None]:
        """Sizes that are computed inside fail the run where they overflow."""
        self.overflows = []
        yield
        overflows, self.overflows = self.overflows, None
        if overflows:
            some = reduce(lambda a, b: self.f.binary("or", a, b, "i1"), overflows)
            self.fail_if(some, origin, "size_overflow")

    def set_variable(self, name: str, value: str) -> None:
        self.f.store("i64", value, self.slot("dims", self.tables.variable(name)), 8)

    # Failure -------------------------------------------------------------------------------------

    def fail_if(
        self,
        condition: str,
        origin: str,
        code: str,
        value: str = "0",
        expected: str | None = None,
        least: bool = False,
    ) -> None:
        """Records an error of the node and leaves, where the condition holds. least: more than what is
        expected fits too."""
        with self.f.when(condition):
            status = abi.ERRORS[code] + (abi.AT_LEAST if least else 0)
            what = f"ptr %ctx, i32 {self.tables.node(origin)}, i32 {status}"
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
