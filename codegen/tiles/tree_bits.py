"""Trees as bits: no path is walked, every comparison is made (QuickScorer, Lucchese and others, 2015).

Leaves are numbered from left to right, one bit each. A node whose comparison sends a row right clears the
bits of the leaves on its left; the lowest bit that stays is the row's leaf. Rows are lanes, a comparison is
the same for all of them: none is gathered for, and none waits for another. Many leaves take several words.

Of a single row trees are the lanes (`LaneBits`): their comparisons lie side by side, so that a vector of them
is read where a step of a walk would gather. That takes trees of one word.
"""

from __future__ import annotations

import numpy as np

from ...ir.graph import Node
from ...ir.ops import TreeEnsemble
from ...ir.remembered import remembered
from ...records import dataclass

MOST_LEAVES = 1024  # of a tree
COMPARED_TOGETHER = 2  # comparisons of a vector of trees that are made without a loop


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


@dataclass(frozen=True)
class LaneBits:
    """Trees in vectors, those of each target together: vectors starts[target] to starts[target + 1], each
    with comparisons from firsts[vector] on, a multiple of COMPARED_TOGETHER of them. words: feature and,
    above `bits` of it, whether NaN goes left. leaves: where each tree's begin among the weights; that of a
    tree of nothing is behind all."""

    starts: np.ndarray
    firsts: np.ndarray
    words: np.ndarray
    thresholds: np.ndarray
    masks: np.ndarray
    leaves: np.ndarray


@remembered(4)
def lane_bits(node: Node[TreeEnsemble], lanes: int, bits: int) -> LaneBits | None:
    """Trees of like size share a vector. None where one has more leaves than a word has bits."""
    found, targets = tree_bits(node), node.inputs[7].data.array
    if found is None or found.words.max(initial=0) > 1:
        return None
    begins = found.lists[found.firsts]  # of each tree's comparisons
    counts, several = np.diff(begins), node.inputs[8].data.shape[1] > 1
    vectors, starts = [], [0]
    for target in range(1 if several else node.op.columns):
        own = np.arange(len(counts)) if several else np.flatnonzero(targets == target)
        own = own[np.argsort(counts[own], kind="stable")]
        filled = np.concatenate([own, np.full(-len(own) % lanes, -1, own.dtype)])
        vectors.append(filled.reshape(-1, lanes))
        starts.append(starts[-1] + len(vectors[-1]))
    trees = np.concatenate(vectors)
    sizes = np.where(trees >= 0, counts[trees], 0) if len(counts) else np.zeros_like(trees)
    rows = -(-sizes.max(1, initial=0) // COMPARED_TOGETHER) * COMPARED_TOGETHER
    firsts = np.concatenate([[0], np.cumsum(rows)])
    shape = (firsts[-1], lanes)
    words, masks = (
        np.zeros(shape, np.uint8),
        np.full(shape, np.iinfo(found.masks.dtype).max, found.masks.dtype),
    )
    thresholds = np.full(shape, np.inf, found.thresholds.dtype)
    left = _of_second_kind(found)
    for (vector, lane), tree in np.ndenumerate(trees):
        if tree >= 0:
            here = slice(firsts[vector], firsts[vector] + counts[tree]), lane
            there = slice(begins[tree], begins[tree + 1])
            words[here] = found.features[there] | left[there] << bits
            thresholds[here], masks[here] = found.thresholds[there], found.masks[there]
    leaves = np.where(trees >= 0, found.leaves[trees], len(found.weights)).astype(np.int32)
    return LaneBits(np.array(starts, np.int32), firsts.astype(np.int32), words, thresholds, masks, leaves)


def _of_second_kind(bits: TreeBits) -> np.ndarray:
    """Of each comparison whether NaN goes left."""
    kinds = np.arange(len(bits.lists) - 1) % bits.kinds
    return np.repeat(kinds, np.diff(bits.lists)).astype(np.uint8)


@remembered(4)
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
