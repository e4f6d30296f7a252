"""Inputs of a model: from .npy and .npz files, or generated from a seed, of integers those that its graph
expects.

Ports are those of a loaded library. A symbolic dimension gets its size from what is given: `--dim`,
`--shape` or an array with that name among its dimensions; else, where its name is a sum or product of others
(`past + 1`), theirs; else the one that the library has kernels for, and that it has where nothing else tells:
1 where a first axis has it (a batch) and a usual size elsewhere. A model that does not run with these gets
others.
"""

from __future__ import annotations

import ast
import io
import operator
import os
import re
import time
import zipfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from .errors import CompileError, Origin, RunError, UsageError, quote
from .ir import dtypes
from .ir.dims import usual
from .ir.expected import drawn
from .options import DEFAULTS, Options
from .records import dataclass

if TYPE_CHECKING:
    from .ir.expected import Expected
    from .loading.loader import Port

Shapes = Mapping[str, Sequence[int | None]]  # of inputs by name; None leaves an axis to its default
_Sizes = dict[str | tuple[str, int], int]  # by the name of a dimension, or by an input and its axis

WRONG_SHAPE = 6  # the library's status for a dimension of an input
VARIETY = 10  # generated integers are 0 to 9
SEQUENCE_LENGTH = 2
SIZES = (64, 48, 32, 128, 256, 512, 320, 640, 224, 65, 1)  # tried where a model does not run with usual ones
MOST_TRIED, TRIED_SECONDS = 300, 5.0
MAP_PARTS = "keys", "values"
NESTING = 64  # of sequences, as a library takes it
LARGEST = 1 << 40  # of a dimension that is made of others
ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class Inputs:
    """Values by input name, and the names of those that were generated."""

    feeds: dict[str, object]
    generated: tuple[str, ...]

    def describe(self) -> str:
        """`x float32[1, 3, 224, 224] (generated)`, one input after the other."""
        return ", ".join(
            f"{name} {value_text(value)}{' (generated)' if name in self.generated else ''}"
            for name, value in self.feeds.items()
        )


def value_text(value: object) -> str:
    """`float32[2, 3]`, or what the value is if it is no array."""
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    return f"{dtypes.from_numpy(value.dtype)}[{', '.join(map(str, value.shape))}]"


def make_inputs(
    ports: Sequence[Port],
    arguments: Sequence[str] | Mapping[str, Any] = (),
    dims: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
    seed: int = 0,
    expected: Mapping[str, Expected] | None = None,
) -> Inputs:
    """What to run a model on: arrays that are given or lie in files, the rest generated.

    arguments: arrays by name, files, `inputs.npz` or `x=a.npy`, or numbers, `x=16000`. dims, shapes: sizes
    for what is generated. expected: what the graph expects of some inputs (`ir.expected`). Raises RunError
    for files that cannot be read and names that the model does not have, UsageError for what contradicts
    itself."""
    numbers, others = _numbers(arguments, ports)
    given = read_inputs(others, ports)
    sizes = resolve_shapes(ports, dims or {}, shapes or {}, given)
    for name, array in numbers.items():
        if name in given:
            raise _twice(name)
        given[name] = np.full(sizes[name], array)
    generator = np.random.default_rng(seed)
    feeds = {
        p.name: given[p.name] if p.name in given else generate(p, sizes[p.name], generator, expected)
        for p in ports
        if p.name in given or not _optional(p)
    }
    return Inputs(feeds, tuple(name for name in feeds if name not in given))


class Runs(Protocol):
    """What runs on inputs: a loaded library, for one. Raises RunError where it does not."""

    @property
    def inputs(self) -> Sequence[Port]: ...
    def run(self, output_names: None, feeds: Mapping[str, object], /) -> list[Any]: ...


def runnable_inputs(
    library: Runs,
    dims: Mapping[str, int],
    shapes: Shapes,
    expected: Mapping[str, Expected] | None = None,
    arguments: Sequence[str] | Mapping[str, Any] = (),
    seed: int = 0,
) -> Inputs:
    """The same that the library runs on: where it does not with usual sizes, with those that its errors ask
    for, else with others. Raises RunError, of the usual ones, where those that are tried do not do either."""
    ports = library.inputs
    inputs = make_inputs(ports, arguments, dims, shapes, seed, expected)
    made = {*inputs.generated, *_numbers(arguments, ports)[0]}  # in the sizes that are tried
    given = {name: value for name, value in inputs.feeds.items() if name not in made}
    told = _told_sizes(ports, dims, shapes, given)
    free = _free_sizes([port for port in ports if port.name not in given], inputs.feeds, told, shapes)
    if not free:
        return inputs

    def attempt(sizes: _Sizes) -> Inputs | RunError:
        try:
            tried = make_inputs(ports, arguments, *_given(sizes, dims, shapes, ports), seed, expected)
            library.run(None, tried.feeds)
        except RunError as error:
            return error
        return tried

    try:
        library.run(None, inputs.feeds)
    except RunError as refused:
        found: Inputs | RunError = refused
        sizes, others, end = free, _other_sizes(free), time.monotonic() + TRIED_SECONDS
        while isinstance(found, RunError) and (asked := _asked(sizes, found)) and time.monotonic() < end:
            sizes, found = asked, attempt(asked)
        while isinstance(found, RunError) and (other := next(others, None)) and time.monotonic() < end:
            found = attempt(other)
        if isinstance(found, RunError):
            raise
        inputs = found
    return inputs


def _free_sizes(
    ports: Sequence[Port], feeds: Mapping[str, Any], told: Mapping[str, int], shapes: Shapes
) -> _Sizes:
    """The sizes that nobody told, by name, or by input and axis where they have none, as they are in feeds.
    What has a name has one size wherever that stands."""
    found: _Sizes = {}
    for port in ports:
        given = shapes.get(port.name) or [None] * len(port.shape or ())
        for axis, (size, known) in enumerate(zip(port.shape or (), given, strict=True)):
            if not isinstance(size, int) and known is None and size not in told and port.name in feeds:
                found.setdefault(size or (port.name, axis), feeds[port.name].shape[axis])
    return found


def _asked(sizes: _Sizes, error: RunError) -> _Sizes | None:
    """The sizes with what the error expects for those that it got; None where it is about no such size."""
    found = re.search(r"expected (\d+), got (\d+)$", str(error))
    wanted, had = map(int, found.groups()) if found else (0, 0)
    asked = {what: wanted for what, size in sizes.items() if size == had != wanted}
    return {**sizes, **asked} if asked else None


def _other_sizes(free: _Sizes) -> Iterator[_Sizes]:
    """Others than the usual ones for a model that does not take these: a sound of a fixed length, a line of
    text of one height, a mask one longer than what is past. The last ones change first."""
    choices = [(size, *(other for other in SIZES if other != size)) for size in free.values()]
    for tried in islice(product(*choices), 1, MOST_TRIED):
        yield dict(zip(free, tried))


def _given(
    sizes: _Sizes, dims: Mapping[str, int], shapes: Shapes, ports: Sequence[Port]
) -> tuple[dict[str, int], dict[str, list[int | None]]]:
    """The sizes of names and of axes that `sizes` adds to those that were given."""
    named = dict(dims)
    found = {p.name: list(shapes.get(p.name) or [None] * len(p.shape or ())) for p in ports if p.shape}
    for what, size in sizes.items():
        if isinstance(what, str):
            named[what] = size
        else:
            found[what[0]][what[1]] = size
    return named, found


def expected_inputs(model: object, ports: Sequence[Port], options: Options = DEFAULTS) -> dict[str, Expected]:
    """What the graph of a model (path, bytes or ModelProto) expects of its inputs of integers."""
    if not any(port.dtype and dtypes.is_integer(port.dtype) for port in ports):
        return {}
    from .frontend.importer import import_model
    from .ir.expected import expected_of

    return expected_of(import_model(model, options).graph)


def _optional(port: Port) -> bool:
    return port.optional or port.kind == "optional"


# Files -------------------------------------------------------------------------------------------


def read_inputs(arguments: Sequence[str] | Mapping[str, Any], ports: Sequence[Port]) -> dict[str, Any]:
    """The values given, or that `x=a.npy` and `inputs.npz` name, checked to be inputs of the model. Files
    have those of sequences and maps as the arrays that `arrays_of` makes of them."""
    known = {port.name: port for port in ports}
    if isinstance(arguments, Mapping):
        for name in arguments:
            _require_known(name, known)
        return {name: v if isinstance(v, (list, dict)) else np.asarray(v) for name, v in arguments.items()}
    found: dict[str, dict[str, np.ndarray]] = {}
    for arrays in _read(arguments, known):
        for key, array in arrays.items():
            name, part = _part(key, known)
            parts = found.setdefault(name, {})
            if part in parts:
                raise _twice(key)
            parts[part] = dtypes.from_file(array, known[name].dtype)
    sequences = {port.name for port in ports if "sequence" in (port.kind, port.of)}
    return {name: _joined(name, parts, name in sequences) for name, parts in found.items()}


def _twice(name: str) -> UsageError:
    return UsageError(f"the input {quote(name)} is given twice")


def _require_known(name: str, known: Mapping[str, Port]) -> None:
    if name not in known:
        names = ", ".join(map(quote, known)) or "none"
        raise RunError(f"the model has no input {quote(name)}; it has {names}")


def _part(key: str, known: Mapping[str, Port]) -> tuple[str, str]:
    """The input to which the array of this name belongs, and as which part: `s/0` to `s` as `0`, a tensor as
    "". Names of inputs may have '/' in them."""
    cuts = [] if key in known else [k for k, character in enumerate(key) if character == "/"][-NESTING:]
    cut = next((k for k in cuts if key[:k] in known and known[key[:k]].kind != "tensor"), len(key))
    name, part = key[:cut], key[cut + 1 :]
    _require_known(name, known)
    if known[name].kind == "map" and not part:
        raise _unmapped(name)
    return name, part


def _unmapped(name: str) -> RunError:
    parts = " and ".join(quote(f"{name}/{part}") for part in MAP_PARTS)
    return RunError(
        f"the input {quote(name)} is a map; give arrays of its keys and values, {parts}, with --input"
    )


def _joined(name: str, parts: Mapping[str, np.ndarray], sequence: bool = False) -> Any:
    """The value that `arrays_of` took apart into these arrays. sequence: it is none of them itself, unless it
    has no items."""
    if parts.keys() == {""}:
        if not sequence:
            return parts[""]
        if parts[""].shape == (0,):
            return []
    if parts.keys() == set(MAP_PARTS):
        keys, values = (parts[part] for part in MAP_PARTS)
        if keys.ndim != 1 or keys.shape != values.shape:
            raise RunError(f"the map {quote(name)} needs as many keys as values, in arrays of one axis")
        return dict(zip(keys.tolist(), values.tolist()))
    items: dict[str, dict[str, np.ndarray]] = {}
    for part, array in parts.items():
        item, _, rest = part.partition("/")
        items.setdefault(item, {})[rest] = array
    order = [str(k) for k in range(len(items))]
    if items.keys() != set(order):
        given = ", ".join(quote(f"{name}/{item}".removesuffix("/")) for item in items)
        first = " and ".join(quote(f"{name}/{k}") for k in range(2))
        raise RunError(f"the items of the sequence {quote(name)} are {first} and so on; given are {given}")
    return [_joined(f"{name}/{k}", items[k]) for k in order]


def _numbers(
    arguments: Sequence[str] | Mapping[str, Any], ports: Sequence[Port]
) -> tuple[dict[str, np.ndarray], Sequence[str] | Mapping[str, Any]]:
    """The numbers, by input and in its type, of arguments that are like `x=16000`, and no file; and the other
    arguments. Raises RunError for a number that is none of the type."""
    if isinstance(arguments, Mapping):
        return {}, arguments
    found: dict[str, np.ndarray] = {}
    others = []
    types = {port.name: port.dtype for port in ports if port.kind == "tensor"}
    for argument in dict.fromkeys(arguments):
        name, text = _split(argument, types)
        dtype = types.get(name or "") or "string"  # of any type, as of strings, there are files alone
        number = None if dtype == "string" or os.path.exists(text) else _number(text)
        if name is None or number is None:
            others.append(argument)
            continue
        if name in found:
            raise _twice(name)
        if dtypes.is_integer(dtype) or dtype == "bool":
            low, high = dtypes.integer_range(dtype)
            has = np.asarray(isinstance(number, int) and low <= number <= high)
            array = np.asarray(number if has else 0).astype(dtypes.numpy_dtype(dtype))
        else:
            array, has = dtypes.rounded(np.asarray(number), dtype)
        if not has:
            raise RunError(f"input {quote(name)}: {text} is no number of {dtype}")
        found[name] = array
    return found, others


def _number(text: str) -> int | float | None:
    """As an integer where it is written as one, whose digits floats would not hold; None of another text."""
    for type_ in (int, float):
        with suppress(ValueError):
            return type_(text)
    return None


def _read(arguments: Sequence[str], known: Mapping[str, Port]) -> Iterator[dict[str, np.ndarray]]:
    for argument in arguments:
        name, path = _split(argument, known)
        if not path:
            raise UsageError(f"{quote(argument)} is not X=A.npy, X=NUMBER or INPUTS.npz")
        if name is not None:
            _part(name, known)
        yield {name: load_array(path)} if name is not None else _load_archive(argument)


def _split(argument: str, names: Container[str]) -> tuple[str | None, str]:
    """(input, path) of `x=a.npy`, (None, path) of an archive. Names and paths may have '=' in them."""
    cuts = [k for k, character in enumerate(argument) if character == "="]
    known = next((k for k in cuts if argument[:k] in names), None)
    if known is None and (not cuts or argument.endswith(".npz")):
        return None, argument
    cut = cuts[0] if known is None else known
    return argument[:cut], argument[cut + 1 :]


def load_array(path: str) -> np.ndarray:
    """The array of an .npy file; RunError for what is none."""
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        raise RunError("is an archive of arrays; give it without a name before it", origin=Origin(path))
    return loaded


def _load_archive(path: str) -> dict[str, np.ndarray]:
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise RunError(f"is one array; tell for which input: NAME={path}", origin=Origin(path))
    try:
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except Exception as error:  # zip and numpy raise many kinds for damaged archives
        raise RunError(f"cannot be read: {error}", origin=Origin(path)) from None


def _load(path: str) -> Any:  # an array, or an archive of arrays
    if not os.path.exists(path):
        raise RunError("no such file", origin=Origin(path))
    if not os.path.isfile(path):
        raise RunError("is not a regular file", origin=Origin(path))
    try:
        return np.load(path, allow_pickle=False)
    except MemoryError as error:
        raise RunError(
            f"there is no memory for the array that its header tells of: {error}", origin=Origin(path)
        ) from None
    except Exception as error:  # see above
        raise RunError(f"is no .npy or .npz file: {error}", origin=Origin(path)) from None


def arrays_of(values: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Values as arrays, of which `read_inputs` makes them again: the items of a sequence are `s/0` and so on,
    an empty one `s` without elements, a map `m/keys` and `m/values`. An optional of nothing has none."""
    found: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if isinstance(value, list) and value:
            found |= arrays_of({f"{name}/{k}": item for k, item in enumerate(value)})
        elif isinstance(value, dict):
            parts = zip(MAP_PARTS, (list(value), list(value.values())))
            found |= {f"{name}/{part}": np.array(content) for part, content in parts}
        elif value is not None:
            array = np.asarray(value)
            found[name] = array.astype(str) if array.dtype == object else dtypes.for_file(array)
    return found


def write_arrays(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an .npz, as `np.savez` does for names that are none of its arguments."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def save_outputs(path: Path, outputs: Mapping[str, object]) -> None:
    """Writes outputs to an .npz, whole or not at all."""
    buffer = io.BytesIO()
    write_arrays(buffer, arrays_of(outputs))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(buffer.getbuffer())
        temporary.replace(path)
    except OSError as error:
        raise CompileError(
            f"cannot be written: {error.strerror or error}", origin=Origin(os.fspath(path))
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


# Generated ---------------------------------------------------------------------------------------


def resolve_shapes(
    ports: Sequence[Port], dims: Mapping[str, int], shapes: Shapes, given: Mapping[str, Any] | None = None
) -> dict[str, tuple[int, ...]]:
    """The shape of every input. Raises RunError for names that the model does not have, UsageError where a
    dimension has two sizes."""
    names = {port.name for port in ports}
    for name in shapes:
        if name not in names:
            raise RunError(f"the model has no input {quote(name)} to give a shape", status=WRONG_SHAPE)
    symbols = {d for port in ports for d in port.shape or () if isinstance(d, str)}
    for name in dims:
        if name not in symbols:
            others = ", ".join(map(quote, sorted(symbols))) or "none"
            raise RunError(
                f"no input has a dimension {quote(name)}; of unknown size: {others}", status=WRONG_SHAPE
            )
    sizes = _told_sizes(ports, dims, shapes, given or {})
    axes = [(axis, name, port) for port in ports for axis, name in enumerate(port.shape or ())]
    first = sorted(axes, key=lambda entry: entry[0] > 0)  # first axes before others
    for axis, variable, port in sorted(first, key=lambda entry: not str(entry[1]).isidentifier()):
        if isinstance(variable, str) and variable not in sizes:
            made = _of_others(variable, sizes)
            sizes[variable] = _usual(port, axis) if made is None else made
    return {port.name: _shape(port, shapes.get(port.name), sizes) for port in ports}


def _told_sizes(
    ports: Sequence[Port], dims: Mapping[str, int], shapes: Shapes, given: Mapping[str, Any]
) -> dict[str, int]:
    """The sizes of named dimensions that are given: by name, by the shape of an input, or else by an array.
    Raises UsageError where an input has another; whether arrays agree with each other, the library checks."""
    found, told = dict(dims), dict(dims)
    arrays = {name: value.shape for name, value in given.items() if isinstance(value, np.ndarray)}
    for what, known in (("shape", shapes), ("array", arrays)):
        for port in ports:
            for symbol, size in zip(port.shape or (), known.get(port.name) or ()):
                if not isinstance(symbol, str) or size is None:
                    continue
                if told.get(symbol, size) != size:
                    raise UsageError(
                        f"the input {quote(port.name)}: the {what} given has {size} for the dimension "
                        f"{quote(symbol)}, which is {told[symbol]}"
                    )
                found.setdefault(symbol, size)
                if known is shapes:
                    told[symbol] = size
    return found


def _usual(port: Port, axis: int) -> int:
    """How long an axis is where nothing else tells."""
    return port.typical[axis] if port.typical is not None else usual(axis, port.shape or ())


def _of_others(dimension: str, sizes: Mapping[str, int]) -> int | None:
    """The size of a dimension whose name says how it is made of others, as exporters write `past + 1`."""

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            return ARITHMETIC[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in sizes:
            return sizes[node.id]
        raise ValueError

    try:
        size = value(ast.parse(dimension, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return size if 0 <= size <= LARGEST else None


def _shape(port: Port, asked: Sequence[int | None] | None, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A port's shape, of which `asked` may give a part."""
    declared = tuple(port.shape) if port.shape is not None else tuple(asked or ())
    if asked is not None and len(asked) != len(declared):
        raise RunError(
            f"the input {quote(port.name)} has {len(declared)} axes, the shape given {len(asked)}",
            status=WRONG_SHAPE,
        )
    shape: list[int] = []
    for axis, size in enumerate(declared):
        wanted = None if asked is None else asked[axis]
        if wanted is not None:
            shape.append(wanted)
        elif isinstance(size, int):
            shape.append(size)
        else:
            shape.append(sizes[size] if size is not None and size in sizes else _usual(port, axis))
    return tuple(shape)


def generate(
    port: Port,
    shape: Sequence[int],
    generator: np.random.Generator,
    expected: Mapping[str, Expected] | None = None,
) -> object:
    """A value for the port: standard normal floats, integers that are expected, else from 0 to 9, random
    bools, short words."""
    if port.kind == "map":
        raise _unmapped(port.name)
    if port.kind not in ("tensor", "sequence"):
        raise RunError(f"the input {quote(port.name)} is of kind {port.kind}; give it with --input")
    if port.dtype is None:
        raise RunError(f"the input {quote(port.name)} may have any type; give it with --input")
    if port.kind == "sequence":
        return [generate_array(port.dtype, shape, generator) for _ in range(SEQUENCE_LENGTH)]
    if expected and port.name in expected and dtypes.is_integer(port.dtype):
        return drawn(expected[port.name], tuple(shape), generator).astype(dtypes.numpy_dtype(port.dtype))
    return generate_array(port.dtype, shape, generator)


def generate_array(dtype: str, shape: Sequence[int], generator: np.random.Generator) -> np.ndarray:
    """A random array of the element type; RunError where there is no room for it."""
    try:
        return _random(dtype, tuple(shape), generator)
    except (MemoryError, ValueError, OverflowError) as error:
        raise RunError(f"no array of shape {list(shape)} can be made: {error}", status=WRONG_SHAPE) from None


def _random(dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    numpy_dtype = dtypes.numpy_dtype(dtype)
    if dtype == "bool":
        return np.asarray(generator.integers(0, 2, shape), bool)
    if dtype == "string":
        numbers = generator.integers(0, VARIETY, int(np.prod(shape)))
        return np.array([f"word{k}" for k in numbers], object).reshape(shape)
    if dtypes.is_integer(dtype):
        limit = min(VARIETY, dtypes.integer_range(dtype)[1] + 1)
        return np.asarray(generator.integers(0, limit, shape)).astype(numpy_dtype)
    if dtype in dtypes.COMPLEX:
        real, imaginary = generator.standard_normal((2, *shape))
        return np.asarray(real + 1j * imaginary).astype(numpy_dtype)
    values = np.asarray(generator.standard_normal(shape, np.float32))
    return (np.abs(values) if dtype == "float8e8m0" else values).astype(numpy_dtype)
