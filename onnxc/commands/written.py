"""The files that commands write: none takes the place of one that the command reads, or of another that it
writes; what accompanies the result is refused at once where it could not be written in the end."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from ..codegen.library.files import check_output, refuse_overwriting

#: What the files are that arguments name, alone or in lists, some as NAME=FILE.
READ = {
    "model": "model",
    "file": "model",
    "others": "model",
    "operators": "operators",
    "input": "input",
    "calibration": "calibration",
    "value_files": "value",
}
RESULTS = {"output": "output", "header": "header", "weights_file": "weights", "beside": "inputs"}
ACCOMPANYING = {"depfile": "rule", "trace": "trace", "html": "page"}


def check_written(options: argparse.Namespace, *results: str) -> None:
    """Raises UsageError where a file would be written over another; CompileError where it would be nowhere,
    if it is beside the result, or one of these results, which nothing else looks at before they are there."""
    read = [(what, file_of(path) or path) for name, what in READ.items() for path in _paths(options, name)]
    written = (RESULTS | ACCOMPANYING).items()
    refuse_overwriting(read, [(what, path) for name, what in written for path in _paths(options, name)])
    for name in (*ACCOMPANYING, *results):
        if getattr(options, name, None) is not None:
            check_output(getattr(options, name))


def _paths(options: argparse.Namespace, name: str) -> Iterator[str]:
    given = getattr(options, name, None)
    for entry in given if isinstance(given, list) else [] if given is None else [given]:
        path = os.fspath(entry)
        if "\0" not in path:  # which names no file
            yield path


def file_of(given: str) -> str | None:
    """The file that is read where NAME=FILE may be given, and either may have '=' in it; None where there is
    none: a number, for one."""
    places = [given, *(given[k + 1 :] for k, character in enumerate(given) if character == "=")]
    return next((place for place in places if os.path.exists(place)), None)
