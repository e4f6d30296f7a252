"""Signals: how long an axis usually is that a graph cuts into frames, or goes along in strides.

A sound of 128 samples has no frame of 256. Of an input of floats whose one open axis is a length, a usual one
has `dims.LENGTH` of whatever the graph makes the fewest of: of its frames, say, or of its last convolution's
results. Who hands a state from call to call hears at a time as little as makes one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from ..ir import dims, dtypes
from ..ir.dims import Symbol
from ..ir.graph import Graph, TensorType, Value, walk

MOST_STEPS = 1024  # of a signal for one of what is made of it
FAR = 1 << 24  # a length at which frames are in proportion to it, whatever they share or lack at the ends


def usual_lengths(graph: Graph) -> dict[str, int]:
    """How long signals usually are, by dimension variable, where that is longer than other lengths."""
    signals = {symbol: 1.0 for value in graph.inputs for symbol in _lengths(value)}
    results = (out for node in walk(graph) for out in node.outputs) if signals else ()
    sizes = {size for out in results for size in _open_sizes(out)}
    for size in sizes:
        for symbol in signals.keys() & dims.symbols(size):
            near, far = (_at(size, symbol, length) for length in (FAR, 2 * FAR))
            if far > near:
                signals[symbol] = max(signals[symbol], min(MOST_STEPS, FAR / (far - near)))
    longer = {symbol: steps for symbol, steps in signals.items() if steps > 1}
    handed = _has_state(graph, longer.keys())
    return {
        symbol.name: round(steps * (_fewest(sizes, symbol, steps) if handed else dims.LENGTH))
        for symbol, steps in longer.items()
    }


def _at(size: dims.Dim, symbol: Symbol, length: int) -> int:
    """A size where a signal is so long."""
    return dims.evaluate(size, {s.name: s.typical for s in dims.symbols(size)} | {symbol.name: length})


def _fewest(sizes: Iterable[dims.Dim], symbol: Symbol, steps: float) -> int:
    """How many steps of a signal leave none of the sizes that depend on it empty: a power of two."""
    dependent, count = [size for size in sizes if symbol in dims.symbols(size)], 1
    while count < dims.LENGTH and any(_at(size, symbol, round(count * steps)) < 1 for size in dependent):
        count *= 2
    return count


def _has_state(graph: Graph, signals: Set[Symbol]) -> bool:
    """Whether the graph gives a tensor that may be like one that it takes beside signals: most likely what
    the next call takes."""
    taken, given = (
        [v.type for v in values if isinstance(v.type, TensorType) and not _sizes_of(v.type) & signals]
        for values in (graph.inputs, graph.outputs)
    )
    return any(_may_be_alike(one, other) for one in taken for other in given)


def _sizes_of(type_: TensorType) -> frozenset[Symbol]:
    """The variables that its sizes depend on."""
    return frozenset().union(*map(dims.symbols, type_.shape))


def _may_be_alike(one: TensorType, other: TensorType) -> bool:
    """Of two types with more than one axis, whether no size tells them apart."""
    if one.dtype != other.dtype or one.rank != other.rank or one.rank < 2:
        return False
    known = [(a, b) for a, b in zip(one.shape, other.shape) if isinstance(a, int) and isinstance(b, int)]
    return all(a == b for a, b in known)


def _lengths(value: Value) -> list[Symbol]:
    """The variable that is how long an input is, if it is a signal: no other size but the batch is open."""
    if not isinstance(value.type, TensorType) or not dtypes.is_float(value.type.dtype):
        return []
    alone = len(value.shape) == 1
    atoms = [dims.single_atom(size) for size in value.shape[0 if alone else 1 :] if not isinstance(size, int)]
    usual = 1 if alone else dims.LENGTH
    return [a for a in atoms if len(atoms) == 1 and isinstance(a, Symbol) and a.typical == usual]


def _open_sizes(value: Value) -> list[dims.Dim]:
    shape = value.shape if isinstance(value.type, TensorType) else ()
    return [size for size in shape if not isinstance(size, int)]
