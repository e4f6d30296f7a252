"""What a command leaves that is asked to end: nothing unfinished, as after an interruption."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = (signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """The process was asked to end. Who catches it, behind all that is to be taken away, calls `end`."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number

    def end(self) -> None:
        """Ends the process by the signal that asked for it."""
        signal.signal(self.number, signal.SIG_DFL)
        signal.raise_signal(self.number)


@contextlib.contextmanager
def ending_clean() -> Iterator[None]:
    """Makes `Ended` of a request to end. While a model runs it is left to the system: a run does not look for
    requests."""

    def end(number: int, frame: object) -> None:
        raise Ended(number)

    main = threading.current_thread() is threading.main_thread()
    taken = [number for number in ENDING if main and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
