"""Operator set documents (OperatorSetProto): a domain's operators, with functions that say what they compute.

A document that is given beside a model lends it the functions of the domain's version that the model imports;
they are then checked and inlined like the model's own. Source: onnx-operators.proto.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from ..custom import check_domain
from ..errors import ModelError, OnnxcError, Origin, quote
from ..records import dataclass
from . import functions as local
from .model_file import ModelFile
from .schemas import MAX_IR_VERSION, MIN_IR_VERSION

MAGIC = "ONNXOPSET"


@dataclass(frozen=True)
class OperatorSet:
    """A document: the version of its domain's operator set, its functions, and since which version those have
    an operator's meaning."""

    file: str
    domain: str
    version: int
    functions: tuple[onnx.FunctionProto, ...]
    since: Mapping[str, int]

    def available(self, version: int) -> list[onnx.FunctionProto]:
        """The functions that the operator set has in this version, which the document covers."""
        return [function for function in self.functions if self.since.get(function.name, 1) <= version]


def read_operator_set(path: Path) -> OperatorSet:
    """The document in a file. Raises ModelError where it is none or contradicts itself."""
    try:
        proto = onnx.OperatorSetProto.FromString(path.read_bytes())
        if proto.magic != MAGIC:
            raise ModelError("it is neither C source, an object, an archive, a library nor an operator set")
        return _checked(path, proto)
    except OSError as error:
        raise ModelError(f"it cannot be read: {error.strerror or error}", origin=Origin(str(path))) from None
    except DecodeError:
        raise ModelError(
            "it is neither C source, an object, an archive, a library nor an operator set",
            origin=Origin(str(path)),
        ) from None
    except OnnxcError as error:
        raise error.at(Origin(str(path))) from None


def _checked(path: Path, proto: onnx.OperatorSetProto) -> OperatorSet:
    if not MIN_IR_VERSION <= proto.ir_version <= MAX_IR_VERSION:
        raise ModelError(
            f"IR version {proto.ir_version} is not supported, {MIN_IR_VERSION} to {MAX_IR_VERSION} are"
        )
    check_domain(proto.domain)
    if proto.opset_version < 1:
        raise ModelError(f"its operator set has the version {proto.opset_version}")
    for operator in proto.operator:
        if not 1 <= operator.since_version <= proto.opset_version:
            raise ModelError(
                f"its operator {quote(operator.op_type)} is since version {operator.since_version} of "
                f"operator set {proto.opset_version}"
            )
    for function in proto.functions:
        if function.domain not in ("", proto.domain):
            raise ModelError(
                f"its function {quote(function.name)} is of the domain {quote(function.domain)}, the "
                f"document of {quote(proto.domain)}"
            )
        function.domain = proto.domain
    names = Counter((f.name, f.overload) for f in proto.functions)
    for (name, _), count in names.items():
        if count > 1:
            raise ModelError(f"its function {quote(name)} is defined {count} times")
    since = {operator.op_type: operator.since_version for operator in proto.operator}
    return OperatorSet(str(path), proto.domain, proto.opset_version, tuple(proto.functions), since)


def with_functions(model: ModelFile, sets: Sequence[OperatorSet]) -> ModelFile:
    """The model with the functions of operator sets that it or its functions import; its own come first.
    Raises ModelError where a document is older than what is imported."""
    if not sets:
        return model
    imports = local.imported_opsets(
        (*model.proto.opset_import, *(o for f in model.proto.functions for o in f.opset_import))
    )
    known = set(local.local_functions(model.proto))
    lent: list[onnx.FunctionProto] = []
    for document in sets:
        version = imports.get(document.domain)
        if version is None:
            continue
        if version > document.version:
            raise ModelError(
                f"the model imports operator set {version} of {quote(document.domain)}, which is only "
                f"version {document.version} here",
                origin=Origin(document.file),
            )
        for function in document.available(version):
            key = (document.domain, function.name, function.overload)
            if key not in known:
                known.add(key)
                lent.append(function)
    if not lent:
        return model
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    proto.functions.extend(lent)
    return replace(model, proto=proto)
