"""What the texts of arguments become, each a `type` of argparse: a value, or an error that says why not,
told with the name of the argument. What a type alone needs is imported when it is used."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ..errors import CompileError, OnnxcError
from ..options import LONG
from ..target import find_target, find_targets


def path(text: str) -> Path:
    """The path of a file or folder, which the empty text is not."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def target(text: str) -> str:
    """The name of a processor that there is."""
    return _found(text, find_target)


def targets(text: str) -> str:
    """Names of processors that there are, with commas between them."""
    return _found(text, find_targets)


def _found(text: str, find: Callable[[str], object]) -> str:
    try:
        find(text)
        return text
    except CompileError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _digits(text: str) -> str:
    """What is to be a number: in digits of ASCII, with nothing between them, as those of NAME=N."""
    if not text.isascii() or "_" in text:
        raise ValueError
    return text


def positive(text: str) -> int:
    """An integer from 1 on."""
    number = int(_digits(text))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def seed(text: str) -> int:
    """An integer from 0 on."""
    number = int(_digits(text))
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is a negative number")
    return number


def tolerance(text: str) -> float:
    """A number from 0 on, infinity too."""
    number = float(_digits(text))
    if not number >= 0:  # nor is it NaN
        raise argparse.ArgumentTypeError(f"{text} is not 0 or a positive number")
    return number


def seconds(text: str) -> float:
    """A time that there can be: more than 0, less than LONG."""
    number = float(_digits(text))
    if not 0 < number < LONG:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return number


def byte_count(text: str) -> int:
    """500M or 20G as bytes."""
    from ..loading.housekeeping import size_of

    try:
        return size_of(text)
    except OnnxcError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def dimension(text: str) -> tuple[str, int]:
    """NAME=N: the name of a dimension and its size."""
    name, found, size = text.rpartition("=")
    if not found or not name or not size.isascii() or not size.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=N")
    return name, int(size)


def state(text: str) -> tuple[str, str]:
    """INPUT=OUTPUT: the name of a state's old value and of its new one."""
    old, found, new = text.partition("=")
    if not found or not old or not new:
        raise argparse.ArgumentTypeError(f"'{text}' is not INPUT=OUTPUT")
    return old, new


def value(text: str) -> tuple[object, ...]:
    """INPUT=V: the name of an input, its value, and the file that has it, if any."""
    name, found, given = text.partition("=")
    if found and name and given.endswith(".npy"):
        from ..inputs import load_array

        try:
            return name, load_array(given), given
        except OnnxcError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    import json

    try:
        if not found or not name:
            raise ValueError
        return name, json.loads(given)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not INPUT=NUMBER, INPUT=[...] or INPUT=A.npy"
        ) from None


def shape(text: str) -> tuple[str, tuple[int | None, ...]]:
    """INPUT=N,N,...: the name of an input and its shape, None for an axis that is `?`."""
    name, found, sizes = text.rpartition("=")
    parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
    if not found or not name or not all(p == "?" or (p.isascii() and p.isdigit()) for p in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not INPUT=N,N,...")
    return name, tuple(None if part == "?" else int(part) for part in parts)


def rivals(text: str) -> tuple[str, ...]:
    """Names of engines to be measured beside, each once."""
    from .rivals import RIVALS

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in RIVALS:
            raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(RIVALS)}")
    return names
