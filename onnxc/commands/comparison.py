"""Compiled models against others: how far outputs are apart.

Floats may differ by `atol + rtol * (largest magnitude of the expected output)`, without atol where
nothing in the output is larger than that. NaN agrees with NaN, an infinity with itself. All else must
be equal. The others are ONNX Runtime and the onnx package's reference evaluator.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from ..errors import CompileError, OnnxcError, Origin, RunError, one_line, shorten
from ..ir import dtypes
from ..records import dataclass
from ..target import find_target

if TYPE_CHECKING:
    from pathlib import Path

    from ..loading.loader import Model

Feeds = Mapping[str, Any]
Run = Callable[[Feeds], list]

#: What stands for the order of a float type's values: unsigned integers of its size.
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
#: rtol unless told otherwise, by the output's type. atol is then the distance from 1 to the next number,
#: since functions that end in 0..1, as sigmoid, are computed to about that.
TOLERANCES = {"float64": 1e-3, "float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}


def require_origin(model: Model, source: Path) -> None:
    """Raises RunError where a library's model is another one than that at `source`, which others run: inputs
    or outputs have other names."""
    from ..frontend.model_file import open_model

    proto = open_model(source).proto
    ours = ({port.name for port in ports} for ports in (model.inputs, model.outputs))
    theirs = ({value.name for value in values} for values in (proto.graph.input, proto.graph.output))
    needed = {port.name for port in ports_of(proto) if not port.optional}
    for what, own, others in zip(("input", "output"), ours, theirs):
        missing = (others & needed if what == "input" else others) - own
        for has, lacks, names in (("library", "model", own - others), ("model", "library", missing)):
            for name in sorted(names)[:1]:
                raise RunError(
                    f"the {has} has the {what} '{shorten(name)}' and the {lacks} has not",
                    remedy="give the model that the library came from",
                ).at(Origin(os.fspath(source)))


def ports_of(proto: Any) -> list[Any]:
    """The inputs that a run has to give, as a compiled model would tell them."""
    from ..frontend.tensors import DTYPE_NAMES
    from ..frontend.walk import initializers
    from ..loading.c_values import Port

    given = initializers(proto.graph)
    found = []
    for value in proto.graph.input:
        if value.name in given:
            continue
        tensor = value.type.tensor_type
        sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
        shape = tuple(sizes) if tensor.HasField("shape") else None
        kind = (value.type.WhichOneof("value") or "tensor_type").removesuffix("_type")
        found.append(Port(value.name, shape, DTYPE_NAMES.get(tensor.elem_type), kind, kind == "optional"))
    return found


@dataclass(frozen=True)
class Difference:
    """How far an output is from what was expected.

    absolute: the largest |difference|; relative: the largest |difference / expected| where expected
    is not 0; ulp: the largest number of representable values between, None for other types than
    floats. `reason` says why it does not agree."""

    name: str
    type: str
    absolute: float
    relative: float
    ulp: int | None
    agrees: bool
    reason: str = ""


def compare(
    name: str,
    expected: object,
    actual: object,
    rtol: float | None = None,
    atol: float | None = None,
    quanta: int = 0,
) -> Difference:
    """The difference of two values: arrays, lists of them, or maps, whose keys must be the same. quanta: how
    far integers of an array may be apart."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return _compare_maps(name, expected, actual, rtol, atol)
    if isinstance(expected, (list, tuple)) or isinstance(actual, (list, tuple)):
        return _compare_lists(name, expected, actual, rtol, atol)
    if expected is None or actual is None:
        same = expected is actual
        return Difference(name, "nothing", 0.0, 0.0, None, same, "" if same else "one is nothing")
    expected, actual = np.asarray(expected), np.asarray(actual)
    if expected.dtype.kind in "OUS" or actual.dtype.kind in "OUS":
        expected, actual = (np.asarray(a, object) for a in (expected, actual))
    type_ = f"{_type_name(actual)}{list(actual.shape)}"
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        reason = f"expected {_type_name(expected)}{list(expected.shape)}"
        return Difference(name, type_, np.inf, np.inf, None, False, reason)
    if _is_float(actual):
        return _compare_floats(name, type_, expected, actual, rtol, atol)
    different = np.count_nonzero(expected != actual)
    absolute = relative = float(bool(different))
    if different and actual.dtype.kind in "iu":
        wide = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
        absolute, relative = float(wide.max()), _largest_ratio(wide, expected.astype(np.float64))
    agrees = not different or (actual.dtype.kind in "iu" and absolute <= quanta)
    reason = "" if agrees else f"{different} of {actual.size} elements differ"
    return Difference(name, type_, absolute, relative, None, agrees, reason)


def _compare_lists(
    name: str, expected: Any, actual: Any, rtol: float | None, atol: float | None
) -> Difference:
    lists = [isinstance(value, (list, tuple)) for value in (expected, actual)]
    if not all(lists) or len(expected) != len(actual):
        sizes = [
            f"{len(value)} items" if is_list else "no sequence"
            for is_list, value in zip(lists, (expected, actual))
        ]
        reason = f"expected {sizes[0]}, got {sizes[1]}"
        return Difference(name, "sequence", np.inf, np.inf, None, False, reason)
    items = [compare(f"{name}[{k}]", a, b, rtol, atol) for k, (a, b) in enumerate(zip(expected, actual))]
    bad = next((item for item in items if not item.agrees), None)
    ulps = [item.ulp for item in items if item.ulp is not None]
    return Difference(
        name,
        f"sequence of {len(items)}",
        max((i.absolute for i in items), default=0.0),
        max((i.relative for i in items), default=0.0),
        max(ulps, default=None),
        bad is None,
        f"{bad.name}: {bad.reason}" if bad else "",
    )


def _compare_maps(
    name: str, expected: dict, actual: dict, rtol: float | None, atol: float | None
) -> Difference:
    """The values are held against each other as one array of the type that maps have, float32 or int64."""
    if list(expected) != list(actual):
        return Difference(name, "map", np.inf, np.inf, None, False, "other keys are expected")
    found = compare(name, _values(expected), _values(actual), rtol, atol)
    return replace(found, type=f"map of {len(actual)}")


def _values(given: dict) -> np.ndarray:
    values = np.array(list(given.values()))
    return values.astype(np.float32) if values.dtype == np.float64 else values


def _type_name(array: np.ndarray) -> str:
    try:
        return dtypes.from_numpy(array.dtype)
    except TypeError:
        return str(array.dtype)


def _is_float(array: np.ndarray) -> bool:
    name = _type_name(array)
    return name in dtypes.FLOATS or name in dtypes.SMALL_FLOATS or name in dtypes.COMPLEX


def _compare_floats(
    name: str, type_: str, expected: np.ndarray, actual: np.ndarray, rtol: float | None, atol: float | None
) -> Difference:
    if expected.dtype.kind == "c":
        expected, actual = (np.ascontiguousarray(a).view(a.real.dtype) for a in (expected, actual))
    type_name = _type_name(expected)
    if rtol is None:
        rtol = TOLERANCES.get(type_name, 0.0)
    if atol is None:
        atol = float(ml_dtypes.finfo(expected.dtype).eps) if type_name in TOLERANCES else 0.0
    ulp = ulp_distance(expected, actual)
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.asarray(np.abs(wide - other))
    same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    difference[same] = 0.0
    difference[~same & ~(np.isfinite(wide) & np.isfinite(other))] = np.inf
    absolute = float(difference.max(initial=0.0))
    scale = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    allowed = rtol * scale + (atol if scale > atol or scale == 0 else 0.0)
    agrees = absolute <= allowed
    beyond = np.count_nonzero(difference > allowed)
    reason = "" if agrees else f"{beyond} of {actual.size} elements differ by more than {allowed:.3g}"
    return Difference(name, type_, absolute, _largest_ratio(difference, wide), ulp, agrees, reason)


def _largest_ratio(difference: np.ndarray, expected: np.ndarray) -> float:
    nonzero = (expected != 0) & (difference != 0)
    with np.errstate(invalid="ignore", over="ignore"):
        ratios = difference[nonzero] / np.abs(expected[nonzero])
    return float(np.nan_to_num(ratios, nan=np.inf, posinf=np.inf).max(initial=0.0))


def ulp_distance(expected: np.ndarray, actual: np.ndarray) -> int | None:
    """The largest number of values of the type between two elements. Equal ones, NaN and NaN
    included, are 0 apart; None for types of less than 16 bits and where NaN meets a number."""
    unsigned = _BITS.get(expected.dtype.itemsize)
    if unsigned is None:
        return None
    a, b = (np.ascontiguousarray(array).reshape(-1) for array in (expected, actual))
    nan_a, nan_b = np.isnan(a.astype(np.float64)), np.isnan(b.astype(np.float64))
    if np.any(nan_a != nan_b):
        return None
    differ = (a != b) & ~nan_a
    keys_a, keys_b = _ordered_bits(a[differ], unsigned), _ordered_bits(b[differ], unsigned)
    distance = np.where(keys_a > keys_b, keys_a - keys_b, keys_b - keys_a)
    return int(distance.max(initial=unsigned(0)))


def _ordered_bits(values: np.ndarray, unsigned: type) -> np.ndarray:
    """Unsigned integers in the order of the floats: neighbours are 1 apart."""
    bits: np.ndarray = values.view(unsigned)
    sign = unsigned(1 << (8 * values.dtype.itemsize - 1))
    return np.where(bits & sign, ~bits, bits | sign)


# The others --------------------------------------------------------------------------------------


def reference(model: str | os.PathLike | Any, against: str, threads: int = 0, optimise: bool = True) -> Run:
    """A function that runs a model, a path or a ModelProto, with `onnxruntime` or `reference`. optimise:
    whether ONNX Runtime may fuse and rewrite its nodes.

    Raises CompileError where that cannot be imported or cannot load the model."""
    try:
        return _onnxruntime(model, threads, optimise) if against == "onnxruntime" else _onnx_reference(model)
    except ImportError as error:
        raise CompileError(f"'{against}' cannot be imported: {error}", "install it with pip") from None
    except OnnxcError:  # of the model's files
        raise
    except Exception as error:  # whatever the other raises, it is not this model's run
        another = "reference" if against == "onnxruntime" else "onnxruntime"
        raise CompileError(
            f"'{against}' cannot load the model: {one_line(str(error), 300)}",
            f"compare with another: --against {another}",
        ) from None


def onnxruntime_session(model: str | os.PathLike | Any, threads: int = 0, optimise: bool = True) -> Any:
    """ONNX Runtime's session of a model, a path or a ModelProto, whose products of bytes are exact on every
    machine. optimise: whether it may fuse and rewrite nodes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    has_dots = find_target().dot("uint8", "int8", "int32") is not None
    source = for_session(model if has_dots else _exact_source(model, options))
    cpu = ["CPUExecutionProvider"]
    try:
        return onnxruntime.InferenceSession(source, options, providers=cpu)
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        if has_dots:
            raise
        # What makes products exact fails where weights are multiplied twice; node by node they are, too.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(source, options, providers=cpu)


def for_session(model: str | os.PathLike | Any) -> str | bytes:
    """What ONNX Runtime opens for a path or a ModelProto: the path, or the model itself, with all that is in
    other files where its path is no UTF-8."""
    if isinstance(model, (str, os.PathLike)):
        from ..frontend.model_file import open_model
        from ..frontend.tensors import whole

        path = os.fsdecode(model)
        if _is_text(path):
            return path
        model = whole(open_model(path))
    return model.SerializeToString()


def _is_text(path: str) -> bool:
    """Whether a path is UTF-8."""
    return not any("\udc80" <= character <= "\udcff" for character in path)


def _exact_source(model: str | os.PathLike | Any, options: Any) -> Any:
    """The model, or one that ONNX Runtime multiplies exactly, which also is an option where it optimises."""
    from ..frontend.model_file import open_model
    from ..frontend.tensors import whole
    from .unsigned_weights import with_unsigned_weights

    options.add_session_config_entry("session.x64quantprecision", "1")
    if not isinstance(model, (str, os.PathLike)):
        return with_unsigned_weights(model)
    opened = open_model(model)
    read = opened.message()
    changed = with_unsigned_weights(read)
    if changed is read:
        return model
    folder = os.path.dirname(os.path.abspath(model))
    if len(opened.external.roots) > 1 or not _is_text(folder):  # it follows no links out of the folder
        return with_unsigned_weights(whole(opened))
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return changed


def _onnxruntime(model: Any, threads: int, optimise: bool) -> Run:
    session = onnxruntime_session(model, threads, optimise)
    types = {entry.name: entry.type for entry in session.get_inputs()}
    made = [entry.type for entry in session.get_outputs()]

    def run(feeds: Feeds) -> list:
        given = {name: for_onnxruntime(value, types.get(name, "")) for name, value in feeds.items()}
        return [from_onnxruntime(value, type_) for value, type_ in zip(session.run(None, given), made)]

    return guarded(run, "onnxruntime")


def for_onnxruntime(value: object, type_: str) -> object:
    """value as ONNX Runtime takes it: types that numpy does not have go in as their bits."""
    if not isinstance(value, np.ndarray) or (value.dtype.kind != "V" and type_ != "tensor(bfloat16)"):
        return value
    import onnx
    import onnxruntime

    number = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    bits = value.view(np.uint16 if value.dtype.itemsize == 2 else np.uint8)
    if dtypes.bits(dtypes.from_numpy(value.dtype)) < 8:  # several in a byte; it looks no further
        packed = np.frombuffer(onnx.numpy_helper.from_array(value).raw_data, np.uint8)
        bits = np.resize(packed, value.shape)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)


def from_onnxruntime(value: Any, type_: str) -> Any:
    """value, of the type that the session declares: 8-bit floats come as their bits."""
    name = type_.removeprefix("tensor(").removesuffix(")")
    if name.startswith("float8") and isinstance(value, np.ndarray) and value.dtype == np.uint8:
        return value.view(dtypes.numpy_dtype(name))
    return value


def _onnx_reference(model: object) -> Run:
    from onnx.reference import ReferenceEvaluator

    from ..frontend.model_file import open_model
    from ..frontend.tensors import whole

    evaluator = ReferenceEvaluator(
        whole(open_model(model)) if isinstance(model, (str, os.PathLike)) else model
    )
    return guarded(lambda feeds: list(evaluator.run(None, dict(feeds))), "reference")


def guarded(run: Run, name: str) -> Run:
    """run, whose failures become CompileErrors that say whose they are."""

    def call(feeds: Feeds) -> list:
        try:
            return run(feeds)
        except Exception as error:  # see reference
            raise CompileError(f"'{name}' cannot run the model: {one_line(str(error), 300)}") from None

    return call
