"""What is wrong with a model in many places: checks report `Diagnostic`s, raised at once in `ModelErrors`."""

from __future__ import annotations

import os
from collections.abc import Iterable

from .errors import PATH_LIMIT, OnnxcError, Origin, one_line, sentence, shorten
from .record import Record


class Diagnostic(Record):
    """One problem of a model. `kind` is "invalid", "unsupported", "limit" or "external data"."""

    reason: str
    kind: str = "invalid"
    node: str = ""
    op_type: str = ""
    domain: str = ""
    opset: int | None = None
    index: int | None = None
    remedy: str = ""

    @property
    def origin(self) -> Origin:
        return Origin("", self.node, self.op_type, self.domain, self.opset, self.index)

    @classmethod
    def of(cls, error: OnnxcError) -> Diagnostic:
        """The diagnostic that says what `error` says."""
        place = error.origin
        return cls(
            error.reason,
            error.kind,
            place.node,
            place.op_type,
            place.domain,
            place.opset,
            place.index,
            error.remedy,
        )

    def __str__(self) -> str:
        return sentence(self.origin, self.reason, self.remedy)

    def to_dict(self) -> dict[str, object]:
        """The fields for JSON, names shortened as they are in messages."""
        return {
            name: one_line(value) if isinstance(value, str) else value
            for name, value in self._asdict().items()
        }


class DiagnosticList(list[Diagnostic]):
    """Diagnostics in the order of the model, printable one a line and as JSON."""

    def add(
        self, reason: str, origin: Origin | None = None, *, kind: str = "invalid", remedy: str = ""
    ) -> None:
        """Append one problem at `origin`."""
        place = origin or Origin()
        self.append(
            Diagnostic(
                reason, kind, place.node, place.op_type, place.domain, place.opset, place.index, remedy
            )
        )

    def __str__(self) -> str:
        return "\n".join(str(diagnostic) for diagnostic in self)

    def to_json(self) -> str:
        import json

        return json.dumps([diagnostic.to_dict() for diagnostic in self], indent=2)


class ModelErrors(OnnxcError):
    """Many problems of one model at once; `diagnostics` holds them all, `str` the first."""

    kind = "invalid"

    def __init__(self, diagnostics: Iterable[Diagnostic], file: str | os.PathLike[str] = "") -> None:
        self.diagnostics: DiagnosticList = DiagnosticList(diagnostics)
        first = str(self.diagnostics[0]) if self.diagnostics else "no problem"
        count = len(self.diagnostics)
        super().__init__(
            first if count == 1 else f"{count} problems, the first: {first}",
            origin=Origin(file=os.fspath(file)),
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (list(self.diagnostics), self.origin.file)

    def lines(self) -> list[str]:
        """One line a problem, each beginning with the model's file."""
        prefix = f"{shorten(self.origin.file, PATH_LIMIT)}: " if self.origin.file else ""
        return [one_line(f"{prefix}{diagnostic}") for diagnostic in self.diagnostics]

    def to_json(self) -> str:
        return self.diagnostics.to_json()
