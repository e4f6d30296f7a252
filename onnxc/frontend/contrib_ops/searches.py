"""The loop of a search, and how it chooses where each row is by itself: the likeliest word, or a drawn one.

    scores, state = network.first(words)                    the prompt
    words, ..., goes on = choice.choose(scores, words)       the first word
    while goes on:                                            a Loop
        scores, state = network.next(words, state)
        words, ..., goes on = choice.choose(scores, words)

What the network is (`networks.py`), which words are allowed (`logits.py`) and how one is chosen (here, and
for several beams in `beams.py`) know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ...ir import expr, ops
from ...ir.dims import Dimension
from ...ir.graph import TensorType, Type, Value
from ...records import dataclass
from ..onnx_ops.common import generate, zeros
from ..onnx_ops.control import loop
from ..onnx_ops.random import classes_at
from ..onnx_ops.reductions import softmax
from ..rule_builder import Region, RuleBuilder
from .logits import Limits
from .networks import Network

# The loop ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """What a step chose: the words so far with a new one [rows, length + 1], what the choice carries on,
    whether the search goes on, what is collected of each step, and, where the rows change places, those they
    come from."""

    words: Value
    own: list[Value]
    goes_on: Value
    collected: Sequence[Value] = ()
    rows: Value | None = None


class Choice(Protocol):
    """How words are chosen."""

    def start(self, b: RuleBuilder, rows: Dimension) -> list[Value]:
        """What the first step is given."""

    def choose(self, b: RuleBuilder, scores: Value, words: Value, own: list[Value], first: bool) -> Chosen:
        """The words after words [rows, length] by their scores [rows, vocabulary]; `first`: in the
        first step."""


def search(
    b: RuleBuilder, network: Network, choice: Choice, words: Value, most: Dimension
) -> tuple[Value, list[Value], list[tuple[Value, Value]]]:
    """(words [rows, up to `most`], what the choice carried in the end, (first, others) of what it
    collected)."""
    length = words.shape[1]
    scores, state = network.first(b, words)
    first = choice.choose(b, scores, words, choice.start(b, words.shape[0]), True)
    if first.rows is not None:
        state = network.of_rows(b, state, first.rows, True)
    count = len(first.own)

    def region(carried: Sequence[Type]) -> Region:
        body = b.inner()
        step, before = body.input(TensorType("int64", ()), "step"), body.input(TensorType("bool", ()))
        words, *values = given = [body.input(type_) for type_ in carried]
        last = body.take(words, 1, words.shape[1] - 1, 1)
        scores, state = network.next(body, last, words, values[count:])
        chosen = choice.choose(body, scores, words, values[:count], False)
        if chosen.rows is not None:
            state = network.of_rows(body, state, chosen.rows, False)
        results = [chosen.goes_on, chosen.words, *chosen.own, *state, *chosen.collected]
        return Region(body, results, [step, before, *given])

    trips = b.elements(np.array(most - length - 1, object))
    found = loop(b, trips, first.goes_on, [first.words, *first.own, *state], region)
    others = found[1 + count + len(state) :]
    return found[0], list(found[1 : 1 + count]), list(zip(first.collected, others))


# One word for each row ------------------------------------------------------------------------------


def _ended(
    b: RuleBuilder, word: Value, finished: Value, end: int, padding: int
) -> tuple[Value, Value, Value]:
    """(the word [rows, 1], padding where a row has ended; which have now; whether one has not)."""
    ends = b.map(word, finished, lambda w, f: f | w.equals(end))
    word = b.map(word, ends, lambda w, e: expr.where(e, padding, w))
    open_rows = b.map(ends, lambda e: ~e)
    return word, ends, b.reduce("or", open_rows, [0, 1])


@dataclass(frozen=True)
class Greedy:
    """The word with the greatest score, the first one of several. It carries which rows have ended."""

    limits: Limits
    end: int
    padding: int

    def start(self, b: RuleBuilder, rows: Dimension) -> list[Value]:
        return [zeros(b, "bool", (rows, 1))]

    def choose(self, b: RuleBuilder, scores: Value, words: Value, own: list[Value], first: bool) -> Chosen:
        scores = self.limits.of(b, words, scores, first)
        word = b.cast(b.reduce("argmax", scores, [1], True), "int32")
        word, ended, goes_on = _ended(b, word, own[0], self.end, self.padding)
        return Chosen(b.concat([words, word], 1), [ended], goes_on)


@dataclass(frozen=True)
class Sampled:
    """A word drawn by its score, of those that together have at least the probability top_p; others get the
    score `filtered`. It carries which rows have ended."""

    limits: Limits
    end: int
    padding: int
    top_p: float
    keep: int
    descending: bool
    filtered: float
    seed: Value

    def start(self, b: RuleBuilder, rows: Dimension) -> list[Value]:
        return [zeros(b, "bool", (rows, 1))]

    def choose(self, b: RuleBuilder, scores: Value, words: Value, own: list[Value], first: bool) -> Chosen:
        scores = self.likely(b, self.limits.of(b, words, scores, first))
        drawn = _uniform(b, self.seed, words.shape[0], words.shape[1])
        word = b.cast(classes_at(b, scores, drawn), "int32")
        word, ended, goes_on = _ended(b, word, own[0], self.end, self.padding)
        return Chosen(b.concat([words, word], 1), [ended], goes_on)

    def likely(self, b: RuleBuilder, scores: Value) -> Value:
        """Ascending, what sums up to 1 - top_p goes, but for `keep` words; descending, what follows where
        more than top_p is reached, but never the first."""
        ordered, places = b.emit(ops.Sort(1, self.descending), scores)
        chances = softmax(b, ordered, [1])
        sums = b.emit(ops.Cumulate("sum", 1, self.descending), chances)[0]
        at, total, score = expr.index(1), expr.input_(0, "float32"), expr.input_(1, "float32")
        if self.descending:
            goes = (total > self.top_p) & (at > 0)
        else:
            enough = float(np.float32(1) - np.float32(self.top_p))
            goes = (total <= enough) & ((at < expr.size(scores.shape[1]) - self.keep) | at.equals(0))
        kept = b.emit(ops.Map(expr.where(goes, self.filtered, score), scores.shape), sums, ordered)[0]
        return b.emit(ops.Scatter("elements", 1), scores, places, kept)[0]


def _uniform(b: RuleBuilder, seed: Value, rows: Dimension, step: Dimension) -> Value:
    """float32 [rows, 1] from 0 to 1, which the seed, the row and the step say: SplitMix64's mixing function
    (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators)."""
    place = expr.index(0) + (expr.size(step) << 32)
    x = (
        place.cast("uint64") * 0x9E3779B97F4A7C15
        + expr.input_(0, "int32").cast("uint64") * 0xD1342543DE82EF95
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor
    bits = (x ^ (x >> 31)) >> 40  # 24 bits, as many as float32 has
    return generate(b, (rows, 1), bits.cast("float32") * 2.0**-24, b.reshape(seed, (1, 1)))
