"""`onnxc check`: everything that stands between a model and a library, found without generating code.

The model takes the way of `driver.compile_model` as far as lowering, so what passes here compiles.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..diagnostics import Diagnostic, DiagnosticList, ModelErrors
from ..errors import LimitError, ModelError, UnsupportedError
from ..options import DEFAULTS, Options

#: What to do about a problem whose own text does not say.
ADVICE = {
    "invalid": "correct the model or export it again",
    "unsupported": "export the model without it, in terms of other operators",
    "external data": "copy the model again, with all files beside it",
    "limit": "make the model or the sizes given smaller",
}


def check_model(path: str | os.PathLike, options: Options = DEFAULTS) -> tuple[int, DiagnosticList]:
    """(number of nodes, problems): what `compile` would refuse, each problem with what to do about it."""
    from ..codegen.lowering.lower import lower
    from ..frontend.figures import node_count
    from ..frontend.importer import import_model
    from ..given import given_operators
    from ..passes.pipeline import optimise
    from ..target import find_targets

    (chosen,) = find_targets(options.target)
    with tempfile.TemporaryDirectory(prefix="onnxc-") as folder:
        given = given_operators(options.operators, Path(folder), chosen).operators
    try:
        imported = import_model(path, options, given)
        lower(optimise(imported.graph, chosen, options=options), chosen)
    except ModelErrors as errors:
        return 0, DiagnosticList(map(advised, errors.diagnostics))
    except (ModelError, UnsupportedError, LimitError) as error:
        return 0, DiagnosticList([advised(Diagnostic.of(error))])
    return node_count(imported.model), DiagnosticList()


def advised(diagnostic: Diagnostic) -> Diagnostic:
    """diagnostic with what to do about it, if only in general."""
    return diagnostic if diagnostic.remedy else diagnostic._replace(remedy=ADVICE[diagnostic.kind])
