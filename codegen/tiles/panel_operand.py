"""The panel operand of a register tile: where it lies, and how its elements are loaded.

stored              a step of k takes
as numbers          [vectors][lanes]; narrower ones are widened as they are loaded
for dot products    [vectors][lanes][group]: `group` neighbours along k make one lane (`Tile.dot`)

Weights that stay stored as codes or halves have panels of their own: `stored_form.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir import dtypes
from ...records import dataclass
from ...target import LINE
from ..text.conversion import cast, to_computed
from ..text.emitter import Function, memory_type, vector_type
from ..text.memory import Count
from ..text.vectors import Vectors


@dataclass(frozen=True)
class Ahead:
    """Memory to fetch while a tile multiplies, such as its share of the next panel: `step` bytes in each step
    of k, one after the other; `lines` of the cache if only the run knows the step."""

    pointer: str
    step: int | str
    lines: int = 1

    @property
    def parameters(self) -> list[str]:
        """Of a function that is told of it."""
        return [f"ptr {self.pointer}", *([f"i64 {self.step}"] if isinstance(self.step, str) else [])]

    def fetch(self, f: Function) -> None:
        """Those of one step."""
        lines = self.lines if isinstance(self.step, str) else -(-self.step // LINE)
        for line in range(lines):
            prefetch_line(f, f.offset(self.pointer, line * LINE))

    def after(self, f: Function, steps: int | str) -> Ahead:
        """What is left after so many steps."""
        return replace(self, pointer=f.offset(self.pointer, f.mul(steps, self.step)))


@dataclass(frozen=True)
class Panel:
    """`step` bytes from one step of k to the next; None: the panel is packed, and begins at a multiple of 64
    bytes. `columns`: how many are in memory, where it is not. `prefetch`: bytes ahead of its lines to fetch;
    `ahead`: memory elsewhere."""

    pointer: str
    step: int | str | None = None
    columns: Count = None
    prefetch: int | str | None = None
    ahead: Ahead | None = None

    @property
    def pointers(self) -> list[str]:
        """Those that a loop along k carries."""
        return [self.pointer] if self.ahead is None else [self.pointer, self.ahead.pointer]

    def after(self, f: Function, steps: int | str, step: int) -> Panel:
        """The packed panel, of so many bytes a step, after some steps."""
        ahead = None if self.ahead is None else self.ahead.after(f, steps)
        return replace(self, pointer=f.offset(self.pointer, f.mul(steps, step)), ahead=ahead)

    def at(self, pointers: Sequence[str]) -> Panel:
        """The panel from where these pointers are."""
        ahead = None if self.ahead is None else replace(self.ahead, pointer=pointers[1])
        return replace(self, pointer=pointers[0], ahead=ahead)


def load_group(f: Function, dtype: str, group: int, lanes: int, pointer: str, count: Count) -> str:
    """`group` neighbours in memory in every lane: <lanes * group x dtype>. Where only the first `count` of
    them are there, a number or an i64 of the run above 0, the others are zero and not read."""
    size, word = dtypes.itemsize(dtype), f"i{8 * group * dtypes.itemsize(dtype)}"
    element, whole = memory_type(dtype), vector_type(word, lanes)
    value: str
    if count is None:
        value = f.load(word, pointer, size)
    else:
        bits, value = f"i{8 * size}", "0"
        for k in range(group):
            if str(count).isdigit() and k >= int(count):
                break
            place = f.minimum(k, f.sub(count, 1))  # an element that is there
            one = f.cast("zext", f.load(bits, f.element(pointer, place, size), size), word)
            if not str(count).isdigit() and k:
                one = f.select(f.compare("slt", k, count), word, one, "0")
            value = f.binary("or", value, f.binary("shl", one, 8 * size * k, word), word)
    return f.cast("bitcast", f.broadcast(word, value, lanes), vector_type(element, lanes * group), whole)


def load_widened(f: Function, dtype: str, wide: str, lanes: int, pointer: str, align: int = 1) -> str:
    """`lanes` elements of dtype in memory as a vector of the type `wide`."""
    loaded = f.load(vector_type(memory_type(dtype), lanes), pointer, align)
    return widened(f, loaded, dtype, wide, lanes)


def widened(f: Function, value: str, dtype: str, wide: str, lanes: int) -> str:
    """value, a vector of dtype, as the type `wide`."""
    if dtype == wide:
        return value
    v = Vectors(f, dtype, lanes)
    return cast(v, wide, to_computed(v, value))


def prefetch_line(f: Function, pointer: str, level: int = 2) -> None:
    """Asks for the cache line of an address, into a level of the cache. It never faults."""
    function = f.text.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    f.statement(f"call void {function}(ptr {pointer}, i32 0, i32 {4 - level}, i32 1)")
