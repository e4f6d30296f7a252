"""Operators that files bring beside a model: what the import knows of them, and code for the link."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path

from .codegen.library import custom
from .errors import CompileError, OnnxcError, one_line, quote
from .frontend.c_operators import declared_operators
from .frontend.operator_sets import OperatorSet, read_operator_set
from .frontend.operators import Operators
from .frontend.rules import Rule
from .records import dataclass
from .target import Target


@dataclass(frozen=True)
class Given:
    """The operators in the files that were given beside a model, and the code of those that are C."""

    operators: Operators
    code: Sequence[custom.CustomCode]


def given_operators(paths: Iterable[str | os.PathLike], directory: Path, target: Target) -> Given:
    """What files bring: a C source (compiled into `directory`), object, archive or shared library that
    declares operators with `onnxc_operator.h`; an operator set document with functions; or a Python
    file whose rules `onnxc.operator` registers. Errors name the file."""
    rules: dict[tuple[str, str], list[Rule]] = {}
    sets: list[OperatorSet] = []
    code: list[custom.CustomCode] = []
    for path in map(Path, paths):
        try:
            if path.suffix == ".py":
                _run_python(path)
            elif custom.is_code(path):
                code.append(custom.custom_code(path, directory, target))
                for declared in declared_operators(code[-1].object):
                    _add_rule(rules, declared.rule())
            else:
                sets.append(read_operator_set(path))
        except OnnxcError as error:
            error.origin = error.origin._replace(file=os.fspath(path))
            raise
    for known in rules.values():
        known.sort(key=lambda rule: -rule.since)
    return Given(Operators(rules, tuple(sets)), code)


def _add_rule(rules: dict[tuple[str, str], list[Rule]], rule: Rule) -> None:
    others = rules.setdefault((rule.domain, rule.op_type), [])
    if any(other.since == rule.since for other in others):
        raise CompileError(
            f"the operator {quote(rule.op_type)} of {quote(rule.domain)} {rule.since} is declared twice"
        )
    others.append(rule)


def _run_python(path: Path) -> None:
    try:
        runpy.run_path(os.fspath(path), run_name="onnxc_operators")
    except OnnxcError:
        raise
    except Exception as error:  # whatever the file raises
        said = one_line(str(error) or type(error).__name__, 300)
        raise CompileError(f"running it failed: {said}") from None
