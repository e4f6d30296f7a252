"""The numpy twins of the runtime's operators on text (`runtime_c/ops_text.c`). Texts are `str`; bytes that
are no UTF-8 are lone surrogates in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .dtypes import objects


def encoded(text: str) -> bytes:
    """A text's UTF-8, with the bytes that were none when it was read."""
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes) -> str:
    """The text of these bytes, those that are no UTF-8 as lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def strings_joined(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x, y of one shape -> each text of x with that of y behind it."""
    x, y = inputs
    return [objects([decoded(encoded(a) + encoded(b)) for a, b in zip(x.flat, y.flat)], x.shape)]


def split_strings(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x, delimiter -> the pieces of each text along a new axis, padded with empty texts; their numbers.
    Attributes: at most how many cuts, negative for any number."""
    (x, delimiter), (most,) = inputs, attributes
    between = encoded(delimiter.reshape(-1)[0])

    def pieces(text: str) -> list[str]:
        if not between:
            return text.strip().split(None, most)
        return [decoded(piece) for piece in encoded(text).split(between, most)]

    rows = [pieces(text) for text in x.flat]
    numbers = np.array([len(row) for row in rows], np.int64)
    width = int(numbers.max(initial=0))
    padded = [piece for row in rows for piece in [*row, *[""] * (width - len(row))]]
    return [objects(padded, (*x.shape, width)), numbers.reshape(x.shape)]


def normalize_strings(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x [n] or [1, n], words left out, two case tables -> the texts that the first table does not make one of
    the words, changed by the second; one empty text where there are none."""
    x, words, compared, changed = inputs
    left_out, to_compare, to_give = set(words.flat), case_map(compared), case_map(changed)
    kept = [t.translate(to_give) for t in x.flat if t.translate(to_compare) not in left_out] or [""]
    return [objects(kept, (*x.shape[:-1], len(kept)))]


def case_map(table: np.ndarray) -> dict[int, int]:
    """What a case table changes, in the form that `str.translate` takes."""
    return {c: c + int(added) for first, last, step, added in table for c in range(first, last + 1, step)}


def match_strings(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x, class of each byte, next state of each state and class, final states (bit 0) -> whether the
    automaton takes each text from state 1; state 0 leads nowhere."""
    x, classes, following, final = inputs

    def matches(text: str) -> bool:
        state = 1
        for byte in encoded(text):
            state = following[state, classes[byte]]
        return bool(final[state] & 1)

    return [np.array([matches(t) for t in x.flat], bool).reshape(x.shape)]


def _kind(data: bytes, at: int) -> int:
    """What is beside a place in a text: 0 its end, 1 a newline, 2 a byte of a word, 3 another."""
    if not 0 <= at < len(data):
        return 0
    byte = data[at : at + 1]
    return 1 if byte == b"\n" else 2 if byte.isalnum() or byte == b"_" else 3


def matches_in(data: bytes, automaton: Sequence[np.ndarray]) -> Iterator[tuple[int, int]]:
    """Where the longest of the leftmost matches of an automaton (class of each byte, next states, final
    states, where it begins) begin and end, one behind the other, a character further on at least."""
    classes, following, final, starts = automaton
    at = 0
    while at <= len(data):
        end, state = -1, int(starts[_kind(data, at - 1)])
        for k in range(at, len(data) + 1):
            if final[state] >> _kind(data, k) & 1:
                end = k
            if k == len(data):
                break
            state = int(following[state, classes[data[k]]])
            if state == 0:
                break
        if end < 0:
            at += 1
            continue
        yield at, end
        at = _behind(data, at, end)


def _behind(data: bytes, begin: int, end: int) -> int:
    """Where the search goes on behind a match: behind the next character where the match is empty."""
    character = encoded(decoded(data[begin : begin + 4])[:1])
    return end if end > begin else begin + max(1, len(character))


def tokenize_strings(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x, what pads, automata of four tables each -> the tokens of each text along a new axis, padded.
    Attributes: 1 where each text is put between marks, characters that a token has at least, 0 where tokens
    are what stands between matches, of which an empty one takes the character behind it, 1 where they are
    matches, 2 where they are characters."""
    (x, pad, *tables), (mark, least, mode) = inputs, attributes
    automata = [tables[k : k + 4] for k in range(0, len(tables), 4)]

    def between(data: bytes, automaton: Sequence[np.ndarray]) -> Iterator[bytes]:
        at = 0
        for begin, end in matches_in(data, automaton):
            yield data[at:begin]
            at = _behind(data, begin, end)
        yield data[at:]

    def tokens(text: str) -> list[str]:
        if mode == 2:
            return list(text)
        pieces = [encoded(text)]
        for automaton in automata:
            if mode == 1:
                pieces = [data[a:b] for data in pieces for a, b in matches_in(data, automaton)]
            else:
                pieces = [piece for data in pieces for piece in between(data, automaton)]
            pieces = [piece for piece in pieces if len(decoded(piece)) >= least]
        return [decoded(piece) for piece in pieces]

    rows = [tokens(text) for text in x.flat]
    most = max(map(len, rows), default=0)
    width = most + 2 * mark if most else 0
    if mark and most:
        rows = [["\x02", *row, "\x03"] for row in rows]
    padded = [token for row in rows for token in [*row, *pad.flat[:1].tolist() * (width - len(row))]]
    return [objects(padded if width else [], (*x.shape, width))]


def find(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x, keys, their hash table -> the place of each element among the keys, or -1."""
    x, keys, _ = inputs
    places = {key: place for place, key in enumerate(keys.tolist())}
    return [np.array([places.get(v, -1) for v in x.reshape(-1).tolist()], np.int64).reshape(x.shape)]


def count_ngrams(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """tokens [n] or [rows, n], edges of a tree of n-grams, their hash table, column and weight of each node
    -> float32 [columns] or [rows, columns]. Attributes: columns, vocabulary, shortest and longest n-gram,
    most tokens skipped, 1 where weights add up."""
    tokens, edges, _, columns, weights = inputs
    size, vocabulary, shortest, longest, skips, adds = attributes
    nodes = {edge: place + 1 for place, edge in enumerate(edges.tolist())}
    rows = np.atleast_2d(tokens).tolist()
    result = np.zeros((len(rows), size), np.float32)
    for row, counts in zip(rows, result):
        for step in range(1, min(skips + 1, len(row)) + 1):
            least = max(shortest, 2) if step > 1 else shortest
            if least > longest:
                break
            for first in range(len(row)):
                node = 0
                for length, token in enumerate(row[first::step][:longest], 1):
                    node = nodes.get(node * vocabulary + token, 0) if token >= 0 else 0
                    if node == 0:
                        break
                    column = columns[node]
                    if column >= 0 and length >= least:
                        counts[column] = weights[node] + (counts[column] if adds else 0)
    return [result.reshape(*tokens.shape[:-1], size)]


TEXT_TWINS: dict[str, Callable[[Sequence, Sequence[int]], list]] = {
    "strings_joined": strings_joined,
    "split_strings": split_strings,
    "normalize_strings": normalize_strings,
    "match_strings": match_strings,
    "tokenize_strings": tokenize_strings,
    "find_integers": find,
    "find_strings": find,
    "count_ngrams": count_ngrams,
}
