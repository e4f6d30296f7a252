"""Output files that appear whole.

They are written under other names beside their places, flushed and renamed, so that a reader finds the old
files, the new ones, or none. None takes the place of what is read, or of another that is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...errors import CompileError, Origin, UsageError
from ...places import absolute

Named = tuple[str, str | os.PathLike]  # a file after what it is


def refuse_overwriting(read: Iterable[Named], written: Iterable[Named]) -> None:
    """Raises UsageError where a file would be written over one that is read, or over another that is written,
    links followed."""
    taken = {_place(path): what for what, path in read}
    for what, path in written:
        other = taken.setdefault(_place(path), what)
        if other != what:
            raise UsageError(f"the {what} would be written over the {other}", origin=Origin(os.fspath(path)))


def _place(path: str | os.PathLike) -> str:
    """The path of the file itself, links followed."""
    return absolute(path, CompileError, os.path.realpath)


def check_output(path: Path) -> None:
    """Raise CompileError at once if `path` could not be written in the end."""
    origin = Origin(file=os.fspath(path))
    try:
        parent = Path(_place(path)).parent
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a link to itself
        raise CompileError(
            f"cannot be written: {getattr(error, 'strerror', None) or error}", origin=origin
        ) from None
    if not parent.is_dir():
        raise CompileError(f"its folder '{parent}' does not exist", origin=origin)
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise CompileError(f"is {kind}, not a place for a file", origin=origin)
    try:
        _create_beside(path).unlink()
    except OSError as error:
        raise CompileError(
            f"its folder '{parent}' cannot be written: {error.strerror}", origin=origin
        ) from None


def _create_beside(path: Path) -> Path:
    """A new empty file in the folder of `path`."""
    made = _beside(path.resolve())
    os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return made


def _beside(path: Path) -> Path:
    """A name of no file in the folder of `path`."""
    return path.parent / f".onnxc-{secrets.token_hex(8)}.tmp"


@contextlib.contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Gives a new name beside each path; when the block is done the files there take the places of all
    paths, or of none.

    Nothing is left behind by a block that fails."""
    places = [Path(path).resolve() for path in paths]
    temporaries: list[Path] = []
    try:
        for place in places:
            temporaries.append(_create_beside(place))
        yield temporaries
        for temporary in temporaries:
            _flush(temporary)
        _rename(temporaries, places)
    except OSError as error:
        raise CompileError(
            f"cannot be written: {error.strerror or error}",
            origin=Origin(file=_blamed(error, temporaries, paths)),
        ) from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Has the system's errors that name no file, as of a full disk, name this one, which is written."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def _blamed(error: OSError, temporaries: Sequence[Path], paths: Sequence[Path]) -> str:
    """The file that an error is about, an output as the caller calls it; the first where nothing tells."""
    outputs = dict(zip(map(os.fspath, temporaries), map(os.fspath, paths)))
    return outputs.get(error.filename, error.filename or os.fspath(paths[0]))


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _rename(sources: Sequence[Path], places: Sequence[Path]) -> None:
    """Renames all files or none. Who renames several holds a lock on the folder of the last, so that the
    files of two compilations do not mix."""
    folders = dict.fromkeys(place.parent for place in places)
    renamed: list[tuple[Path, Path | None]] = []
    with _locked(places[-1].parent) if len(places) > 1 else contextlib.nullcontext():
        try:
            for source, place in zip(sources, places):
                old = _kept(place) if len(places) > 1 else None
                renamed.append((place, old))
                os.replace(source, place)
            for folder in folders:
                _flush(folder)
        except BaseException:
            for place, old in reversed(renamed):
                with contextlib.suppress(OSError):
                    place.unlink() if old is None else os.replace(old, place)
            raise
        finally:
            for _, old in renamed:
                if old is not None:
                    old.unlink(missing_ok=True)


def _kept(path: Path) -> Path | None:
    """Another name for the file at `path`; None where there is no file."""
    other = _beside(path)
    try:
        os.link(path, other)
    except FileNotFoundError:
        return None
    except OSError:  # a file system without links
        os.rename(path, other)
    return other


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    file = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
