"""A model as the compiler reads it: a small protobuf, and tensor data that stays in the file.

`open_model` maps the file once. Its large tensor data never passes through protobuf: `proto` is the
model without it (see wire.py), and `bytes_of` is a view into the mapping, so that memory does not
grow with the model. A file that is no model is refused with a sentence that says what it is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError, Message

from ..errors import ExternalDataError, LimitError, ModelError, OnnxcError, Origin, quote
from ..places import absolute
from ..records import dataclass
from . import wire
from .external_data import (
    ExternalFiles,
    MappedFile,
    file_stamp,
    map_descriptor,
    read_chunks,
    read_reference,
    require_regular,
)
from .walk import all_tensors

MAX_SIZE = (1 << 31) - 1  # bytes of one protobuf message
# Bytes; smaller files are read at once: who reads a mapping of a file that was cut meanwhile is ended.
SMALL_MODEL = 1 << 20

MAGIC = [
    (b"version https://git-lfs", "a Git LFS pointer, not the model; fetch it with git lfs pull", 0),
    (b"ONNXCWTS", "the weights of a compiled library, not an ONNX model", 0),
    (b"\x7fELF", "a compiled library or program (ELF), not an ONNX model", 0),
    (b"!<arch>\n", "an archive for static linking, not an ONNX model", 0),
    (b"MZ", "a Windows program or library, not an ONNX model", 0),
    (b"PK\x03\x04", "a zip archive, not an ONNX model", 0),
    (b"\x1f\x8b", "a gzip archive, not an ONNX model", 0),
    (b"\x89HDF", "an HDF5 file, not an ONNX model", 0),
    (b"ORTM", "an ONNX Runtime (.ort) model, not an ONNX model", 4),
    (b"TFL3", "a TensorFlow Lite model, not an ONNX model", 4),
]


@dataclass
class ModelFile:
    """An opened model. `path` and `directory` are None where the source was no file.

    proto: the model; in tensors, use `bytes_of` in place of raw_data.
    external: the files beside it."""

    proto: onnx.ModelProto
    external: ExternalFiles
    path: Path | None = None
    directory: Path | None = None
    _file: MappedFile | None = None
    _skeleton: wire.Skeleton | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The path as messages give it; empty where the source was no file."""
        return os.fspath(self.path) if self.path else ""

    def message(self) -> onnx.ModelProto:
        """A message of its own that has what the model's file holds, tensor data too."""
        if self._file is not None:
            return onnx.ModelProto.FromString(memoryview(self._file.data))
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        return proto

    def payload(self, tensor: onnx.TensorProto) -> wire.Payload | None:
        """Where in the file the tensor's data was left, or None if the message holds it."""
        if self._skeleton is None or not tensor.HasField("raw_data"):
            return None
        return self._skeleton.payload(tensor.raw_data)

    def bytes_of(self, tensor: onnx.TensorProto) -> memoryview | None:
        """The tensor's data as raw_data would hold it, read-only; None where it has no raw_data."""
        if not tensor.HasField("raw_data"):
            return None
        raw = tensor.raw_data
        payload = self._skeleton.payload(raw) if self._skeleton else None
        if payload is None or self._file is None:
            return memoryview(raw)
        return memoryview(self._file.data)[payload.offset : payload.offset + payload.length]

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the model and of every external file that it names, in hexadecimal.

        Reads the files in pieces, so that memory does not grow. Raises ExternalDataError where an
        external file cannot be opened."""
        try:
            return self._content_hash()
        except ModelError as error:
            origin = error.origin.filled_from(Origin(self.name))
            raise ExternalDataError(error.reason, error.remedy, origin=origin) from None

    def _content_hash(self) -> str:
        digest = hashlib.sha256()
        _hash_into(digest, self._file or self.proto.SerializeToString(deterministic=True))
        locations = {
            read_reference(tensor.external_data).location
            for tensor in all_tensors(self.proto)
            if tensor.data_location == onnx.TensorProto.EXTERNAL
        }
        for location in sorted(locations):
            digest.update(hashlib.sha256(location.encode()).digest())
            _hash_into(digest, self.external.open(location))
        return digest.hexdigest()

    def files(self) -> list[MappedFile]:
        """The model's file and the external ones opened so far."""
        return [*([self._file] if self._file else []), *self.external.opened()]

    def forget(self) -> None:
        """Takes what was read of the files off this process's memory."""
        for file in self.files():
            file.forget()

    def check_unchanged(self) -> None:
        """Raise ModelError if the model or an external file changed after it was opened."""
        for file in self.files():
            if file.path and file.changed():
                raise ModelError(
                    f"{quote(file.path)} changed while it was compiled", origin=Origin(self.name)
                )


def open_model(
    source: str | os.PathLike | bytes | onnx.ModelProto,
    *,
    directory: str | os.PathLike | None = None,
    refuse_hard_links: bool = False,
) -> ModelFile:
    """Open a model from a path, from serialized bytes, or from a ModelProto.

    directory: where external data lies; for a path, if that is not beside the file.
    Raises ModelError, or LimitError over 2 GiB. The structure is not checked yet."""
    folder = Path(directory) if directory else None
    if isinstance(source, onnx.ModelProto):
        model = ModelFile(source, _external_in(directory, refuse_hard_links), directory=folder)
        _check(model)
        return model
    if isinstance(source, (bytes, bytearray, memoryview)):
        file = MappedFile("", bytes(source), ())
        return _parse(file, None, folder, _external_in(directory, refuse_hard_links))
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source).__name__
        raise ModelError(f"a model is a path, bytes or an onnx.ModelProto, and no {kind}")
    path = Path(os.fsdecode(source))
    try:
        file = _open_file(path)
        beside = ExternalFiles.beside(path, refuse_hard_links)
        external = beside if folder is None else _external_in(folder, refuse_hard_links)
        return _parse(file, path, folder or path.parent, external)
    except OnnxcError as error:
        raise error.at(Origin(os.fspath(path))) from None


def _external_in(directory: str | os.PathLike | None, refuse_hard_links: bool) -> ExternalFiles:
    roots = (Path(absolute(directory, ModelError, os.path.realpath)),) if directory else ()
    return ExternalFiles(roots, refuse_hard_links)


def _open_file(path: Path) -> MappedFile:
    """Map the file after checks that cannot block on a pipe or a device."""
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        require_regular(os.stat(path), "the model")
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError as error:
        dangling = os.path.islink(path) and not os.path.exists(path)
        why = "the symbolic link leads nowhere" if dangling else error.strerror or str(error)
        raise ModelError(f"the model cannot be opened: {why}") from None
    except ValueError:  # a NUL in the path
        raise ModelError("the model cannot be opened: the path has a NUL character") from None
    try:
        status = os.fstat(descriptor)
        require_regular(status, "the model")
        if status.st_size > MAX_SIZE:
            raise _too_large(status.st_size)
        data = map_descriptor(descriptor, status.st_size, in_memory=status.st_size < SMALL_MODEL)
        return MappedFile(os.fspath(path.absolute()), data, file_stamp(status))
    except OSError as error:
        raise ModelError(f"the model cannot be read: {error.strerror or error}") from None
    finally:
        os.close(descriptor)


def _too_large(size: int) -> LimitError:
    return LimitError(
        f"the model has {size} bytes, over the 2 GiB that a protobuf file may have",
        remedy="save its weights as external data",
    )


def _parse(file: MappedFile, path: Path | None, directory: Path | None, external: ExternalFiles) -> ModelFile:
    if not file.data:
        raise ModelError("the file is empty")
    if len(file.data) > MAX_SIZE:
        raise _too_large(len(file.data))
    try:
        skeleton = wire.scan(file.data)
        proto = _decode(skeleton.data, file.data)
        model = ModelFile(proto, external, path, directory, file, skeleton)
        _check(model)
    except ModelError as error:
        foreign = describe_foreign(bytes(file.data[:1024]))
        if foreign:
            raise ModelError(f"the file is {foreign}") from None
        raise error from None
    return model


def _decode(skeleton: bytes, whole: Any) -> onnx.ModelProto:
    try:
        return onnx.ModelProto.FromString(skeleton)
    except DecodeError as error:
        wire.explain(whole, onnx.ModelProto.DESCRIPTOR)
        raise ModelError(f"malformed protobuf: {error}") from None


def describe_foreign(head: bytes) -> str:
    """What kind of other file begins with `head`, or nothing if it may be a model."""
    for magic, description, offset in MAGIC:
        if head.startswith(magic, offset):
            return description
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # more than a character cut off at the end
            return ""
        text = head[: error.start].decode("utf-8")
    if any(not (c.isprintable() or c.isspace()) for c in text):
        return ""
    start = text.lstrip("\ufeff \t\r\n").lower()
    if start.startswith(("<!doctype html", "<html", "<head", "<?xml")):
        return "an HTML or XML page, not an ONNX model; the download may have failed"
    return "text, not an ONNX model"


def _check(model: ModelFile) -> None:
    if not model.proto.HasField("graph"):
        raise ModelError("the file is no ONNX model: it has no graph")
    _check_strings(model.proto)


def _check_strings(proto: onnx.ModelProto) -> None:
    """Refuse names that are not UTF-8 or hold NUL; documentation may hold anything.

    protobuf hands out strings that are not UTF-8 as bytes."""
    pending: list[tuple[Message, str]] = [(proto, "model")]
    while pending:
        message, what = pending.pop()
        if isinstance(message, onnx.TensorProto):  # without a look at its data
            _check_string(message.name, f"name of {what}")
            pending.extend((entry, "external_data") for entry in message.external_data)
            continue
        for descriptor, value in message.ListFields():
            if descriptor.message_type is not None:
                children = (value,) if isinstance(value, Message) else value
                pending.extend((child, descriptor.name) for child in children)
            elif descriptor.type == descriptor.TYPE_STRING and descriptor.name != "doc_string":
                for text in (value,) if isinstance(value, (str, bytes)) else value:
                    _check_string(text, f"{descriptor.name} of {what}")


def _check_string(text: str | bytes, what: str) -> None:
    if isinstance(text, bytes):
        raise ModelError(f"the {what} {quote(text)} is not UTF-8")
    if "\0" in text:
        raise ModelError(f"the {what} {quote(text)} has a NUL character")


def _hash_into(digest: Any, source: MappedFile | bytes) -> None:
    """Feed a file's content, read in pieces beside its mapping, or bytes, and its length."""
    if isinstance(source, bytes):
        chunks: Iterable[bytes] = [source]
        size = len(source)
    else:
        size = len(source.data)
        chunks = [source.data] if isinstance(source.data, bytes) else _file_chunks(source)
    digest.update(size.to_bytes(8, "little"))
    for chunk in chunks:
        digest.update(chunk)


def _file_chunks(file: MappedFile) -> Iterable[bytes]:
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        if file_stamp(os.fstat(descriptor)) != file.stamp:
            raise ModelError(f"{quote(file.path)} changed while it was compiled")
        yield from read_chunks(descriptor, len(file.data))
    finally:
        os.close(descriptor)
