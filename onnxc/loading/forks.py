"""A lock for which the child of a fork does not wait."""

from __future__ import annotations

import os
from _thread import RLock


class ProcessLock:
    """A lock of this process's threads. In the child of a fork, where that of the parent may be held by a
    thread that is not there, it is one of its own."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._process, self._lock = os.getpid(), RLock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self._renew()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
