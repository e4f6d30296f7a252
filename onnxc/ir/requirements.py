"""What operands must satisfy, as inference says it (`ops.py`): once, for the compiler and for the run.

An op states its obligations to a `Need` while it infers its types. What is known to be wrong is refused at
once; what only the run can tell, of sizes that it binds, is recorded, and generated code checks it just
before the node runs (`ops.requirements`), so that kernels may rely on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..records import dataclass
from . import dims
from .dims import Dimension


class TypeMismatch(ValueError):
    """Operands do not fit the op; the text says why."""


RequirementKind = Literal["equal", "broadcast", "least", "inside"]


@dataclass(frozen=True)
class Requirement:
    """`equal`: a == b; `broadcast`: a is b or 1; `least`: a >= b; `inside`: b is the index of one of a
    places, a negative one from their end. Else the run fails with `code`, a status of onnxc.h in lower
    case."""

    kind: RequirementKind
    a: Dimension
    b: Dimension
    code: str
    origin: str


def inside(size: Dimension, index: Dimension) -> bool | None:
    """Whether an index, a negative one from the end, names one of `size` places; None where only the run can
    tell."""
    above, below = dims.less(index, size), dims.less(-index, size + 1)
    if False in (above, below):
        return False
    return None if None in (above, below) else True


class Need:
    """Takes an op's obligations: raises TypeMismatch where one is known to fail, records what is unknown.

    Reasons are format strings, written out over `of` only where they are needed.
    """

    def __init__(self, origin: str = ""):
        self.origin = origin
        self.recorded: dict[Requirement, None] = {}  # in order, each once

    def that(self, condition: bool | None, reason: str, *of: object) -> None:
        """What does not depend on the run; None (unknown) passes."""
        if condition is False:
            raise TypeMismatch(reason.format(*of))

    def equal(
        self, a: Dimension, b: Dimension, reason: str = "", *of: object, code: str = "dims_mismatch"
    ) -> None:
        if a is not b:
            self._take("equal", dims.equal(a, b), a, b, code, reason or "sizes {} and {} do not match", of)

    def least(
        self, a: Dimension, b: Dimension, reason: str = "", *of: object, code: str = "dims_mismatch"
    ) -> None:
        """a >= b."""
        less = dims.less(a, b)
        known = None if less is None else not less
        self._take("least", known, a, b, code, reason or "size {} is less than {}", of)

    def broadcast(self, operand: Sequence[Dimension], shape: Sequence[Dimension]) -> None:
        """Every axis of an operand has the size of the shape's, counted from the last, or 1."""
        self.that(len(operand) <= len(shape), "an operand {} has more axes than {}", operand, shape)
        for a, b in zip(operand, shape[len(shape) - len(operand) :], strict=True):
            self.repeats(a, b)

    def repeats(self, a: Dimension, b: Dimension) -> None:
        """a is b, or 1."""
        if a is not b and a != 1:
            wrong = dims.equal(a, b) is False and dims.equal(a, 1) is False
            known = True if dims.equal(a, b) else (False if wrong else None)
            self._take("broadcast", known, a, b, "dims_mismatch", "size {} does not repeat to {}", ())

    def inside(self, a: Dimension, b: Dimension) -> None:
        """b is the index of one of a places, a negative one from their end."""
        self._take(
            "inside", inside(a, b), a, b, "index_out_of_range", "index {1} is outside of {0} places", ()
        )

    def shape(self, given: Sequence[Dimension], expected: Sequence[Dimension]) -> None:
        """Every axis of a shape is as expected."""
        self.that(len(given) == len(expected), "{} axes should be {}", len(given), len(expected))
        for a, b in zip(given, expected, strict=True):
            self.equal(a, b)

    def _take(
        self,
        kind: RequirementKind,
        known: bool | None,
        a: Dimension,
        b: Dimension,
        code: str,
        reason: str,
        of: Sequence[object],
    ) -> None:
        if known is False:
            raise TypeMismatch(reason.format(*(of or (a, b))))
        if known is None:
            self.recorded[Requirement(kind, a, b, code, self.origin)] = None
