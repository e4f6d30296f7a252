"""Processors that this machine is not, in qemu: compiled models and single kernels run there, their values
and memory go over pipes (emulated.c). tests/outside/setup.sh installs what is needed.

`ONNXC_TESTS_EMULATED=neoverse-n1 pytest tests/codegen/kernels` has the tests of kernels run theirs, made for
that target, on the processor that `PROCESSORS` names for it. `ONNXC_TESTS_EMULATOR="COMMAND"` is another
emulator, in front of the program: of vectors of 512 bits, which qemu does not know.
"""

from __future__ import annotations

import atexit
import itertools
import json
import mmap
import os
import shlex
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from onnxc.codegen.library.compiler import find_compiler, target_flags
from onnxc.codegen.library.runtime import HEADERS
from onnxc.errors import LoadError, RunError
from onnxc.ir import dtypes
from onnxc.loading.c_values import KINDS, NONE, TENSOR, Port, read_ports
from onnxc.target import Target, find_target

#: What has a target's features and as little else as there is, as qemu calls it.
PROCESSORS = {
    "x86-64-v2": "Nehalem",
    "x86-64-v3": "Haswell",
    "aarch64": "cortex-a57",
    "neoverse-n1": "neoverse-n1",
    "neoverse-v1": "max,sve-max-vq=2",
    "neoverse-v2": "max,sve-max-vq=1",
}
_LOAD, _RUN, _CALL = 1, 2, 3


class Died(Exception):
    """The emulated program ended: by a signal, if it did not end itself."""


class Emulator:
    """A program on another processor: it runs kernels and one model at a time. Dead, it is started anew."""

    def __init__(self, target: Target, processor: str | None = None):
        self.target = target
        self.command = [*_emulator(target, processor), str(_program(target.triple))]
        self.process: subprocess.Popen | None = None
        atexit.register(self.stop)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def ask(self, *parts: bytes) -> None:
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            for part in parts:
                self.process.stdin.write(part)
            self.process.stdin.flush()
        except BrokenPipeError:
            self._died()

    def _died(self) -> None:
        self.process.communicate()
        code, self.process = self.process.returncode, None
        raise Died(f"the emulated program ended with {code}")

    def bytes(self, count: int) -> bytes:
        found = self.process.stdout.read(count)
        if len(found) < count:
            self._died()
        return found

    def words(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}q", self.bytes(8 * count))

    def word(self) -> int:
        return self.words(1)[0]

    def text(self) -> str:
        return self.bytes(self.word()).decode()

    def load(self, library: Path, threads: int = 1, target: str = "") -> Emulated:
        """The library, opened there. Raises LoadError in the library's words."""
        self.ask(_words(_LOAD), _text(os.fspath(library)), _words(threads), _text(target))
        if self.word():
            raise LoadError(self.text())
        return Emulated(self, json.loads(self.text()), self.text())

    def call(
        self,
        library: Path,
        name: str,
        words: Sequence[np.ndarray | int],
        ranges: Sequence[tuple[int, int]],
        scratch: np.ndarray,
    ) -> int:
        """Calls a library's kernel for ranges of parts: what the first that fails returns, or 0. Arguments
        are numbers, and memory, which is there as it is here."""
        regions = {m.ctypes.data: m for m in (scratch, *words) if isinstance(m, np.ndarray)}
        places = {address: k for k, address in enumerate(regions)}
        request = [_words(_CALL), _text(os.fspath(library)), _text(name), _words(len(regions))]
        for address, region in regions.items():
            request.append(_words(region.nbytes, address % mmap.PAGESIZE, _is_guarded(region)))
            request.append(region.tobytes())
        pairs = [(places[w.ctypes.data], 0) if isinstance(w, np.ndarray) else (-1, w) for w in words]
        self.ask(*request, _words(len(pairs), *sum(pairs, ())), _words(len(ranges), *sum(ranges, ())))
        failed = self.word()
        for region in regions.values():
            region.reshape(-1).view(np.uint8)[:] = np.frombuffer(self.bytes(region.nbytes), np.uint8)
        return failed


class Emulated:
    """A model that runs there, until the next is loaded; `run` is that of `onnxc.load`'s."""

    def __init__(self, emulator: Emulator, description: dict, target: str):
        self.emulator, self.description, self.target = emulator, description, target
        self.inputs, self.outputs = (read_ports(description[name]) for name in ("inputs", "outputs"))

    def run(self, _: None, feeds: Mapping[str, object]) -> list[object]:
        values = [_value(port, port.kind, feeds.get(port.name)) for port in self.inputs]
        self.emulator.ask(_words(_RUN, len(values)), *values)
        if status := self.emulator.word():
            raise RunError(self.emulator.text(), status=status)
        return [self._taken() for _ in self.outputs]

    def __enter__(self) -> Emulated:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _taken(self) -> object:
        emulator = self.emulator
        kind = emulator.word()
        if kind == NONE:
            return None
        dtype, rank = emulator.words(2)
        shape = emulator.words(rank)
        if kind == KINDS["optional"]:
            return self._taken() if shape[0] else None
        if kind == KINDS["map"]:
            keys, values = self._taken(), self._taken()
            return dict(zip(keys.tolist(), values.tolist()))
        if kind != TENSOR:
            return [self._taken() for _ in range(shape[0])]
        if dtype == dtypes.NUMBERS["string"]:
            texts = [emulator.text() for _ in range(int(np.prod(shape)))]
            return np.array([*texts, None], object)[:-1].reshape(shape)
        memory = emulator.bytes(emulator.word())
        return np.frombuffer(memory, dtypes.numpy_dtype(dtypes.ALL[dtype - 1])).reshape(shape)


def _words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return _words(len(data)) + data


def _value(port: Port, kind: str, value: object) -> bytes:
    """An input as emulated.c reads it."""
    if kind == "optional":
        items = [] if value is None else [_value(port, port.of or "tensor", value)]
    elif value is None:
        return _words(NONE)
    elif kind == "map":
        parts = (port.key, list(value)), (port.dtype, list(value.values()))
        items = [_tensor(np.array(items, dtypes.numpy_dtype(dtype))) for dtype, items in parts]
    elif isinstance(value, (list, tuple)) and kind == "sequence":
        items = [_value(port, "sequence" if isinstance(v, (list, tuple)) else "tensor", v) for v in value]
    else:
        return _tensor(np.asarray(value, dtypes.numpy_dtype(port.dtype) if port.dtype else None))
    return _words(KINDS[kind], 0, 1, len(items)) + b"".join(items)


def _tensor(array: np.ndarray) -> bytes:
    dtype = dtypes.from_numpy(array.dtype)
    head = _words(TENSOR, dtypes.NUMBERS[dtype], array.ndim, *array.shape)
    if dtype == "string":
        return head + b"".join(map(_text, array.reshape(-1).tolist()))
    return head + _text(np.ascontiguousarray(array).tobytes())


def _is_guarded(array: object) -> bool:
    """Whether a forbidden page is near its end (`support.guarded`)."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


# What is made once ---------------------------------------------------------------------------------


@cache
def _folder() -> Path:
    made = tempfile.TemporaryDirectory(prefix="onnxc-emulated-")
    atexit.register(made.cleanup)
    return Path(made.name)


def _emulator(target: Target, processor: str | None) -> list[str]:
    """The emulator's command, with the libraries of the target's kind of machine."""
    if command := os.environ.get("ONNXC_TESTS_EMULATOR"):
        return shlex.split(command)
    machine = target.triple.partition("-")[0]
    ours = target.triple == find_target().triple
    root = [] if ours else ["-L", f"/usr/{machine}-linux-gnu"]
    return [f"qemu-{machine}-static", *root, "-cpu", processor or PROCESSORS[target.name]]


@cache
def _program(triple: str) -> Path:
    """emulated.c for a kind of machine."""
    target, made = next(t for t in map(find_target, PROCESSORS) if t.triple == triple), _folder() / triple
    compiler = find_compiler(target)
    command = [*compiler, *target_flags(compiler, target), "-O1", "-Wall", "-Wextra", f"-I{HEADERS}"]
    source = Path(__file__).with_suffix(".c")
    subprocess.run([*command, source, "-o", made, "-ldl"], check=True)
    return made


@cache
def emulator(target: str) -> Emulator:
    """The one for a target."""
    return Emulator(find_target(target))


def linked(code: bytes, triple: str) -> Path:
    """An object as a library that `Emulator.call` opens."""
    made = _folder() / f"{next(_numbers)}.so"
    made.with_suffix(".o").write_bytes(code)
    linker = "ld" if triple == find_target().triple else f"{triple.partition('-')[0]}-linux-gnu-ld"
    subprocess.run([linker, "-shared", made.with_suffix(".o"), "-o", made], check=True)
    return made


_numbers = itertools.count()
