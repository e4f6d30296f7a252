"""From a regular expression to the smallest automaton that reads a text byte by byte and never goes back.

A tree becomes a nondeterministic automaton over the bytes of UTF-8 (Thompson), whose reachable sets of
states are the states of a deterministic one, of which equal ones are merged (Hopcroft). An assertion is an
edge that is passed where the characters before and behind allow it; what stands before is part of a state,
what stands behind is known when the next byte is read. Time over a text is one table look-up a byte,
whatever the pattern is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from ..errors import LimitError
from ..records import dataclass
from .regex_syntax import AnyByte, Assertion, Chain, Characters, Choice, Regex, Repeat, parse_regex

PARTS_LIMIT = 50_000
STATES_LIMIT = 5_000

EDGE, NEWLINE, WORD, OTHER = range(4)  # what is beside a place in a text: its end, or a byte
_WORD_BYTES = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True)
class Automaton:
    """classes: uint8 [256], the class of each byte. following: int32 [states, classes], the next state; 0
    leads nowhere, 1 is where a text begins. final: uint8 [states], bit k set where a match may end before
    what is of kind k (0: the end of the text). starts: int32 [4], where one begins behind each kind."""

    classes: np.ndarray
    following: np.ndarray
    final: np.ndarray
    starts: np.ndarray


def _kind(byte: int) -> int:
    return NEWLINE if byte == 10 else WORD if byte in _WORD_BYTES else OTHER


def _holds(assertion: str, before: int, behind: int) -> bool:
    """Whether an assertion holds between what is before and what is behind."""
    match assertion:
        case "begin_text":
            return before == EDGE
        case "end_text":
            return behind == EDGE
        case "begin_line":
            return before in (EDGE, NEWLINE)
        case "end_line":
            return behind in (EDGE, NEWLINE)
    return ((before == WORD) != (behind == WORD)) == (assertion == "word_boundary")


# Nondeterministic --------------------------------------------------------------------------------


@dataclass
class _Network:
    """Places and what leads from each to others: bytes of a range, nothing at all, or nothing where an
    assertion holds."""

    bytes: list[list[tuple[int, int, int]]] = field(default_factory=list)
    free: list[list[int]] = field(default_factory=list)
    guarded: list[list[tuple[str, int]]] = field(default_factory=list)

    def place(self) -> int:
        if len(self.free) >= PARTS_LIMIT:
            raise LimitError(f"a regular expression has more than {PARTS_LIMIT:,} parts when written out")
        for edges in (self.bytes, self.free, self.guarded):
            edges.append([])
        return len(self.free) - 1

    def add(self, tree: Regex, begin: int) -> int:
        """Leads from a place through what the tree matches; where that ends."""
        match tree:
            case Characters(ranges):
                return self._characters(_sequences(ranges), begin)
            case AnyByte():
                return self._characters([((0, 255),)], begin)
            case Assertion(kind):
                end = self.place()
                self.guarded[begin].append((kind, end))
                return end
            case Chain(parts):
                for part in parts:
                    begin = self.add(part, begin)
                return begin
            case Choice(parts):
                end = self.place()
                for part in parts:
                    first = self.place()
                    self.free[begin].append(first)
                    self.free[self.add(part, first)].append(end)
                return end
        return self._repeat(tree, begin)

    def _repeat(self, tree: Repeat, begin: int) -> int:
        for _ in range(tree.least):
            begin = self.add(tree.part, begin)
        if tree.most is None:
            first, end = self.place(), self.place()
            self.free[begin].append(first)
            self.free[first].append(end)
            self.free[self.add(tree.part, first)].append(first)
            return end
        end = self.place()
        for _ in range(tree.most - tree.least):
            self.free[begin].append(end)
            first = self.place()
            self.free[begin].append(first)
            begin = self.add(tree.part, first)
        self.free[begin].append(end)
        return end

    def _characters(self, sequences: Iterable[tuple[tuple[int, int], ...]], begin: int) -> int:
        """Any of these sequences of byte ranges. Equal ends of sequences are the same places."""
        end = self.place()
        places: dict[tuple[tuple[int, int], ...], int] = {(): end}
        for sequence in sequences:
            for cut in range(len(sequence) - 1, 0, -1):
                rest = sequence[cut:]
                if rest not in places:
                    places[rest] = self.place()
                    self.bytes[places[rest]].append((*rest[0], places[rest[1:]]))
            self.bytes[begin].append((*sequence[0], places[sequence[1:]]))
        return end


def _sequences(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    """The UTF-8 of characters as sequences of ranges of bytes."""
    pending = [part for a, b in ranges for part in ((a, min(b, 0xD7FF)), (max(a, 0xE000), b))]
    while pending:
        low, high = pending.pop()
        if low > high:
            continue
        cut = _cut(low, high)
        if cut is not None:
            pending += [(cut, high), (low, cut - 1)]
        else:
            yield tuple(zip(chr(low).encode(), chr(high).encode()))


def _cut(low: int, high: int) -> int | None:
    """Where to cut a range of characters so that its UTF-8 gets nearer to one range for each byte; None
    where it is that."""
    for limit in (0x80, 0x800, 0x10000):
        if low < limit <= high:
            return limit
    for bits in (6, 12, 18):
        mask = (1 << bits) - 1
        if high >= 0x80 and low | mask < high | mask:
            if low & mask:
                return (low | mask) + 1
            if high & mask != mask:
                return high & ~mask
    return None


# Deterministic -----------------------------------------------------------------------------------


class _Subsets:
    """The sets of places that a network can be in, found from the first."""

    def __init__(self, network: _Network, end: int) -> None:
        self.network, self.end = network, end
        self.asserts = any(network.guarded)
        borders = {0, 256} | {b for edges in network.bytes for low, high, _ in edges for b in (low, high + 1)}
        if self.asserts:
            borders |= {b for k in range(256) if _kind(k) != _kind(k - 1) for b in (k,)}
        self.borders = sorted(borders)
        self.interval_of = np.searchsorted(self.borders, np.arange(256), side="right") - 1

    @cached_property
    def kinds(self) -> list[int]:
        """What the bytes of each interval are, as neighbours."""
        return [_kind(low) if self.asserts else OTHER for low in self.borders[:-1]]

    def closure(self, places: Iterable[int], neighbours: tuple[int, int] | None) -> frozenset[int]:
        """The places reached without a byte; through assertions where the neighbours are known."""
        network, seen, stack = self.network, set(places), list(places)
        while stack:
            place = stack.pop()
            found = list(network.free[place])
            if neighbours is not None:
                found += [to for kind, to in network.guarded[place] if _holds(kind, *neighbours)]
            for to in found:
                if to not in seen:
                    seen.add(to)
                    stack.append(to)
        return frozenset(p for p in seen if network.bytes[p] or network.guarded[p] or p == self.end)

    def automaton(self, kinds: Sequence[int]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """(next state [states, intervals], kinds before which a match may end as bits [states], where it
        begins behind these kinds, the end of the text first)."""
        nowhere = (frozenset[int](), OTHER)
        begins = [(self.closure([0], None), kind if self.asserts else OTHER) for kind in kinds]
        number, states = {nowhere: 0}, [nowhere]
        for begin in begins:
            if begin not in number:
                number[begin] = len(states)
                states.append(begin)
        rows, final = [], []
        for places, before in states:  # which grows
            if len(states) > STATES_LIMIT:
                raise LimitError(
                    f"a regular expression needs an automaton of more than {STATES_LIMIT:,} states"
                )
            final.append(sum((self.end in self.closure(places, (before, k))) << k for k in kinds))
            row = []
            for interval, reached in enumerate(self._moves(places, before)):
                state = (reached, self.kinds[interval]) if reached else nowhere
                if state not in number:
                    number[state] = len(states)
                    states.append(state)
                row.append(number[state])
            rows.append(row)
        return np.array(rows, np.int32), np.array(final, np.uint8), [number[begin] for begin in begins]

    def _moves(self, places: frozenset[int], before: int) -> list[frozenset[int]]:
        """Where the bytes of each interval lead."""
        reached: list[set[int]] = [set() for _ in self.kinds]
        for kind in sorted(set(self.kinds)):
            for place in self.closure(places, (before, kind)) if self.asserts else places:
                for low, high, to in self.network.bytes[place]:
                    for interval in range(self.interval_of[low], self.interval_of[high] + 1):
                        if self.kinds[interval] == kind:
                            reached[interval].add(to)
        known: dict[frozenset[int], frozenset[int]] = {}
        for found in map(frozenset, reached):
            if found not in known:
                known[found] = self.closure(found, None)
        return [known[frozenset(found)] for found in reached]


def _merged(following: np.ndarray, final: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The automaton with equal states merged, 0 and 1 keeping their meanings; and the new number of each."""
    count, classes = following.shape
    sources: list[dict[int, list[int]]] = [defaultdict(list) for _ in range(classes)]
    for state, row in enumerate(following.tolist()):
        for k, to in enumerate(row):
            sources[k][to].append(state)
    blocks = [{*np.flatnonzero(final == value).tolist()} for value in np.unique(final)]
    block_of = {state: b for b, block in enumerate(blocks) for state in block}
    waiting = set(range(len(blocks)))
    while waiting:
        splitter = list(blocks[waiting.pop()])
        for k in range(classes):
            touched: dict[int, set[int]] = defaultdict(set)
            for state in splitter:
                for source in sources[k].get(state, ()):
                    touched[block_of[source]].add(source)
            for b, part in touched.items():
                rest = blocks[b] - part
                if not rest:
                    continue
                new = len(blocks)
                small, large = sorted((part, rest), key=len)
                blocks[b] = large
                blocks.append(small)
                block_of.update(dict.fromkeys(small, new))
                waiting.add(new)
    order = sorted(range(len(blocks)), key=lambda b: min(blocks[b]))
    place = {b: k for k, b in enumerate(order)}
    firsts = [min(blocks[b]) for b in order]
    renumber = np.array([place[block_of[state]] for state in range(count)], np.int32)
    return renumber[following[firsts]], final[firsts], renumber


def regex_automaton(pattern: str, search: bool = False) -> Automaton:
    """The automaton of the texts that a pattern in RE2's syntax matches as a whole; to search, of the parts
    of texts that it matches."""
    network = _Network()
    end = network.add(parse_regex(pattern), network.place())
    subsets = _Subsets(network, end)
    following, final, starts = subsets.automaton((EDGE, NEWLINE, WORD, OTHER) if search else (EDGE,))
    following, class_of = np.unique(following, axis=1, return_inverse=True)
    following, final, renumber = _merged(following, final)
    begins = renumber[starts]
    if len(final) == 1:  # no text matches: where it begins is nowhere
        following, final, begins = np.zeros((2, 1), np.int32), np.zeros(2, np.uint8), np.ones_like(begins)
        class_of = np.zeros_like(class_of)
    classes = class_of.reshape(-1)[subsets.interval_of].astype(np.uint8)
    following = np.ascontiguousarray(following, np.int32)
    return Automaton(classes, following, final.astype(np.uint8), begins.astype(np.int32))
