"""The node cases of the onnx package's backend suite, imported and run by the interpreter of the
core ops.

`python tests/support/node_cases.py [--symbolic] [part of a name...]` prints how many agree and why
each other does not.
"""

from __future__ import annotations

import functools
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case.test_case import TestCase

sys.path.append(str(Path(__file__).parents[1]))
from support.shared import shared

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph


@functools.cache
def suite_cases(kind: str) -> list[TestCase]:
    """Every case of a kind. Computing what node cases expect takes ten seconds, once in a run."""

    def save(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (folder / "cases").write_bytes(pickle.dumps(loader.load_model_tests(kind=kind)))

    return pickle.loads((shared(f"cases-{kind}", save) / "cases").read_bytes())


def node_cases(*parts: str) -> list[TestCase]:
    """Every case whose name has one of the parts, in the order of names."""
    cases = suite_cases("node")
    return sorted(
        (c for c in cases if not parts or any(part in c.name for part in parts)), key=lambda c: c.name
    )


def as_value(data: object) -> object:
    """What a data set holds as an array, or a list of them for a sequence."""
    match data:
        case onnx.TensorProto():
            return numpy_helper.to_array(data)
        case list() | tuple():
            return [as_value(part) for part in data]
    return data if data is None else np.asarray(data)


def difference(expected: object, found: object, rtol: float, atol: float) -> str:
    """Why found is not what was expected, or nothing."""
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"{len(expected)} values expected"
        pairs = zip(expected, found, strict=True)
        return next(filter(None, (difference(e, f, rtol, atol) for e, f in pairs)), "")
    if expected is None or found is None:
        return "" if expected is found else "nothing and something"
    expected, found = np.asarray(expected), np.asarray(found)
    if expected.dtype.kind in "US":
        expected = expected.astype(object)
    if expected.dtype != found.dtype:
        return f"type {found.dtype} instead of {expected.dtype}"
    if expected.shape != found.shape:
        return f"shape {list(found.shape)} instead of {list(expected.shape)}"
    if expected.dtype.kind in "OSU":
        return "" if np.array_equal(expected, found) else "strings differ"
    rtol = max(rtol, 2**-6) if expected.dtype.name == "bfloat16" else rtol  # as the suite has it
    exact = np.complex128 if expected.dtype.kind == "c" else np.float64
    expected, found = expected.astype(exact), found.astype(exact)
    if np.allclose(expected, found, rtol, atol, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"values differ by {np.nanmax(np.abs(expected - found), initial=0):.3g}"


def with_variables(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a variable in place of every size of its inputs: one for all sizes that are
    equal. Lists of axes and sizes keep their length, on which ranks depend."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for value in model.graph.input:
        tensor = value.type.tensor_type
        whole = tensor.elem_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
        for dimension in [] if whole and len(tensor.shape.dim) < 2 else tensor.shape.dim:
            dimension.dim_param = f"d{dimension.dim_value}"
    return model


def verdict(case: TestCase, symbolic: bool = False) -> str:
    """Nothing where the case agrees, else the reason."""
    try:
        graph = import_model(with_variables(case.model) if symbolic else case.model).graph
        for inputs, outputs in case.data_sets:
            found = run_graph(graph, [as_value(x) for x in inputs])
            for expected, result in zip(outputs, found, strict=True):
                if problem := difference(as_value(expected), result, case.rtol, case.atol):
                    return problem
    except Exception as error:  # every way to fail counts as one
        return f"{type(error).__name__}: {error}"
    return ""


def main(parts: list[str]) -> None:
    symbolic = "--symbolic" in parts
    cases = node_cases(*(p for p in parts if p != "--symbolic"))
    failures = {case.name: reason for case in cases if (reason := verdict(case, symbolic))}
    for name, reason in failures.items():
        print(f"{name}: {reason[:200]}")
    print(f"{len(cases) - len(failures)} of {len(cases)} cases agree")


if __name__ == "__main__":
    main(sys.argv[1:])
