"""Tensors whose rank only the run knows, as operands of a node: each with the rank that it has in the case at
hand.

What follows from such a tensor is imported once for each rank that it may have (`RanksDiffer`), and cases of
several operands multiply. So rules state what they know of ranks (`Rule.ranks`): one that is given needs no
cases, one that operands have in common is one question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from ..ir import dims as dimension
from ..ir.builder import Builder
from ..ir.dims import Dimension
from ..ir.graph import SequenceType, TensorType, UnrankedType, Value
from ..ir.ops import TypeMismatch
from .rule_builder import RuleBuilder, holds
from .rules import ANY_RANK, Rank

#: Where only the run knows a tensor's rank, what computes with it is imported for 0 to as many axes.
MOST_AXES = 5


class Ranks:
    """What an import has found of tensors without a rank."""

    def __init__(self) -> None:
        self.told: dict[Value, Dimension] = {}
        #: In a region: the same as tensors of their rank, and the first elements of sequences of them.
        self.met: dict[tuple[Value, Builder], Value] = {}
        #: The same with ones before their axes, by how many these are together and are behind a vector's.
        self.extended: dict[tuple[Value, int, int, Builder], Value] = {}

    def operands(
        self, b: RuleBuilder, stated: Sequence[Rank | None], operands: Sequence[Value | None]
    ) -> list[Value | None]:
        """Operands with the ranks that are stated of them; RanksDiffer where several are left."""
        pairs = list(zip(operands, stated))
        found = [v if v is None or rank == ANY_RANK else self._known(b, v) for v, rank in pairs]
        sharing: dict[int | str, list[tuple[Value, Rank]]] = {}
        for value, rank in zip(found, stated):
            if (
                value is not None
                and rank is not None
                and not isinstance(rank.axes, tuple)
                and rank != ANY_RANK
            ):
                sharing.setdefault(rank.axes, []).append((value, rank))
        counts = {
            axes: self._count(b, axes, of) for axes, of in sharing.items() if any(_is_open(v) for v, _ in of)
        }
        for k, (value, rank) in enumerate(zip(found, stated)):
            if value is None or rank == ANY_RANK or not _is_open(value):
                continue
            if rank is None:
                found[k] = self.ranked(b, value)
            elif isinstance(rank.axes, tuple):
                found[k] = self.ranked(b, value, rank.axes)
            elif rank.fewer:
                found[k] = self._extended(b, value, counts[rank.axes], rank.rows)
            else:
                found[k] = self.with_rank(b, value, counts[rank.axes])
        return found

    def _count(self, b: RuleBuilder, axes: int | str, sharing: Sequence[tuple[Value, Rank]]) -> int:
        """How many axes are stated: those of the operands that have no fewer, else the most that one has."""
        if isinstance(axes, int):
            return axes
        exact = sorted((v for v, rank in sharing if not rank.fewer), key=_is_open)
        if exact:
            return self.ranked(b, exact[0]).rank
        least = max((v.rank for v, _ in sharing if not _is_open(v)), default=0)
        unknown = list(dict.fromkeys(v for v, _ in sharing if _is_open(v)))
        if len(unknown) == 1:  # of which the nodes that follow then know the rank, too
            return max(least, self.ranked(b, unknown[0]).rank)
        most = reduce(dimension.maximum, [least, *(self._told(b, v) for v in unknown)])
        return _decided(b, most, range(least, MOST_AXES + 1))

    def ranked(self, b: RuleBuilder, value: Value, among: Sequence[int] = range(MOST_AXES + 1)) -> Value:
        """A tensor as one of the rank that it has, one of these; RanksDiffer where several are left."""
        value = self._known(b, value)
        if not _is_open(value):
            return value
        return self.with_rank(b, value, _decided(b, self._told(b, value), among))

    def with_rank(self, b: RuleBuilder, value: Value, rank: int) -> Value:
        """A tensor as one of this rank, unless its own is known; the run fails where it is another."""
        value = self._known(b, value)
        if _is_open(value):
            home = b.home(value)[1]
            value = self.met[home, b] = _called(b, "with_rank", home, rank)
        return value

    def _extended(self, b: RuleBuilder, value: Value, rank: int, rows: bool) -> Value:
        """A tensor with ones before its axes, so many together; the run fails where it has more. rows: a
        vector's axis is the last but one."""
        home, behind = b.home(value)[1], int(rows and rank > 1)
        found = _found(b, lambda around: self.extended.get((home, rank, behind, around)))
        if found is None:
            found = _called(b, "with_leading_ones", home, rank, rank, behind)
            self.extended[home, rank, behind, b] = found
        return found

    def first_of(self, b: RuleBuilder, sequence: Value) -> Value:
        """The first element of a sequence, the same value whenever it is asked for; ranked."""
        assert isinstance(sequence.type, SequenceType) and sequence.type.element is not None
        found = _found(b, lambda around: self.met.get((sequence, around)))
        if found is None:
            zero = b.constant(0, "int64")
            found = b.call("sequence_at", [sequence, zero], [sequence.type.element])[0]
            self.met[sequence, b] = found
        return self.ranked(b, found)

    def _known(self, b: RuleBuilder, value: Value) -> Value:
        """A value, or a tensor without a rank as one of the rank that was found before."""
        if not _is_open(value):
            return value
        home = b.home(value)[1]
        return _found(b, lambda around: self.met.get((home, around))) or value

    def _told(self, b: RuleBuilder, value: Value) -> Dimension:
        """A tensor's rank, told where the tensor comes from for all who read it."""
        home, value = b.home(value)
        if value not in self.told:
            count = home.call("rank_of", [value], [TensorType("int64", ())])[0]
            self.told[value] = home.dimension(count, 0, "rank")
        return self.told[value]


def _is_open(value: Value) -> bool:
    return isinstance(value.type, UnrankedType)


def _decided(b: RuleBuilder, rank: Dimension, among: Sequence[int]) -> int:
    """A rank as one of these numbers; RanksDiffer where several are left."""
    for number in among:
        if holds(b, dimension.compare("eq", rank, number)):
            return number
    raise TypeMismatch(f"a tensor of {' or '.join(map(str, among))} axes is needed")


def _called(b: RuleBuilder, symbol: str, value: Value, rank: int, *attributes: int) -> Value:
    assert isinstance(value.type, UnrankedType)
    type_ = TensorType(value.type.dtype, tuple(b.fresh("n") for _ in range(rank)))
    return b.call(symbol, [value], [type_], attributes)[0]


def _found(b: Builder, at: Callable[[Builder], Value | None]) -> Value | None:
    """What there is of a region or of the first around it that has any."""
    around: Builder | None = b
    while around is not None:
        found = at(around)
        if found is not None:
            return found
        around = around.parent
    return None
