"""Which keys a mask hides from rows of attention: those with a bias of HIDDEN or less, as exporters write it
for what comes later, lies outside a window or pads a sequence.

Whatever made the mask, keys that no row of a tile sees are found by looking at it, from the last key
backwards, where one vector tells what a tile would else multiply with as many keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..text.emitter import Function, Reg, Text
from ..text.memory import first_lanes, load_first
from ..text.vectors import Vectors

HIDDEN = -1e30  # a bias that no score makes up for
FLOAT, SIZE = "float32", 4


def emit_seen(text: Text, name: str, lanes: int) -> None:
    """name(bias, rows, step, before, count, keys) -> i64: of `count` keys, from key `before` on, how many end
    with the last that some row sees, in whole vectors. `bias` is that of the first row and of key 0, `step`
    the bytes from a row's to the next one's. All of them where a row sees none of all `keys`, for then these
    count alike."""
    parameters = ["ptr %bias", *(f"i64 %{n}" for n in ("rows", "step", "before", "count", "keys"))]
    with text.function(name, parameters, returns="i64", attributes="nounwind noinline") as f:
        block = f.element("%bias", "%before", SIZE)
        vectors = f.divide(f.add("%count", lanes - 1), lanes)[0]
        with f.loop(0, "%rows", carried=[("i64", "0")]) as row:
            here, least = f.offset(block, f.mul(row.index, "%step")), row.carried[0]

            def from_the_end(k: str) -> str:
                index = f.mul(f.sub(f.sub(vectors, 1), k), lanes)
                return _sees(f, lanes, f.element(here, index, SIZE), f.sub("%count", index))

            row.carry(f.sub(vectors, _first(f, f.sub(vectors, least), from_the_end)))
        seen = f.minimum(f.mul(row.results[0], lanes), "%count")
        most = f.select(f.compare("eq", seen, "%count"), "i64", "0", "%rows")
        whole = f.divide(f.add("%keys", lanes - 1), lanes)[0]
        with f.loop(0, most, carried=[("i1", "true")]) as row:
            here = f.offset("%bias", f.mul(row.index, "%step"))

            def from_the_start(k: str) -> str:
                index = f.mul(k, lanes)
                return _sees(f, lanes, f.element(here, index, SIZE), f.sub("%keys", index))

            some = f.compare("slt", _first(f, whole, from_the_start), whole)
            row.carry(f.all_of(row.carried[0], some))
        f.statement(f"ret i64 {f.select(row.results[0], 'i64', seen, '%count')}")


def _first(f: Function, limit: str, holds: Callable[[str], str]) -> str:
    """The first number below the limit that holds, else the limit."""

    def step(state: Sequence[Reg]) -> list[str]:
        found = holds(state[0])
        return [f.select(found, "i64", state[0], f.add(state[0], 1)), found]

    def more(state: Sequence[Reg]) -> str:
        return f.all_of(f.compare("slt", state[0], limit), f.invert(state[1]))

    return f.repeat([("i64", "0"), ("i1", "false")], more, step)[0]


def _sees(f: Function, lanes: int, bias: str, left: str) -> str:
    """Whether any of `lanes` keys, of which `left` are there, is not hidden."""
    v = Vectors(f, FLOAT, lanes)
    x = load_first(f, FLOAT, lanes, bias, left)
    hidden = v.compare("le", x, v.constant(HIDDEN))
    return v.any(v.both(first_lanes(f, left, lanes), f.invert(hidden)))
