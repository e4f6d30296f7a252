"""`onnxc completion SHELL`: a script by which a shell completes commands, options and files.

`shtab` writes it from the parser that the command line has.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .actions import OK


def completion_command(options: argparse.Namespace) -> int:
    import shtab

    _complete_files(options.parser, shtab.FILE)
    print(shtab.complete(options.parser, options.shell))
    return OK


def _complete_files(parser: argparse.ArgumentParser, complete: object) -> None:
    """Whatever is a path is completed as one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command, complete)
        elif action.type is Path:
            action.complete = complete  # type: ignore[attr-defined]  # what shtab looks for
