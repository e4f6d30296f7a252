"""External tensor data: files beside the model, mapped, and never outside the model's folder.

A location is resolved first and must lie below the model's folder or below the folder of the
model's real path (caches of downloads link both files into a snapshot). The resolved path is then
opened component by component without following links, so that what was checked is what is opened.
Source: onnx.proto, TensorProto.external_data.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path

import onnx

from ..errors import ExternalDataError, ModelError, quote
from ..records import dataclass

MAPPED_FILES = 256  # each mapping keeps a descriptor open; files beyond are read into memory
SMALL_FILE = 64 << 10  # bytes; smaller files are read into memory
CHUNK = 1 << 20


@dataclass(frozen=True)
class Reference:
    """What a tensor says about its external data; offset and length are in bytes."""

    location: str
    offset: int = 0
    length: int | None = None
    checksum: str = ""


def read_reference(entries: Iterable[onnx.StringStringEntryProto]) -> Reference:
    """The reference in a tensor's `external_data` key-value entries; unknown keys are ignored."""
    fields: dict[str, str] = {}
    for entry in entries:
        if entry.key in fields:
            raise ExternalDataError(f"external data has the key {quote(entry.key)} twice")
        fields[entry.key] = entry.value
    location = fields.get("location", "")
    if not location:
        raise ExternalDataError("external data has no location")
    length = _number(fields["length"], "length") if "length" in fields else None
    return Reference(
        location, _number(fields.get("offset", "0"), "offset"), length, fields.get("checksum", "").lower()
    )


def _number(text: str, key: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", text):
        raise ExternalDataError(f"external data has the {key} {quote(text)}, not a number of bytes")
    return int(text)


@dataclass
class MappedFile:
    """A regular file opened for reading: its bytes, and what tells later whether it changed."""

    path: str
    data: mmap.mmap | bytes
    stamp: tuple[int, ...]
    sha1: str = ""

    def forget(self) -> None:
        """Takes what was read of the file off this process's memory; it is read again where it is used."""
        if isinstance(self.data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.data.madvise(mmap.MADV_DONTNEED)

    def changed(self) -> bool:
        """Whether the file at `path` is no longer the one that was opened."""
        try:
            return file_stamp(os.stat(self.path)) != self.stamp
        except OSError:
            return True


def file_stamp(status: os.stat_result) -> tuple[int, ...]:
    """What of a file's status changes when its content does."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def require_regular(status: os.stat_result, what: str) -> None:
    """Refuse everything but regular files: reading a pipe or a device could block or never end."""
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFLNK: "a symbolic link",
    }
    if not stat.S_ISREG(status.st_mode):
        kind = kinds.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise ModelError(f"{what} is {kind}, not a file")


def map_descriptor(descriptor: int, size: int, in_memory: bool) -> mmap.mmap | bytes:
    """The `size` bytes of an open file, mapped read-only or, if asked, read into memory."""
    if size and not in_memory:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    return b"".join(read_chunks(descriptor, size))


def read_chunks(descriptor: int, size: int) -> Iterator[bytes]:
    """The file's first `size` bytes in pieces, without disturbing its position or mapping it."""
    position = 0
    while position < size:
        chunk = os.pread(descriptor, min(CHUNK, size - position), position)
        if not chunk:
            raise ModelError("the file became shorter while it was read")
        position += len(chunk)
        yield chunk


@dataclass
class ExternalFiles:
    """The external files of one model, each opened once. `roots` are the folders they may be in.

    Hard links cannot be told from files of their own; `refuse_hard_links` refuses both."""

    roots: tuple[Path, ...]
    refuse_hard_links: bool
    _files: dict[str, MappedFile] = field(default_factory=dict)
    _resolved: dict[str, MappedFile] = field(default_factory=dict)

    @classmethod
    def beside(cls, model: Path, refuse_hard_links: bool) -> ExternalFiles:
        """For the model file `model`: below its folder, or below that of its real path."""
        roots = (Path(os.path.realpath(model.parent)), Path(os.path.realpath(model)).parent)
        return cls(tuple(dict.fromkeys(roots)), refuse_hard_links)

    def hold(self, contents: Mapping[str, bytes]) -> None:
        """Takes these contents, by location, for those of files, which are then not looked for."""
        self._files.update({location: MappedFile("", data, ()) for location, data in contents.items()})

    def bytes_of(self, reference: Reference, needed: int) -> memoryview:
        """The `needed` bytes that `reference` points to; ExternalDataError if it does not hold them."""
        file = self.open(reference.location)
        name, size = quote(reference.location), len(file.data)
        if reference.length is not None and reference.length != needed:
            raise ExternalDataError(
                f"external data in {name} has the length {reference.length}, but the "
                f"tensor's shape and type need {needed} bytes"
            )
        if needed > size or reference.offset > size - needed:
            raise ExternalDataError(
                f"external data in {name} at offset {reference.offset} with {needed} "
                f"bytes runs past the end of the file, which has {size} bytes"
            )
        if reference.checksum:
            file.sha1 = file.sha1 or hashlib.sha1(file.data, usedforsecurity=False).hexdigest()
            if file.sha1 != reference.checksum:
                raise ExternalDataError(
                    f"external data in {name} has the SHA-1 checksum {file.sha1}, not "
                    f"{quote(reference.checksum)} as the model says"
                )
        return memoryview(file.data)[reference.offset : reference.offset + needed]

    def open(self, location: str) -> MappedFile:
        """The file at `location`, opened at its first use."""
        if location not in self._files:
            root, parts = self._resolve(location)
            path = os.path.join(root, *parts)
            if path not in self._resolved:
                try:
                    self._resolved[path] = self._open(root, parts, path, quote(location))
                except OSError as error:
                    raise _cannot_open(location, error) from None
            self._files[location] = self._resolved[path]
        return self._files[location]

    def opened(self) -> list[MappedFile]:
        """Every file opened so far."""
        return list(self._resolved.values())

    def _resolve(self, location: str) -> tuple[Path, tuple[str, ...]]:
        """The root that holds `location`, and the link-free path below it."""
        name = quote(location)
        if not self.roots:
            raise ExternalDataError(
                f"the model has external data in {name} but was not given as a path",
                remedy="give its path, or a session the folder, by the entry "
                "session.model_external_initializers_file_folder_path",
            )
        parts = location.split("/")
        if "\0" in location:
            raise ExternalDataError(f"the location {name} of external data has a NUL character")
        if location.startswith("/") or os.path.isabs(location) or ".." in parts:
            raise ExternalDataError(f"the location {name} of external data is not below the model's folder")
        for root in self.roots:
            candidate = os.path.join(root, *parts)
            if not os.path.lexists(candidate):
                continue
            try:
                real = Path(os.path.realpath(candidate, strict=True))
            except OSError as error:
                raise _cannot_open(location, error) from None
            for allowed in self.roots:
                if real.is_relative_to(allowed):
                    return allowed, real.relative_to(allowed).parts
            raise ExternalDataError(
                f"the location {name} of external data is a link that leaves the model's folder"
            )
        raise _cannot_open(location, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))

    def _open(self, root: Path, parts: tuple[str, ...], path: str, name: str) -> MappedFile:
        what = f"external data file {name}"
        descriptor = _open_below(root, parts, what)
        try:
            status = os.fstat(descriptor)
            require_regular(status, what)
            if self.refuse_hard_links and status.st_nlink > 1:
                raise ExternalDataError(f"{what} has other hard links, which this setting refuses")
            in_memory = status.st_size < SMALL_FILE or len(self._resolved) >= MAPPED_FILES
            data = map_descriptor(descriptor, status.st_size, in_memory)
            return MappedFile(path, data, file_stamp(status))
        finally:
            os.close(descriptor)


def _cannot_open(location: str, error: OSError) -> ExternalDataError:
    return ExternalDataError(
        f"external data file {quote(location)} cannot be opened: {error.strerror or error}"
    )


def _open_below(root: Path, parts: tuple[str, ...], what: str) -> int:
    """A descriptor of the regular file `parts` below `root`, following no link on the way."""
    if os.open not in os.supports_dir_fd or not parts:
        require_regular(os.lstat(root.joinpath(*parts)), what)
        return os.open(root.joinpath(*parts), os.O_RDONLY | getattr(os, "O_BINARY", 0))
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    directory = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = inner
        require_regular(os.stat(parts[-1], dir_fd=directory, follow_symlinks=False), what)
        return os.open(parts[-1], flags, dir_fd=directory)
    finally:
        os.close(directory)
