"""Decision trees as ONNX writes them, made into the one form of the core op TreeEnsemble.

That compares with x <= threshold only. x < t is x <= the number before t; > and >= are these with the
branches swapped; ==, != and set membership are ranges of numbers, found by a small tree of such comparisons,
one for all of a chain of nodes that ask for one number after the other. All are exact, NaN and infinities
included, as ONNX Runtime compares: a NaN takes the true branch where the node says so, and of != always.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from ...errors import LimitError
from ...ir import expr, ops
from ...ir.builder import Builder
from ...ir.graph import Value
from ...records import dataclass

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
MODES = {name: mode for mode, name in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER"))}

Aggregate = Literal["sum", "min", "max"]

WEIGHTS_LIMIT = 1 << 28  # numbers: of each leaf, one for each target


@dataclass(frozen=True)
class Forest:
    """Trees of nodes that compare by `modes`. yes, no, roots: numbers of nodes, or ~i for leaf i; missing:
    whether NaN takes yes. Each weight is added to one target of one leaf. members: the numbers that a node of
    mode MEMBER looks for."""

    features: np.ndarray
    thresholds: np.ndarray
    modes: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    roots: np.ndarray
    leaves: int
    weight_leaves: np.ndarray
    weight_targets: np.ndarray
    weights: np.ndarray
    members: Sequence[np.ndarray] = ()

    def emit(self, b: Builder, x: Value, aggregate: Aggregate, targets: int) -> Value:
        """The aggregate over trees for each row of x and target. A target that none of a row's leaves has is
        0."""
        if len(self.weights) and not 0 <= self.weight_targets.min() <= self.weight_targets.max() < targets:
            raise ops.TypeMismatch(f"a leaf's target is not one of {targets}")
        if len(self.features) and self.features.min() < 0:
            raise ops.TypeMismatch("a node's feature is negative")
        plain = _compared(self)
        pairs, depth = _reached(plain)
        offsets, table = _weight_table(plain, pairs, aggregate, targets)
        dtype = plain.thresholds.dtype
        tables = (
            plain.features.astype(np.int32),
            plain.thresholds,
            plain.yes.astype(np.int32),
            plain.no.astype(np.int32),
            plain.missing.astype(bool),
            plain.roots.astype(np.int32),
            offsets.astype(np.int32),
            table.astype(dtype),
        )
        width = int(self.features.max(initial=-1)) + 1
        op = ops.TreeEnsemble(aggregate, targets, width, depth)
        found = b.emit(op, x, *map(b.constant, tables))[0]
        if aggregate != "sum":
            nothing = np.inf if aggregate == "min" else -np.inf
            found = b.map(
                found, lambda y: expr.where(expr.apply("eq", y, expr.const(nothing, y.dtype)), 0.0, y)
            )
        return found

    def present(self, targets: int) -> np.ndarray | None:
        """Which targets each row has a weight for, whatever leaves it reaches; None where that differs."""
        pairs, _ = _reached(_compared(self))
        has = np.zeros((self.leaves, targets), bool)
        has[self.weight_leaves, self.weight_targets] = True
        every = np.ones((len(self.roots), targets), bool)
        np.logical_and.at(every, pairs[0], has[pairs[1]])
        always: np.ndarray = np.any(every, axis=0)
        return always if np.array_equal(always, has.any(0)) else None

    def scored(self, b: Builder, x: Value, targets: int) -> Value | None:
        """Above 0 where a target has a weight among a row's leaves, [N, targets], or [targets] where that is
        so of all rows; None where all have all."""
        known = self.present(targets)
        if known is None:
            return self.counting().emit(b, x, "sum", targets)
        return None if known.all() else b.constant(known.astype(self.thresholds.dtype))

    def with_one_weight(self) -> Forest:
        """The forest whose leaves have their first weight only."""
        _, first = np.unique(self.weight_leaves, return_index=True)
        kept = {name: getattr(self, name)[first] for name in ("weight_leaves", "weight_targets", "weights")}
        return replace(self, **kept)

    def counting(self) -> Forest:
        """The forest whose sums are how many weights there are."""
        return replace(self, weights=np.ones_like(self.weights))


# Comparisons -------------------------------------------------------------------------------------


def _compared(forest: Forest) -> Forest:
    """The forest with comparisons of mode LEQ only, yes being left."""
    modes, thresholds = forest.modes, forest.thresholds
    below = _before(thresholds)
    strict = (modes == LT) | (modes == GTE)
    swapped = ((modes == GT) | (modes == GTE)) & ~np.isnan(thresholds)
    plain = replace(
        forest,
        modes=np.zeros_like(modes),
        thresholds=np.where(strict, below, thresholds),
        yes=np.where(swapped, forest.no, forest.yes),
        no=np.where(swapped, forest.yes, forest.no),
        missing=forest.missing.astype(bool) ^ swapped,
    )
    special = np.flatnonzero(modes >= EQ)
    return plain if not len(special) else _with_ranges(forest, plain, special)


def _before(numbers: np.ndarray) -> np.ndarray:
    """The greatest number less than each; NaN, which nothing compares with, before the least."""
    with np.errstate(over="ignore"):  # before the least finite number is -infinity
        below = np.nextafter(numbers, np.array(-np.inf, numbers.dtype))
    return np.where(np.isneginf(numbers), np.array(np.nan, numbers.dtype), below)


def _with_ranges(forest: Forest, plain: Forest, special: np.ndarray) -> Forest:
    """Each special node becomes the root of a small tree over the ranges of its numbers, and of those of the
    nodes that follow it."""
    inside, outside, missing = forest.yes.copy(), forest.no.copy(), forest.missing.astype(bool)
    unequal = forest.modes == NEQ  # NaN is not equal to anything
    inside[unequal], outside[unequal], missing[unequal] = forest.no[unequal], forest.yes[unequal], False
    following = _following(forest, special, inside, outside)
    absorbed = set(following.values())
    unused = itertools.chain(sorted(absorbed), itertools.count(len(forest.features)))
    rows: dict[int, tuple] = {}
    for first in sorted({*special.tolist()} - absorbed):
        nodes = [first]
        while nodes[-1] in following:
            nodes.append(following[nodes[-1]])
        numbers = np.concatenate([_numbers(forest, node) for node in nodes])
        branches = outside[nodes[-1]], inside[first]
        _ranges(rows, first, unused, forest.features[first], numbers, branches, bool(missing[nodes].any()))
    count = max([len(forest.features), *(node + 1 for node in rows)])
    total = [np.concatenate([a, np.zeros(count - len(a), a.dtype)]) for a in _columns(plain)]
    for node, values in rows.items():
        for array, value in zip(total, values, strict=True):
            array[node] = value
    return replace(
        plain,
        features=total[0],
        thresholds=total[1],
        yes=total[2],
        no=total[3],
        missing=total[4],
        modes=np.zeros(count, plain.modes.dtype),
    )


def _following(
    forest: Forest, special: np.ndarray, inside: np.ndarray, outside: np.ndarray
) -> dict[int, int]:
    """The node behind a special one that looks for more numbers of its feature with the same end, where
    nothing else leads there. Converters write sets of categories so."""
    ends = np.concatenate([forest.yes, forest.no, forest.roots])
    named = np.bincount(ends[ends >= 0], minlength=len(forest.features))
    nodes = special[outside[special] >= 0]
    behind = outside[nodes]
    alike = (forest.modes[behind] >= EQ) & (inside[behind] == inside[nodes]) & (named[behind] == 1)
    alike &= (forest.features[behind] == forest.features[nodes]) & (behind != nodes)
    return dict(zip(nodes[alike].tolist(), behind[alike].tolist(), strict=True))


def _numbers(forest: Forest, node: int) -> np.ndarray:
    """What a special node compares with."""
    return forest.members[node] if forest.modes[node] == MEMBER else forest.thresholds[node : node + 1]


def _columns(forest: Forest) -> tuple[np.ndarray, ...]:
    return forest.features, forest.thresholds, forest.yes, forest.no, forest.missing


def _ranges(
    rows: dict[int, tuple],
    node: int,
    unused: Iterator[int],
    feature: int,
    numbers: np.ndarray,
    branches: tuple[int, int],
    missing: bool,
) -> None:
    """Writes nodes that take branches[1] where the feature is one of the numbers, the first at `node` and
    more at unused places. Between sorted bounds, ranges outside and inside alternate."""
    known = np.unique(numbers[~np.isnan(numbers)])
    pairs = np.stack([_before(known), known], 1).reshape(-1)
    inside_first = int(len(known) and np.isneginf(known[0]))
    bounds, repeats = np.unique(pairs[~np.isnan(pairs)], return_counts=True)
    bounds = bounds[repeats == 1]  # where a range ends as the next begins there is no bound
    kinds = (np.arange(len(bounds) + 1) + inside_first) % 2
    if not len(bounds):
        inside = branches[inside_first]
        rows[node] = (feature, np.nan, branches[1], inside, missing)
        return
    goal = int(np.flatnonzero(kinds == int(missing))[0])  # the range that a NaN is sent to
    pending = [(node, 0, len(bounds))]
    while pending:
        at, first, last = pending.pop()
        middle = (first + last) // 2
        ends = []
        for start, stop in ((first, middle), (middle + 1, last)):
            if start == stop:
                ends.append(branches[kinds[start]])
            else:
                ends.append(next(unused))
                pending.append((ends[-1], start, stop))
        rows[at] = (feature, bounds[middle], *ends, goal <= middle)


# Leaves ------------------------------------------------------------------------------------------


def _reached(forest: Forest) -> tuple[np.ndarray, int]:
    """Pairs (tree, leaf), each once, and the number of nodes on the longest path. TypeMismatch where nodes
    form a circle."""
    trees, places = np.arange(len(forest.roots)), forest.roots.astype(np.int64)
    found, depth, span = [], 0, len(forest.features) + forest.leaves + 1
    while True:
        inner = places >= 0
        found.append(trees[~inner] * span + ~places[~inner])
        trees, places = trees[inner], places[inner]
        if not len(places):
            break
        depth += 1
        if depth > len(forest.features):
            raise ops.TypeMismatch("the nodes of a tree form a circle")
        following = np.concatenate([forest.yes[places], forest.no[places]]).astype(np.int64)
        trees, places = np.divmod(
            _distinct(np.concatenate([trees, trees]) * span + following + forest.leaves), span
        )
        places -= forest.leaves
    return np.stack(np.divmod(_distinct(np.concatenate(found)), span)), depth


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Each of them once, in their order: a fortieth of the time in which `np.unique` hashes millions."""
    numbers = np.sort(numbers)
    return numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]


def _weight_table(
    forest: Forest, pairs: np.ndarray, aggregate: str, targets: int
) -> tuple[np.ndarray, np.ndarray]:
    """(target of each tree's first column, weights [leaves, columns]): a column where no tree has weights for
    several targets, else one for each target."""
    least, most = np.full(len(forest.roots), targets), np.full(len(forest.roots), -1)
    low, high = np.full(forest.leaves, targets), np.full(forest.leaves, -1)
    np.minimum.at(low, forest.weight_leaves, forest.weight_targets)
    np.maximum.at(high, forest.weight_leaves, forest.weight_targets)
    np.minimum.at(least, pairs[0], low[pairs[1]])
    np.maximum.at(most, pairs[0], high[pairs[1]])
    single = bool(np.all(least >= most))
    columns = 1 if single else targets
    if forest.leaves * columns > WEIGHTS_LIMIT:
        raise LimitError(f"{forest.leaves:,} leaves with {columns:,} weights each are too many")
    start = {"sum": 0, "min": np.inf, "max": -np.inf}[aggregate]
    table = np.full((max(forest.leaves, 1), columns), start, forest.thresholds.dtype)
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[aggregate]
    place = np.zeros_like(forest.weight_targets) if single else forest.weight_targets
    combine.at(table, (forest.weight_leaves, place), forest.weights.astype(table.dtype))
    return np.where(most < 0, 0, least) if single else np.zeros(len(forest.roots), int), table
