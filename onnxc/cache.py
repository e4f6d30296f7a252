"""The user's cache: a folder (mode 0700) whose entries are named by the content of everything that they
depend on, and appear whole.

A folder is used where the user or root owns it and nobody else can write to it (or `ONNXC_CACHE_TRUST=1` says
that it may be): its libraries are code. One that cannot be written is read; what is missing there, or where
there is no folder to be had, goes to a temporary one, of which a warning tells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .errors import CacheError, LoadError, warn
from .places import is_trusted, shared_temporary

if TYPE_CHECKING:
    from pathlib import Path

_fallback: Path | None = None  # of this process, once it was needed


def cache_folder(make: bool = True) -> Path:
    """`$ONNXC_CACHE`, or onnxc under the user's cache folder, made where it is missing, unless it is only
    asked for; it may be one that can only be read. A temporary folder where the user's own cannot be had.
    Raises CacheError where `$ONNXC_CACHE` names none, and for a folder that others can write to."""
    from pathlib import Path

    named = os.environ.get("ONNXC_CACHE")
    try:
        folder = Path(named).expanduser() if named else _usual_folder()
        if not make and _can_be_made(folder):
            return folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: there is no home
        reason = getattr(error, "strerror", None) or str(error)
        if named:
            raise CacheError(f"the cache folder {named} cannot be used: {reason}; set ONNXC_CACHE") from None
        return _temporary_folder(f"there is no cache folder to be had ({reason})")
    _require_trusted(folder)
    return folder


def writable_folder() -> Path:
    """Where new entries go: the cache's folder, or a temporary one where libraries cannot be written to it or
    cannot be run from it."""
    folder = cache_folder()
    if not os.access(folder, os.W_OK | os.X_OK):
        return _temporary_folder(f"the cache folder {folder} cannot be written")
    return folder if _runs_code(folder) else _temporary_folder(f"no code can be run from {folder} (noexec)")


def usable_cache_folder() -> Path | None:
    """The folder where it is only a help: None where there is none to be had."""
    try:
        return cache_folder()
    except CacheError:
        return None


def folders() -> list[Path]:
    """Where entries may be: the cache's folder, and the temporary one where there is one already."""
    from pathlib import Path

    found = [cache_folder()]
    other = _fallback or Path(shared_temporary())
    return [*found, other] if other.is_dir() and other not in found and is_trusted(other) else found


def after_failure(folder: Path, reason: str) -> Path:
    """Where to write instead of a folder to which it failed. Raises CacheError where that is the last."""
    other = _temporary_folder(f"the cache folder {folder} cannot be written ({reason})")
    if other == folder:
        raise CacheError(f"the cache folder {folder} cannot be written ({reason}); set ONNXC_CACHE")
    return other


def _usual_folder() -> Path:
    from pathlib import Path

    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onnxc"


# Which folders are used ---------------------------------------------------------------------------------


def _require_trusted(folder: Path) -> None:
    if not is_trusted(folder):
        raise CacheError(
            f"the cache folder {folder} belongs to or can be written by others; "
            "make it private, set ONNXC_CACHE, or set ONNXC_CACHE_TRUST=1"
        )


def _can_be_made(folder: Path) -> bool:
    """Whether a folder is not there, and the user may make it."""
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    return there != folder and there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _runs_code(folder: Path) -> bool:
    try:
        return not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
    except OSError:
        return True


def _temporary_folder(reason: str) -> Path:
    """A folder of the user's own under the system's temporary one, the same for all processes; one for this
    process alone where another has that name. Warns the first time."""
    global _fallback
    if _fallback is None:
        import tempfile
        from pathlib import Path

        try:
            folder = Path(shared_temporary())
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.is_symlink() or not is_trusted(folder) or not os.access(folder, os.W_OK | os.X_OK):
                folder = Path(tempfile.mkdtemp(prefix="onnxc-"))
        except OSError as error:
            raise CacheError(
                f"{reason}, and no temporary one ({error.strerror or error}); set ONNXC_CACHE to a folder "
                "that can be written"
            ) from None
        if not _runs_code(folder):
            raise CacheError(
                f"{reason}, and no code can be run from {folder} (noexec); set ONNXC_CACHE to a folder "
                "whose libraries can be loaded"
            )
        _fallback = folder
        warn(f"{reason}; compiled models are kept in {folder}", RuntimeWarning)
    return _fallback


# Entries --------------------------------------------------------------------------------------------------


def temporary_name(entry: Path) -> Path:
    """A name beside an entry that no other process has."""
    return entry.with_name(f".{entry.name}.{os.urandom(8).hex()}.tmp")


def keep(source: Path, entry: Path) -> None:
    """Makes a file an entry of the cache, with a trailer that tells whether it is whole. An entry is a help:
    where it cannot be written there is none."""
    import shutil

    from .trailer import append_trailer

    temporary = temporary_name(entry)
    try:
        shutil.copyfile(source, temporary)
        append_trailer(temporary)
        os.replace(temporary, entry)
    except OSError:
        temporary.unlink(missing_ok=True)


def fetch(entry: Path, destination: Path) -> bool:
    """Copies an entry out of the cache; False where there is none, or not a whole one."""
    import shutil

    from .trailer import check_trailer

    try:
        shutil.copyfile(entry, destination)
        with open(destination, "rb") as file:
            check_trailer(file.fileno(), destination)
    except (OSError, LoadError):
        return False
    return True


@contextmanager
def locked(entry: Path, waiting: str = "") -> Iterator[None]:
    """Holds an entry's lock, so that one process makes it and others wait; these are told `waiting` in the
    log. Its file goes with the lock. Where a file system has no locks the entry may be made twice, which does
    no harm."""
    place = entry.with_name(f".{entry.name}.lock")
    file = _lock(place, waiting)
    try:
        yield
    finally:
        place.unlink(missing_ok=True)
        os.close(file)


def _lock(place: Path, waiting: str) -> int:
    """An open file that is locked and is the one at its place: who had it before has removed it."""
    import fcntl

    while True:
        file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            import logging

            logging.getLogger("onnxc").info("%s", waiting)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            return file
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), os.stat(place)):
                os.utime(file)  # no old file of a process that ended
                return file
        os.close(file)
