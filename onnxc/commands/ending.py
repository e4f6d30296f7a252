"""What a command leaves that is asked to end: nothing unfinished, as after an interruption."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

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


@contextlib.contextmanager
def requests_kept() -> Iterator[None]:
    """Has a request to end, an interruption among them, that comes while a finalizer or the callback of a
    weak reference runs (imports have some) raised in the code that goes on behind it: Python would print it
    and forget it."""
    before = sys.unraisablehook

    def hear(lost: sys.UnraisableHookArgs) -> None:
        request = lost.exc_value
        if not isinstance(request, (KeyboardInterrupt, Ended)):
            before(lost)
            return

        def again(frame: FrameType, event: str, argument: object) -> None:
            if frame.f_code is not hear.__code__:  # where it would be lost again
                raise request

        sys.setprofile(again)  # to the next call or return, at which raising ends it

    sys.unraisablehook = hear
    try:
        yield
    finally:
        sys.unraisablehook = before
