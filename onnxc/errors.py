"""Everything that can go wrong, as one family of exceptions, each with its origin in the model.

A message is one sentence of under a kilobyte on one line, however long or hostile the names in it:
names are shortened in the middle and characters that a terminal would obey are escaped. What is wrong
with a model in many places is in `diagnostics.py`; opening a library imports this one.
"""

from __future__ import annotations

from .record import Record

NAME_LIMIT = 80
PATH_LIMIT = 200
MESSAGE_LIMIT = 1000  # bytes of UTF-8


def shorten(text: str, limit: int = NAME_LIMIT) -> str:
    """`text` on one printable line of at most `limit` characters, cut out of the middle."""
    if len(text) > limit:
        head = (limit - 1) // 2
        text = f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"
    return _printable(text)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{_code(c):02x}" for c in text)


def _code(character: str) -> int:
    """The character's number; of a byte that is no UTF-8, which Python has as a lone surrogate, the byte."""
    number = ord(character)
    return number - 0xDC00 if 0xDC80 <= number <= 0xDCFF else number


def quote(name: str | bytes) -> str:
    """A name of the model as it appears in a message: shortened, printable and in quotes."""
    if isinstance(name, bytes):
        name = name.decode("utf-8", "backslashreplace")
    return f"'{shorten(name)}'"


def one_line(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """`text` as one printable line of at most `limit` bytes of UTF-8; the end is cut first."""
    text = _printable(" ".join(text[: 4 * limit].split()))
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) > limit:
        encoded = encoded[: limit - 3] + "…".encode()
    return encoded.decode("utf-8", "ignore")


class Origin(Record):
    """The place in a model that something stems from; every field may be empty.

    `index` is the node's position in its graph, which names a node that has no name."""

    file: str = ""
    node: str = ""
    op_type: str = ""
    domain: str = ""
    opset: int | None = None
    index: int | None = None

    def filled_from(self, other: Origin) -> Origin:
        """This origin with what it leaves empty taken from `other`."""
        empty = {
            name: getattr(other, name)
            for name, value in self._asdict().items()
            if value is None or value == ""
        }
        return self._replace(**empty)

    def operator(self) -> str:
        """`Conv of opset 13`, `com.microsoft.Gelu of opset 1`, or nothing."""
        if not self.op_type:
            return ""
        name = shorten(f"{self.domain}.{self.op_type}" if self.domain else self.op_type)
        return f"{name} of opset {self.opset}" if self.opset is not None else name

    def __str__(self) -> str:
        place = ""
        if self.node:
            place = f"node {quote(self.node)}"
        elif self.index is not None:
            place = f"node #{self.index}"
        operator = self.operator()
        if place and operator:
            place = f"{place} ({operator})"
        parts = [shorten(self.file, PATH_LIMIT), place or operator]
        return ": ".join(part for part in parts if part)


def sentence(origin: Origin, reason: str, remedy: str) -> str:
    """Where it is, what is wrong there, and what to do about it, as far as they are known."""
    place = str(origin)
    text = f"{place}: {reason}" if place else reason
    return one_line(f"{text}; {remedy}" if remedy else text)


class OnnxcError(Exception):
    """Base of all errors: `reason` is one sentence, `remedy` what to do about it, if anything."""

    kind = "error"

    def __init__(self, reason: str, remedy: str = "", *, origin: Origin | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.origin: Origin = origin or Origin()

    def at(self, origin: Origin) -> OnnxcError:
        """This error, its origin completed from `origin`; for `raise error.at(...)`."""
        self.origin = self.origin.filled_from(origin)
        return self

    def __str__(self) -> str:
        return sentence(self.origin, self.reason, self.remedy)


class ModelError(OnnxcError):
    """The model breaks the ONNX specification or cannot be read."""

    kind = "invalid"


class ExternalDataError(ModelError):
    """A file that the model keeps tensors in is not there, not where it may be, or does not hold them."""

    kind = "external data"


class UnsupportedError(OnnxcError):
    """The model is valid, but onnxc does not support what it asks for."""

    kind = "unsupported"


class LimitError(OnnxcError):
    """Compiling would exceed one of the limits on size, number or nesting."""

    kind = "limit"


class CompileError(OnnxcError):
    """Code generation, the C compiler, the linker or writing the output failed."""

    kind = "compile"


class UsageError(CompileError):
    """What was asked for contradicts itself, whatever the model is."""

    kind = "usage"


class RunError(OnnxcError):
    """A compiled model refused its inputs or failed; `status` is the library's status code."""

    kind = "run"

    def __init__(
        self, reason: str, *, status: int = 1, origin: Origin | None = None, remedy: str = ""
    ) -> None:
        super().__init__(reason, origin=origin, remedy=remedy)
        self.status = status


class LoadError(OnnxcError):
    """A compiled library is damaged, foreign, of another version, or for another processor."""

    kind = "load"


class CacheError(LoadError):
    """There is no folder to keep compiled models in, or what is said of it is wrong."""


def warn(sentence: str, category: type[Warning] = UserWarning) -> None:
    """Warns of what a program asked for, at the line where it did."""
    import sys
    import warnings

    level, frame, own = 2, sys._getframe(1), __package__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == own:
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, category, stacklevel=level)
