"""Trees as bits: no path is walked, every comparison is made (QuickScorer, Lucchese and others, 2015).

Leaves are numbered from left to right, one bit each. A node whose comparison sends a row right clears the
bits of the leaves on its left; the lowest bit that stays is the row's leaf. Rows are lanes, a comparison is
the same for all of them: none is gathered for, and none waits for another. Many leaves take several words.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...ir.graph import Node
from ...ir.ops import TreeEnsemble
from ...records import dataclass

MOST_LEAVES = 1024  # of a tree


@dataclass(frozen=True)
class TreeBits:
    """Comparisons in lists, of which tree t has `kinds` for each of its words, from lists[firsts[t]] on:
    those where NaN goes right and, if there are any, those where it goes left. leaves: where each tree's
    begin among the weights."""

    features: np.ndarray
    thresholds: np.ndarray
    masks: np.ndarray
    lists: np.ndarray
    firsts: np.ndarray
    leaves: np.ndarray
    weights: np.ndarray
    kinds: int

    @property
    def words(self) -> np.ndarray:
        """Of each tree."""
        return np.diff(self.firsts) // self.kinds


@lru_cache(maxsize=4)
def tree_bits(node: Node[TreeEnsemble]) -> TreeBits | None:
    """The comparisons of a node's trees; None where one has too many leaves."""
    features, thresholds, lefts, rights, missing, roots, _, weights = (v.data.array for v in node.inputs[1:])
    width = 8 * thresholds.dtype.itemsize
    counts = _leaves_below(lefts, rights, node.op.depth)
    sizes = _count(counts, roots)
    if sizes.max(initial=0) > MOST_LEAVES:
        return None
    words = -(-sizes // width)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    order = np.zeros(begins[-1], np.int64)
    found: list[np.ndarray] = []  # (tree, node, first leaf, leaves on the left)
    trees, places, first = np.arange(len(roots)), roots.astype(np.int64), np.zeros(len(roots), np.int64)
    while len(places):
        inner = places >= 0
        order[begins[trees[~inner]] + first[~inner]] = ~places[~inner]
        trees, places, first = trees[inner], places[inner], first[inner]
        left = _count(counts, lefts[places]) if len(places) else places
        found.append(np.stack([trees, places, first, left]))
        trees = np.concatenate([trees, trees])
        first = np.concatenate([first, first + left])
        places = np.concatenate([lefts[places], rights[places]]).astype(np.int64) if len(places) else places
    entries, word, masks = _spread(np.concatenate(found, 1), width)
    kinds = 1 + bool(np.any(missing))
    firsts = np.concatenate([[0], np.cumsum(words * kinds)])
    key = firsts[entries[0]] + word * kinds
    key += missing[entries[1]] if kinds > 1 else 0
    ranked = np.argsort(key, kind="stable")
    nodes = entries[1][ranked]
    return TreeBits(
        features=features[nodes],
        thresholds=thresholds[nodes],
        masks=masks[ranked].astype(f"uint{width}"),
        lists=np.searchsorted(key[ranked], np.arange(firsts[-1] + 1)).astype(np.int32),
        firsts=firsts.astype(np.int32),
        leaves=begins.astype(np.int32),
        weights=weights[order],
        kinds=kinds,
    )


def _leaves_below(lefts: np.ndarray, rights: np.ndarray, depth: int) -> np.ndarray:
    """How many leaves each node has, MOST_LEAVES + 1 where more."""
    counts = np.ones(len(lefts), np.int64)
    for _ in range(depth if len(lefts) else 0):
        counts = np.minimum(_count(counts, lefts) + _count(counts, rights), MOST_LEAVES + 1)
    return counts


def _count(counts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The leaves of nodes, 1 of a leaf."""
    return np.where(ends >= 0, counts[np.maximum(ends, 0)] if len(counts) else 1, 1)


def _spread(entries: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entries once for each word in which they clear bits, those words, and what stays of each."""
    first, stop = entries[2], entries[2] + entries[3]
    low, high = first // width, (stop - 1) // width
    repeats = high - low + 1
    spread = np.repeat(entries, repeats, axis=1)
    ends = np.cumsum(repeats)
    word = (
        np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - repeats, repeats) + np.repeat(low, repeats)
    )
    begin = np.maximum(spread[2] - word * width, 0)
    end = np.minimum(spread[2] + spread[3] - word * width, width)
    masks = [~((1 << int(e)) - (1 << int(b))) & (1 << width) - 1 for b, e in zip(begin, end, strict=True)]
    return spread, word, np.array(masks, np.uint64)
