"""Tells of a compilation that a program did not ask for: to Python's logger `onnxc`, and on a terminal by a
bar."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


@contextmanager
def told(name: str, progress: Callable[[str], None] | None) -> Iterator[Callable[[str], None]]:
    """What to call with the name of each stage. progress: what else to call; without it, and where standard
    error is a terminal, a bar is shown there."""
    logger, began = logging.getLogger("onnxc"), time.monotonic()
    bar: Any = nullcontext()
    if progress is None and sys.stderr is not None and sys.stderr.isatty():
        from ..console import Progress

        bar = Progress(f"compile {name}")
    logger.info("compile %s", name)
    with bar as shown:

        def tell(stage: str) -> None:
            logger.debug("compile %s: %s", name, stage)
            for each in (progress, shown):
                if each is not None:
                    each(stage)

        yield tell
    logger.info("compiled %s in %.1f s", name, time.monotonic() - began)
