"""What a command leaves that is asked to end: nothing unfinished, as after an interruption."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGTERM, signal.SIGHUP)

_asked: list[BaseException] | None = None  # the requests that came to a command; None: no one keeps them


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
        _ask(Ended(number))

    main = threading.current_thread() is threading.main_thread()
    taken = [number for number in ENDING if main and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _ask(request: BaseException) -> NoReturn:
    if _asked is not None:
        _asked.append(request)
    raise request


def raise_asked() -> None:
    """Raises the request to end that came, if any. What fails behind it does so because of it: some code in
    C makes an error of its own of what is raised."""
    if _asked:
        raise _asked[0] from None


@contextlib.contextmanager
def requests_kept() -> Iterator[None]:
    """Keeps requests to end, an interruption among them, for `raise_asked`. One that comes while a finalizer
    or the callback of a weak reference runs (imports have some) is raised in the code that goes on behind
    it: Python would print it and forget it."""
    global _asked
    before = sys.unraisablehook
    main = threading.current_thread() is threading.main_thread()
    interrupted = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def hear(lost: sys.UnraisableHookArgs) -> None:
        request = lost.exc_value
        if not isinstance(request, (KeyboardInterrupt, Ended)):
            before(lost)
            return

        def again(frame: FrameType, event: str, argument: object) -> None:
            if frame.f_code is not hear.__code__:  # where it would be lost again
                raise request

        sys.setprofile(again)  # to the next call or return, at which raising ends it

    _asked = []
    sys.unraisablehook = hear
    if interrupted:
        signal.signal(signal.SIGINT, lambda number, frame: _ask(KeyboardInterrupt()))
    try:
        yield
    finally:
        if interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = before
        _asked = None
