"""`-` in the place of a file: a model comes from standard input, a library or outputs go to standard output.

The compiler reads a model more than once, so that standard input is kept in a temporary file while a command
runs; what goes to standard output is whole before its first byte is written. Nothing that is printed tells
the names of these files.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from ..codegen.library.files import naming
from ..errors import CompileError, UsageError, one_line

STREAM = Path("-")
READ = ("model", "file")  # the arguments that may be standard input
OUTPUT = Path("standard output")  # as it is called
CODES = "onnxc.codes"  # what streams do with characters that their encoding lacks


def take_anything() -> None:
    """Anything can be printed from now on: to nowhere where a stream is closed, and what an encoding lacks as
    its code, as messages have it."""
    codecs.register_error(CODES, _codes)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=CODES)


def _codes(error: UnicodeError) -> tuple[str | bytes, int]:
    """What is written in the place of characters that an encoding lacks."""
    written, end = codecs.backslashreplace_errors(error)
    if isinstance(error, UnicodeEncodeError):  # \\xff of a byte that is no UTF-8, not \\udcff
        written = re.sub(r"\\udc([89a-f][0-9a-f])", r"\\x\1", str(written))
    return written, end


@contextlib.contextmanager
def named_output() -> Iterator[None]:
    """Has standard output named by the system's errors at writing to it."""
    with contextlib.redirect_stdout(_Named(sys.stdout)):
        yield


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Has warnings printed as errors are, without a line of source."""

    def show(message: Warning | str, *_: object, **others: object) -> None:
        print(f"onnxc: warning: {one_line(str(message))}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def drop_output() -> None:
    """Lets what standard output still holds go nowhere, since it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def standard_streams(options: argparse.Namespace) -> Iterator[None]:
    """Puts temporary files where options name a stream, and writes them to standard output at the end; what
    else is printed then goes to standard error, behind that."""
    read = [name for name in READ if getattr(options, name, None) == STREAM]
    options.piped = None  # the file that has standard input
    options.streamed = writes = getattr(options, "output", None) == STREAM
    if not read and not writes:
        yield
        return
    if writes and getattr(options, "weights_file", None):
        raise _weights_apart()
    if writes and getattr(options, "depfile", None):
        raise UsageError("a rule is of a library in a file", remedy="give -o OUT.so")
    if writes and sys.__stdout__ is None:
        raise CompileError("standard output is closed", remedy="give a file")
    with tempfile.TemporaryDirectory(prefix="onnxc-") as folder:
        source, result = Path(folder, "model.onnx"), Path(folder, "out", "model.so")
        if read:
            _keep_standard_input(source)
            options.piped = str(source)
        for name in read:
            setattr(options, name, source)
        if writes:
            result.parent.mkdir()
            options.output = result
        spoken = {str(source): "standard input", str(result): str(OUTPUT)}
        kept = io.StringIO()
        printed, told = _Renaming(kept if writes else sys.stdout, spoken), _Renaming(sys.stderr, spoken)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
            yield
        if writes and result.exists():
            if len(list(result.parent.iterdir())) > 1:
                raise _weights_apart()
            with result.open("rb") as file, naming(OUTPUT):
                shutil.copyfileobj(file, sys.stdout.buffer)
                sys.stdout.buffer.flush()
        sys.stderr.write(kept.getvalue())


def _weights_apart() -> UsageError:
    """Of a library that finds its weights by their place beside it."""
    return UsageError("weights in a file of their own need a library beside it", remedy="give -o OUT.so")


def _keep_standard_input(path: Path) -> None:
    if sys.stdin is None:
        raise CompileError("standard input is closed", remedy="give a file, or pipe a model to it")
    if sys.stdin.isatty():
        raise CompileError("standard input is a terminal", remedy="give a file, or pipe a model to it")
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)


class _Named:
    """Standard output, named by the system's errors."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        with naming(OUTPUT):
            return self.stream.write(text)

    def flush(self) -> None:
        with naming(OUTPUT):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Renaming:
    """A text stream to which some paths are written by other names."""

    def __init__(self, stream: TextIO, names: Mapping[str, str]):
        self.stream, self.names = stream, names

    def write(self, text: str) -> int:
        for path, name in self.names.items():
            text = text.replace(path, name)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
