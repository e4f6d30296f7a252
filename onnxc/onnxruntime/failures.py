"""ONNX Runtime's exceptions, and which of them stands for an error of onnxc.

What is raised is both: an `InvalidArgument` of ONNX Runtime's module that is also the `RunError` it was, with
all its attributes, so that programs written for either catch what they mean."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from ..diagnostics import ModelErrors
from ..errors import ExternalDataError, ModelError, OnnxcError, RunError, UnsupportedError


class Fail(Exception): ...


class InvalidArgument(Exception): ...


class NoSuchFile(Exception): ...


class NoModel(Exception): ...


class EngineError(Exception): ...


class RuntimeException(Exception): ...


class InvalidProtobuf(Exception): ...


class ModelLoaded(Exception): ...


class NotImplemented(Exception): ...


class InvalidGraph(Exception): ...


class EPFail(Exception): ...


class ModelLoadCanceled(Exception): ...


class ModelRequiresCompilation(Exception): ...


class NotFound(Exception): ...


class DeviceReset(Exception): ...


#: Number and name of each in messages.
_CODES = {
    Fail: (1, "FAIL"),
    InvalidArgument: (2, "INVALID_ARGUMENT"),
    NoSuchFile: (3, "NO_SUCHFILE"),
    InvalidProtobuf: (7, "INVALID_PROTOBUF"),
    NotImplemented: (9, "NOT_IMPLEMENTED"),
    InvalidGraph: (10, "INVALID_GRAPH"),
}

#: Statuses of a run (onnxc.h): wrong inputs, and ranks, indices and values that a node cannot take; what is
#: not supported.
_ARGUMENTS, _UNSUPPORTED = (*range(1, 9), 10, 11, 13, 22), 23


def made(kind: type[Exception], sentence: str) -> Exception:
    """An exception of the kind, its message as ONNX Runtime writes it."""
    number, name = _CODES[kind]
    return kind(f"[ONNXRuntimeError] : {number} : {name} : {sentence}")


def translated(error: OnnxcError, source: object = None, kind: type[Exception] | None = None) -> OnnxcError:
    """The same error as one that is also of ONNX Runtime's: of this kind, or the one that it stands for.
    source: the path of the model that was to be opened, if any."""
    if isinstance(error, tuple(_CODES)):
        return error
    found: Any = kind or _kind(error, source)
    own: Any = type(error)
    return _as(_both(found, own), error)


def missing_inputs(error: RunError, missing: list[str], fed: list[str]) -> RunError:
    """The error of a run that was not given all inputs, which is also a ValueError."""
    found = _as(_both(ValueError, RunError), error)
    found.reason = f"Required inputs ({missing}) are missing from input feed ({fed})."
    return found


def in_execution(error: RunError) -> RunError:
    """The error of a run on what is bound, which is also a RuntimeError."""
    found = _as(_both(RuntimeError, RunError), error)
    found.reason = f"Error in execution: {error.reason}"
    return found


def _as(kind: Any, error: OnnxcError) -> Any:
    """A copy of the error that is of another kind."""
    found = kind.__new__(kind)
    found.args = error.args
    vars(found).update(vars(error))
    return found


def _kind(error: OnnxcError, source: object) -> type[Exception]:
    if isinstance(source, (str, os.PathLike)) and not os.path.exists(source):
        return NoSuchFile
    if source == b"":
        return InvalidArgument
    if isinstance(error, RunError):
        if error.status in _ARGUMENTS:
            return InvalidArgument
        return NotImplemented if error.status == _UNSUPPORTED else Fail
    if isinstance(error, ModelErrors):
        if not any(problem.op_type for problem in error.diagnostics):
            return Fail  # what is wrong with the model as a whole
        kinds = {problem.kind for problem in error.diagnostics}
        return {"unsupported": NotImplemented, "external data": Fail}.get("".join(kinds), InvalidGraph)
    if isinstance(error, ModelError) and not isinstance(error, ExternalDataError):
        return InvalidProtobuf
    return NotImplemented if isinstance(error, UnsupportedError) else Fail


@cache
def _both(kind: Any, own: Any) -> Any:
    """A class of exceptions that are of either kind."""
    code = _CODES.get(kind)
    prefix = f"[ONNXRuntimeError] : {code[0]} : {code[1]} : " if code else ""

    def text(self: OnnxcError) -> str:
        return prefix + own.__str__(self)

    return type(kind.__name__, (kind, own), {"__str__": text, "__module__": kind.__module__})
