"""Import rules of text: calls of the runtime on tables that are made here.

Where ONNX's reference implementation and ONNX Runtime differ the specification decides, then ONNX Runtime:
spaces around a text that is split at spaces do not count, a stop word is a whole element, and letters
change case one by one whatever the locale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir import dims, ops
from ...ir.builder import Builder
from ...ir.graph import TensorType, Value
from ...ir.text_twins import encoded
from ..automaton import regex_automaton
from ..rules import BROADCAST, onnx_op
from ..text_tables import case_table, changed, integer_table, string_table
from .common import integers, one_of, require


def texts(b: Builder, values: Sequence[str]) -> Value:
    """A constant vector of strings."""
    array = np.empty(len(values), object)
    array[:] = values
    return b.constant(array)


@onnx_op(since=20, ranks=BROADCAST)
def StringConcat(b, X, Y):
    shape = ops.broadcast_shapes(X.shape, Y.shape)
    operands = [b.broadcast(x, shape) for x in (X, Y)]
    return b.call("strings_joined", operands, [TensorType("string", shape)])[0]


@onnx_op(since=20)
def StringSplit(b, X, *, delimiter=None, maxsplit=None):
    most = -1 if maxsplit is None else max(maxsplit, -1)
    types = [TensorType("string", (*X.shape, b.fresh("pieces"))), TensorType("int64", X.shape)]
    return b.call("split_strings", [X, texts(b, [delimiter or ""])], types, [most])


@onnx_op(since=10)
def StringNormalizer(b, X, *, case_change_action="NONE", is_case_sensitive=0, locale=None, stopwords=None):
    """Where case is of no account words are compared in capitals if they are given so, else small."""
    one_of(case_change_action, ("LOWER", "UPPER", "NONE"), "case_change_action")
    if X.rank not in (1, 2) or (X.rank == 2 and dims.equal(X.shape[0], 1) is False):
        raise ops.TypeMismatch(f"its input is {X.type} where [C] or [1, C] is needed")
    folds = "UPPER" if case_change_action == "UPPER" else "LOWER"
    compared = case_table("NONE" if is_case_sensitive else folds)
    words = {changed(word, compared) for word in stopwords or ()}
    if X.rank == 2:
        require(b, [(X.shape[0], 1)], "its input")
        X = b.reshape(X, (1, X.tensor.count))
    result = TensorType("string", (*X.shape[:-1], b.fresh("kept", 1)))
    tables = [b.constant(table) for table in (compared, case_table(case_change_action))]
    operands = [X, texts(b, sorted(words, key=encoded)), *tables]
    return b.call("normalize_strings", operands, [result])[0]


@onnx_op(since=20)
def RegexFullMatch(b, X, *, pattern=None):
    automaton = regex_automaton(pattern or "")
    tables = [b.constant(table) for table in (automaton.classes, automaton.following, automaton.final)]
    return b.call("match_strings", [X, *tables], [TensorType("bool", X.shape)])[0]


# Vocabularies ------------------------------------------------------------------------------------


def places(b: Builder, x: Value, keys: Sequence) -> Value:
    """For each element its place among distinct keys, strings or integers as it is; -1 where it is none."""
    if x.dtype == "string":
        known, table, symbol = texts(b, keys), string_table(keys), "find_strings"
    else:
        known, table, symbol = b.constant(np.array(keys, np.int64)), integer_table(keys), "find_integers"
    return b.call(symbol, [x, known, b.constant(table)], [TensorType("int64", x.shape)])[0]


@onnx_op(since=9)
def TfIdfVectorizer(
    b,
    X,
    *,
    max_gram_length,
    max_skip_count,
    min_gram_length,
    mode,
    ngram_counts,
    ngram_indexes,
    pool_int64s=None,
    pool_strings=None,
    weights=None,
):
    """Tokens become their places in the vocabulary, and n-grams ways from the root of a tree: node k + 1 is
    where its edge k leads. An n-gram's weight is that of its place in the pool."""
    one_of(mode, ("TF", "IDF", "TFIDF"), "mode")
    if (pool_int64s is None) == (pool_strings is None):
        raise ops.TypeMismatch("one of the attributes pool_int64s and pool_strings is needed")
    pool = pool_strings if pool_int64s is None else pool_int64s
    if (X.dtype == "string") != (pool_int64s is None):
        raise ops.TypeMismatch(
            f"its input is {X.type} where its pool has {'strings' if pool_strings else 'integers'}"
        )
    if X.rank > 2:
        raise ops.TypeMismatch(f"its input is {X.type} where [C] or [N, C] is needed")
    for value, name in (
        (max_gram_length, "max_gram_length"),
        (min_gram_length, "min_gram_length"),
        (max_skip_count, "max_skip_count"),
    ):
        integers([value], 1, 0, name, least=int(name != "max_skip_count"))
    grams = _grams(pool, ngram_counts, len(ngram_indexes))
    scale = _weights(weights if mode != "TF" else None, len(grams))
    columns = max(integers(ngram_indexes, len(ngram_indexes), 0, "ngram_indexes", least=0)) + 1
    keys = list(dict.fromkeys(pool))
    place = {key: k for k, key in enumerate(keys)}
    edges: dict[int, int] = {}
    ends: dict[int, int] = {}  # node → number of the n-gram that ends there
    for number, gram in enumerate(grams):
        node = 0
        if min_gram_length <= len(gram) <= max_gram_length:
            for token in gram:
                node = 1 + edges.setdefault(node * len(keys) + place[token], len(edges))
            ends[node] = number
    column, weight = np.full(len(edges) + 1, -1, np.int32), np.zeros(len(edges) + 1, np.float32)
    for node, number in ends.items():
        column[node], weight[node] = ngram_indexes[number], scale[number]
    X = b.reshape(X, (1,)) if X.rank == 0 else X
    tables = (np.array(list(edges), np.int64), integer_table(list(edges)), column, weight)
    return b.call(
        "count_ngrams",
        [places(b, X, keys), *map(b.constant, tables)],
        [TensorType("float32", (*X.shape[:-1], columns))],
        [columns, len(keys), min_gram_length, max_gram_length, max_skip_count, int(mode != "IDF")],
    )[0]


def _grams(pool: Sequence, starts: Sequence[int], count: int) -> list[tuple]:
    """The n-grams of a pool, single tokens first; `starts` says where those of each length begin."""
    found = []
    for length, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1):
        if not 0 <= begin <= end <= len(pool) or (end - begin) % length:
            raise ops.TypeMismatch(f"the attribute ngram_counts gives {length}-grams from {begin} to {end}")
        found += [tuple(pool[k : k + length]) for k in range(begin, end, length)]
    if len(found) != count or not found:
        raise ops.TypeMismatch(f"its pool has {len(found)} n-grams and ngram_indexes {count}")
    return found


def _weights(weights: Sequence[float] | None, count: int) -> Sequence[float]:
    if weights and len(weights) != count:
        raise ops.TypeMismatch(f"the attribute weights has {len(weights)} values where {count} are needed")
    return weights or (1.0,) * count
