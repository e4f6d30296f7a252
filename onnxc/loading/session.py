"""InferenceSession: ONNX Runtime's interface over compiled libraries, and the cache of those it compiles.

The cache is a folder of the user's own (mode 0700; one that others can write to is refused) whose entries are
named by the content of everything that the library depends on: the model with its external files, the
options, the compiler, the runtime and the target.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .. import custom
from ..cache import cache_folder
from ..errors import LoadError
from ..records import dataclass
from .loader import Model, Port, load


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, its shape (numbers, names of symbolic dimensions, None), and its type as
    ONNX Runtime writes it, `tensor(float)`."""

    name: str
    shape: list | None
    type: str


@dataclass(frozen=True)
class ModelMetadata:
    """What the model says of itself."""

    graph_name: str
    producer_name: str
    description: str
    domain: str
    version: int
    custom_metadata_map: dict[str, str]


_TYPE_NAMES = {"float32": "float", "float64": "double"}


class InferenceSession:
    """A model ready to run: `path` is a library, or a model that is compiled into the cache when it is not
    there yet.

    threads: as for `load`. dims, shapes, typical, target, operators: as for `compile`. `providers` and
    `sess_options` are accepted for ONNX Runtime's sake; of the options, intra_op_num_threads counts.
    """

    def __init__(
        self,
        path_or_bytes: object,
        sess_options: object = None,
        providers: Sequence | None = None,
        *,
        threads: int | None = None,
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, Sequence[int | None]] | None = None,
        typical: Mapping[str, int] | None = None,
        target: str | Sequence[str] = "native",
        operators: Sequence[str | os.PathLike] = (),
    ):
        threads = threads or getattr(sess_options, "intra_op_num_threads", 0) or None
        self.model: Model = load(
            _library(path_or_bytes, dims, shapes, target, typical, operators), threads=threads
        )

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object], run_options: object = None
    ) -> list:
        """The outputs named (None: all) for the inputs fed, by name."""
        return self.model.run(output_names, input_feed)

    def get_inputs(self) -> list[NodeArg]:
        return [_argument(port) for port in self.model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        return [_argument(port) for port in self.model.outputs]

    def get_modelmeta(self) -> ModelMetadata:
        description = self.model.description
        return ModelMetadata(
            description.get("graph", ""),
            description.get("producer", ""),
            description.get("doc", ""),
            description.get("domain", ""),
            int(description.get("model_version", 0)),
            dict(self.model.metadata),
        )

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]


def _argument(port: Port) -> NodeArg:
    dtype = str(port.dtype)
    return NodeArg(
        port.name,
        None if port.shape is None else list(port.shape),
        f"tensor({_TYPE_NAMES.get(dtype, dtype)})",
    )


def _library(
    source: object,
    dims: Mapping[str, int] | None,
    shapes: Mapping[str, Sequence[int | None]] | None,
    target: str | Sequence[str],
    typical: Mapping[str, int] | None,
    operators: Sequence[str | os.PathLike],
) -> Path:
    """The library to load for a path, bytes or ModelProto."""
    if isinstance(source, (str, os.PathLike)) and is_library(source):
        return Path(source)
    return cached_library(source, dims, shapes, target, typical=typical, operators=operators)


def is_library(path: str | os.PathLike) -> bool:
    """Whether to take a file for a library: by what it begins with, or else by its name."""
    named_so = os.fspath(path).endswith(".so")
    try:
        if not os.path.isfile(path):
            return named_so
        with open(path, "rb") as file:
            return named_so or file.read(4) == b"\x7fELF"
    except (OSError, ValueError):
        return named_so


def cached_library(
    source: object,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping | None = None,
    target: str | Sequence[str] = "native",
    progress: Callable[[str], None] | None = None,
    typical: Mapping[str, int] | None = None,
    operators: Sequence[str | os.PathLike] = (),
) -> Path:
    """The compiled library of a model, from the cache or newly made; a large one has its weights in a file
    beside it. progress: as for `compile`."""
    from ..frontend.model_file import open_model
    from ..target import find_targets

    model = open_model(source)  # type: ignore[arg-type]  # which refuses what is no model
    key = hashlib.sha256()
    options = (
        sorted((dims or {}).items()),
        sorted((k, tuple(v)) for k, v in (shapes or {}).items()),
        sorted((typical or {}).items()),
        find_targets(target),
        [(os.fspath(path), _file_hash(path)) for path in operators],
    )
    for part in (model.content_hash, repr(options), _compiler_hash(), custom.digest()):
        key.update(part.encode() if isinstance(part, str) else part)
    path = cache_folder() / f"{key.hexdigest()[:40]}.so"
    if not _is_whole(path):
        from ..driver import compile_model

        compile_model(
            model,
            path,
            name="model",
            progress=progress,
            dims=dims,
            shapes=shapes,
            target=target,
            typical=typical,
            operators=operators,
        )
    return path


def _is_whole(path: Path) -> bool:
    """Whether an entry of the cache is there and can be loaded, its side file of weights included."""
    try:
        load(path, threads=1).close()
        return True
    except LoadError:
        return False


def _file_hash(path: str | os.PathLike) -> str:
    """A digest of a file; empty where it cannot be read, which is reported when it is needed."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _compiler_hash() -> str:
    """A digest of the compiler and the runtime: their sources."""
    from .. import codegen, passes, runtime_c

    digest = hashlib.sha256()
    packages = [Path(__file__).parents[1], *(Path(p.__path__[0]) for p in (codegen, passes, runtime_c))]
    for folder in packages:
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".c", ".h"):
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
