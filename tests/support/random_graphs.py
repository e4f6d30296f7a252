"""Random ONNX graphs, valid by construction: what values, sizes and errors they have is known as they grow.

A graph is made for several runs at once: a `Term` has one shape a run, and an axis whose sizes differ is a
symbolic dimension, named by those sizes. Terms carry bounds of their values and of the difference that two
correct implementations may have; 0 where sums and products of small multiples of a power of two leave nothing
to round. So only exact terms are compared, rounded or sorted, and tolerances follow from the graph.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}  # of the significand
FLOATS = tuple(BITS)
INTEGERS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32")
GREATEST = 12000  # elements of a term

Dim = tuple[int, ...]  # the sizes of an axis, one a run


class Unfit(Exception):
    """A template finds nothing to work on here."""


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def onnx_type(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(numpy_type(dtype))


@dataclass(frozen=True)
class Term:
    """A value of the graph. `dims`: its axes; low..high: where its elements are, exact ones being multiples
    of 2**-grid; `error`: how far two implementations may be apart; `known`: its data in each run."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    low: float = 0.0
    high: float = 1.0
    grid: int = 0
    error: float = 0.0
    known: tuple[np.ndarray, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def most(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def is_float(self) -> bool:
        return self.dtype in BITS

    @property
    def exact(self) -> bool:
        return self.error == 0

    @property
    def static(self) -> bool:
        return all(len(set(d)) == 1 for d in self.dims)

    def shape(self, run: int) -> tuple[int, ...]:
        return tuple(d[run] for d in self.dims)

    def count(self) -> int:
        """Elements in the largest run."""
        return max((math.prod(sizes) for sizes in zip(*self.dims)), default=1)


def limits(dtype: str) -> tuple[float, float]:
    if dtype == "bool":
        return 0, 1
    if dtype in BITS:
        return -math.inf, math.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def rounded(term: Term, steps: float = 1, most: float | None = None) -> Term:
    """term after `steps` roundings of values up to `most`, which leave exact ones alone that fit. Values of
    integers wrap. Floats that would grow too large are unfit."""
    if not term.is_float:
        low, high = limits(term.dtype)
        inside = low <= term.low and term.high <= high
        return term if inside else replace(term, low=low, high=high)
    most = max(term.most, most or 0)
    if most > (2e4 if term.dtype == "float16" else 1e9):
        raise Unfit
    if term.error == 0 and most * 2**term.grid <= 2 ** BITS[term.dtype]:
        return term
    return replace(term, error=term.error + steps * most * 2.0 ** -BITS[term.dtype] + tiny(term.dtype))


def tiny(dtype: str) -> float:
    return 1e-7 if dtype == "float16" else 1e-37


@dataclass
class Random:
    """A graph under construction, and the inputs of its runs."""

    source: random.Random
    runs: int = 1
    sizes: tuple[Dim, ...] = ()
    terms: list[Term] = field(default_factory=list)
    nodes: list = field(default_factory=list)
    inputs: list[tuple[Term, bool]] = field(default_factory=list)
    initializers: list = field(default_factory=list)
    feeds: list[dict[str, np.ndarray]] = field(default_factory=list)
    names: int = 0
    depth: int = 0
    opset: int = 21
    empty: frozenset[int] = frozenset()

    # Choosing

    def integer(self, low: int, high: int) -> int:
        return self.source.randint(low, high)

    def choice(self, among: Sequence):
        if not among:
            raise Unfit
        return among[self.source.randrange(len(among))]

    def chance(self, one_in: int) -> bool:
        return self.source.randrange(one_in) == one_in - 1

    def subset(self, among: Sequence) -> list:
        return [x for x in among if self.source.randrange(2)]

    def size(self) -> Dim:
        """An axis for a new input."""
        return self.choice(self.sizes)

    def fixed(self, size: int) -> Dim:
        return (size,) * self.runs

    def pick(self, fits: Callable[[Term], bool] = lambda t: True, dtypes: Sequence[str] = ()) -> Term:
        """A term of the graph, a recent one more likely, or a new leaf."""
        found = [t for t in self.terms if fits(t) and (not dtypes or t.dtype in dtypes)]
        if found and not self.chance(8):
            return found[-1] if self.chance(2) else self.choice(found)
        leaf = self.leaf(self.choice(dtypes or ("float32",)), self.shape())
        if fits(leaf):
            return leaf
        return self.choice(found)

    def shape(self, rank: int | None = None) -> tuple[Dim, ...]:
        while True:
            dims = tuple(self.size() for _ in range(self.integer(0, 4) if rank is None else rank))
            if Term("", "bool", dims).count() <= GREATEST:
                return dims

    # Making

    def name(self) -> str:
        self.names += 1
        return f"t{self.names}"

    def leaf(
        self,
        dtype: str,
        dims: Sequence[Dim],
        low: float = -4,
        high: float = 4,
        grid: int = 3,
        constant: bool | None = None,
        anonymous: bool | None = None,
    ) -> Term:
        """An input or an initializer of random multiples of 2**-grid in low..high."""
        dims, seed = tuple(dims), self.integer(0, 2**20)
        if dtype not in BITS:
            least, greatest = limits(dtype)
            low, high, grid = max(low, least), min(high, greatest), 0
        rng, data = np.random.default_rng(seed), []
        for run in range(self.runs):
            shape = tuple(d[run] for d in dims)
            whole = rng.integers(math.ceil(low * 2**grid), math.floor(high * 2**grid) + 1, shape)
            data.append(np.asarray(whole / 2**grid).astype(numpy_type(dtype)))
        return self.given(dtype, dims, data, low, high, grid, constant, anonymous)

    def given(
        self,
        dtype: str,
        dims: Sequence[Dim],
        data: Sequence[np.ndarray],
        low: float,
        high: float,
        grid: int = 0,
        constant: bool | None = None,
        anonymous: bool | None = None,
    ) -> Term:
        """An input, whose sizes may be declared unknown if `anonymous`, or an initializer where every run
        has the same shape, with these data."""
        term = Term(self.name(), dtype, tuple(dims), low, high, grid)
        static = term.static if constant is None else constant
        if static and (constant or self.chance(2)):
            self.initializers.append(numpy_helper.from_array(np.asarray(data[0]), term.name))
        else:
            self.inputs.append((term, self.chance(5) if anonymous is None else anonymous))
            for feed, array in zip(self.feeds, data, strict=True):
                feed[term.name] = np.asarray(array)
        return term

    def array(self, data: np.ndarray | list, dtype: str = "int64") -> Term:
        """An initializer."""
        data = np.asarray(data, numpy_type(dtype))
        low, high = (float(data.min()), float(data.max())) if data.size else (0, 0)
        dims = tuple(self.fixed(s) for s in data.shape)
        return self.given(dtype, dims, [data] * self.runs, low, high, 3, constant=True)

    def add(self, operator: str, inputs: Sequence[Term | None], *outputs: Term, **attributes) -> Term:
        """A node; its outputs get names and join the graph. The first of them."""
        for term in outputs:
            if term.count() > GREATEST:
                raise Unfit
        read = [t for t in inputs if t is not None]
        self.empty |= {run for t in (*read, *outputs) for d in t.dims for run, n in enumerate(d) if n == 0}
        named = [replace(t, name=self.name()) for t in outputs]
        self.nodes.append(
            helper.make_node(
                operator,
                [t.name if t else "" for t in inputs],
                [t.name for t in named],
                name=named[0].name,
                **attributes,
            )
        )
        self.terms.extend(named)
        return named[0]

    def within(self, x: Term, low: float, high: float) -> Term:
        """x with its elements in low..high, clipped where they may not be."""
        if low <= x.low and x.high <= high:
            return x
        bounds = [self.array(low, x.dtype), self.array(high, x.dtype)]
        return self.add(
            "Clip",
            [x, *bounds],
            replace(
                x,
                low=min(max(x.low, low), high),
                high=max(min(x.high, high), low),
                grid=max(x.grid, 4),
                known=None,
            ),
        )

    # Sizes

    def numbers(self, wanted: Sequence[Sequence[int]]) -> Term:
        """An int64 vector whose elements in each run are wanted[run]: constant, computed from shapes, or
        an input."""
        columns = list(zip(*wanted)) if wanted[0] else []
        data = [np.asarray(w, np.int64) for w in wanted]
        low, high = (min(map(min, columns)), max(map(max, columns))) if columns else (0, 0)
        if all(len(set(c)) == 1 for c in columns) and not self.chance(4):
            return self.array(list(wanted[0]))
        parts = [self._number(c) for c in columns]
        if self.chance(4) or None in parts or not parts:
            dims = (self.fixed(len(columns)),)
            return self.given("int64", dims, data, low, high, constant=False, anonymous=False)
        term = Term("", "int64", (self.fixed(len(columns)),), low, high, known=tuple(data))
        return parts[0] if len(parts) == 1 else self.add("Concat", parts, term, axis=0)

    def _number(self, column: Dim) -> Term | None:
        """A vector of one element computed from the shape of some term."""
        if len(set(column)) == 1:
            return self.array([column[0]])
        for offset in (0, 1, -1, 2, -2):
            wanted = tuple(c - offset for c in column)
            found = [(t, k) for t in self.terms for k, d in enumerate(t.dims) if d == wanted]
            if not found:
                continue
            term, axis = self.choice(found)
            whole = Term("", "int64", (self.fixed(term.rank),), 0, GREATEST)
            one = Term("", "int64", (self.fixed(1),), 0, GREATEST)
            part = self.add("Gather", [self.add("Shape", [term], whole), self.array([axis])], one)
            return part if not offset else self.add("Add", [part, self.array([offset])], one)
        return None

    def per_run(self, dims: Sequence[Dim]) -> list[list[int]]:
        """The shape of each run."""
        return [[d[run] for d in dims] for run in range(self.runs)]

    def data(self, leaf: Term, run: int) -> np.ndarray:
        """What a leaf holds in a run."""
        stored = next((t for t in self.initializers if t.name == leaf.name), None)
        return self.feeds[run][leaf.name] if stored is None else numpy_helper.to_array(stored)

    # Regions

    def region(self, inside: Callable[[Random], Sequence[Term]], inputs: Sequence[Term] = ()) -> tuple:
        """(GraphProto, its outputs as terms) of the nodes that `inside` adds; what they make stays inside."""
        outer, known, self.nodes, self.terms = self.nodes, self.terms, [], [*self.terms, *inputs]
        self.depth += 1
        try:
            outputs = [self._made_here(t) for t in inside(self)]
            graph = helper.make_graph(
                self.nodes,
                f"region{self.name()}",
                [_info(t, False) for t in inputs],
                [onnx.ValueInfoProto(name=t.name, type=_bare_type(t)) for t in outputs],
            )
        finally:
            self.nodes, self.terms, self.depth = outer, known, self.depth - 1
        return graph, outputs

    def _made_here(self, term: Term) -> Term:
        if any(term.name in node.output for node in self.nodes):
            return term
        return self.add("Identity", [term], term)


def _bare_type(term: Term) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(onnx_type(term.dtype), [None] * term.rank)


def _info(term: Term, anonymous: bool) -> onnx.ValueInfoProto:
    """The declaration of an input: sizes that differ between runs are variables named by them."""
    shape = [
        d[0]
        if len(set(d)) == 1 and not (anonymous and len(d) > 1)
        else None
        if anonymous
        else "d" + "_".join(map(str, d))
        for d in term.dims
    ]
    return helper.make_tensor_value_info(term.name, onnx_type(term.dtype), shape)


@dataclass(frozen=True)
class Case:
    """A model, the inputs of its runs, its outputs as terms, and the runs in which some tensor is empty."""

    model: onnx.ModelProto
    feeds: list[dict[str, np.ndarray]]
    outputs: list[Term]
    empty: frozenset[int]


SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 70, 130)


def random_case(
    source: random.Random, templates: Sequence[Callable[[Random], object]], most: int = 20, parts: int = 1
) -> Case:
    """A graph of about 2 to `most` nodes of the templates; half of them have symbolic dimensions. Several
    parts, which share nothing but the sizes, take little more time to compile than one."""
    runs = 3 if source.randrange(2) else 1
    r = Random(source, runs, feeds=[{} for _ in range(runs)])
    numbers = [1, *(r.choice(SIZES[2:]) for _ in range(3))]
    r.sizes = tuple(r.fixed(n) for n in numbers)
    for _ in range(2):
        r.sizes += (tuple(r.choice(SIZES) for _ in range(runs)),) * 2
    made: list[Term] = []
    for _ in range(parts):
        r.terms = [r.leaf("float32", r.shape())]
        wanted = len(r.nodes) + r.integer(2, most)
        for _ in range(4 * most):
            attempt(r, r.choice(templates))
            if len(r.nodes) >= wanted:
                break
        made += r.terms
    r.terms = made
    return finish(r)


def attempt(r: Random, template: Callable[[Random], object]) -> bool:
    """Applies the template, or leaves the graph as it was where it does not fit."""
    before, known = list(r.nodes), list(r.terms)
    try:
        template(r)
        return True
    except Unfit:
        r.nodes[:], r.terms[:] = before, known
        return False


def finish(r: Random) -> Case:
    """The model: its outputs are what nothing reads and some of the rest."""
    made = {name for node in r.nodes for name in node.output if name}
    used = set(_read(r.nodes))
    outputs = [t for t in r.terms if t.name in made and (t.name not in used or r.chance(6))]
    if not outputs:
        outputs = [r.add("Identity", [r.terms[0]], r.terms[0])]
        used = set(_read(r.nodes))
    inputs = [(t, anonymous) for t, anonymous in r.inputs if t.name in used]
    graph = helper.make_graph(
        r.nodes,
        "random",
        [_info(t, anonymous) for t, anonymous in inputs],
        [onnx.ValueInfoProto(name=t.name, type=_bare_type(t)) for t in outputs],
        [t for t in r.initializers if t.name in used],
    )
    opsets = [helper.make_opsetid("", r.opset), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    names = {t.name for t, _ in inputs}
    return Case(model, [{k: v for k, v in feed.items() if k in names} for feed in r.feeds], outputs, r.empty)


def _read(nodes: Sequence) -> list[str]:
    """Names that nodes read, those in their regions included."""
    found = []
    for node in nodes:
        found += [name for name in node.input if name]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += _read(attribute.g.node)
    return found
