"""Trees as their kernel walks them: an entry for each place that one may come to, in two tables.

    words[e]       left child's entry << shift | NaN goes left << bits | feature
    thresholds[e]  the right child follows the left: e = words[e] >> shift + !(x[feature] <= thresholds[e])
A leaf's threshold is NaN and its left child's entry the one before, so that walking on stays there, and all
rows walk as many steps. values[e] is a leaf's weight or, of several columns, where its weights begin.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...ir.graph import Node
from ...ir.ops import TreeEnsemble
from ...records import dataclass


@dataclass(frozen=True)
class TreeTables:
    """depths and targets: the steps to each tree's deepest leaf, its first column. The trees' roots are
    entries one after the other, from `root` on. Behind them, from `filled` on, are all roots again, those of
    each target together and filled up with trees of nothing to a multiple of `together`: from starts[target]
    to starts[target + 1]; `depths` goes on with the steps of each such group. Where trees have all columns,
    all are one target's."""

    words: np.ndarray
    thresholds: np.ndarray
    values: np.ndarray
    depths: np.ndarray
    targets: np.ndarray
    starts: np.ndarray
    weights: np.ndarray
    root: int
    filled: int
    bits: int  # of a word that are the feature: 5 at least, so that a word as it is picks one of 32 lanes
    mixed: bool  # whether NaN goes left anywhere

    @property
    def shift(self) -> int:
        return self.bits + self.mixed


@lru_cache(maxsize=4)
def tree_tables(node: Node[TreeEnsemble], together: int) -> TreeTables:
    """The tables of a node's constants."""
    features, thresholds, lefts, rights, missing, roots, targets, weights = (
        v.data.array for v in node.inputs[1:]
    )
    columns = weights.shape[1]
    neutral = {"sum": 0.0, "min": np.inf, "max": -np.inf}[node.op.aggregate]
    weights = np.concatenate([weights, np.full((1, columns), neutral, weights.dtype)])
    nothing = ~(len(weights) - 1)  # the leaf of a tree of nothing
    filled, starts = _by_target(roots, targets, node.op.columns if columns == 1 else 1, together, nothing)
    ends = np.concatenate([np.stack([lefts, rights], 1).reshape(-1), roots, filled]).astype(np.int64)
    inner, place = ends >= 0, np.arange(len(ends))
    nodes = np.where(inner, ends, 0)
    bits, mixed = max(5, int(node.op.width - 1).bit_length()), bool(np.any(missing))
    child = np.where(inner, 2 * ends, place - 1) << (bits + mixed)
    words = child | np.where(inner, _at(features, nodes), 0)
    if mixed:
        words |= np.where(inner, _at(missing, nodes), False).astype(np.int64) << bits
    wide = len(ends) << (bits + mixed) >= 1 << 31
    leaves = np.where(inner, 0, ~ends)
    heights = _heights(lefts, rights, node.op.depth)
    depth = np.where(inner, _at(heights, nodes), 0)[2 * len(lefts) :]
    groups = depth[len(roots) :].reshape(-1, together).max(1, initial=0)
    return TreeTables(
        words=words.astype(np.int64 if wide else np.int32),
        thresholds=np.where(inner, _at(thresholds, nodes), np.nan).astype(thresholds.dtype),
        values=weights[leaves, 0] if columns == 1 else (leaves * columns).astype(np.int32),
        depths=np.concatenate([depth[: len(roots)], groups]).astype(np.int32),
        targets=targets.astype(np.int32),
        starts=starts.astype(np.int32),
        weights=weights if columns > 1 else weights[:0],
        root=2 * len(lefts),
        filled=2 * len(lefts) + len(roots),
        bits=bits,
        mixed=mixed,
    )


def _at(table: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """table[nodes]; zeros where there are no nodes at all."""
    return table[nodes] if len(table) else np.zeros(len(nodes), table.dtype)


def _by_target(
    roots: np.ndarray, targets: np.ndarray, count: int, together: int, nothing: int
) -> tuple[np.ndarray, np.ndarray]:
    """The trees target by target, each target's filled up, and where each target's begin."""
    parts, starts = [], [0]
    for target in range(count):
        own = roots[targets == target] if count > 1 else roots
        parts.append(np.concatenate([own, np.full(-len(own) % together, nothing, roots.dtype)]))
        starts.append(starts[-1] + len(parts[-1]))
    return np.concatenate(parts), np.array(starts)


def _heights(lefts: np.ndarray, rights: np.ndarray, depth: int) -> np.ndarray:
    """The steps from each node to the deepest leaf below it."""
    heights = np.zeros(len(lefts), np.int64)
    for _ in range(depth):
        below = [np.where(ends >= 0, _at(heights, np.maximum(ends, 0)), 0) for ends in (lefts, rights)]
        heights = 1 + np.maximum(*below)
    return heights
