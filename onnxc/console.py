"""What the command line prints with: sizes, tables, JSON, and the progress of a compilation.

Everything is plain text unless the stream is a terminal; then `rich` draws tables and the progress
bar.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: The stages of driver.compile_model, as it announces them.
STAGES = (
    "import",
    "optimise",
    "select kernels",
    "emit kernels",
    "plan memory",
    "write weights",
    "generate code",
    "link",
)
PATIENCE = 1.0  # seconds without a sign of progress


def bytes_text(count: int | None) -> str:
    """`12.3 MB`; powers of 1000, as files are listed."""
    if count is None:
        return "unknown"
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.2f} {unit}" if count < 10 * size else f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def time_text(seconds: float) -> str:
    """`1.23 s`, `4.56 ms` or `7.89 µs`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.{3 if seconds < 1000 * size else 6}g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def print_json(content: object) -> None:
    """content as JSON on standard output; numbers that JSON does not have become their names."""
    print(json.dumps(_plain(content), indent=2))


def _plain(content: object) -> object:
    match content:
        case Mapping():
            return {str(key): _plain(value) for key, value in content.items()}
        case list() | tuple():
            return [_plain(value) for value in content]
        case float() if not math.isfinite(content):
            return str(content)
        case None | str() | bool() | int() | float():
            return content
    return _plain(content.item()) if hasattr(content, "item") else str(content)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> None:
    """A table; the first `text_columns` columns are aligned to the left, the others to the right."""
    if sys.stdout.isatty():
        _print_rich(header, rows, text_columns)
        return
    table = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(header))]
    for row in table:
        cells = [
            cell.ljust(width) if k < text_columns else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths))
        ]
        print("  ".join(cells).rstrip())


def _print_rich(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for k, title in enumerate(header):
        table.add_column(title, justify="left" if k < text_columns else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """`name   value`, one a line; a value of several lines goes on below itself."""
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        for k, line in enumerate(value.split("\n")):
            print(f"  {name if k == 0 else '':{width}}  {line}".rstrip())


class Progress:
    """Call it with each stage's name. What takes less than a second shows nothing; then a terminal
    gets a bar, and anything else a line a stage, on standard error. A context manager: leaving it
    takes the bar away."""

    def __init__(self, title: str):
        self.title, self.stage, self.began = title, "", time.monotonic()
        self._bar: Any = None  # of rich, imported when it is shown
        self._task: Any = None
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._shown = False

    def __enter__(self) -> Progress:
        with contextlib.suppress(RuntimeError):  # where no thread can be started nothing is shown
            self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._shown = True
            if self._bar is not None:
                self._bar.stop()

    def __call__(self, stage: str) -> None:
        with self._lock:
            self.stage = stage
            if self._shown:
                self._update()

    def _show(self) -> None:
        with self._lock:
            if self._shown:
                return
            self._shown = True
            if sys.stderr.isatty():
                from rich.console import Console
                from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
                from rich.progress import Progress as Bar

                columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
                self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
                self._task = self._bar.add_task(self.title, total=len(STAGES))
                self._bar.tasks[0].start_time = self.began
                self._bar.start()
            if self.stage:
                self._update()

    def _update(self) -> None:
        if self._bar is None:
            print(f"{self.title}: {self.stage}", file=sys.stderr, flush=True)
            return
        done = STAGES.index(self.stage) if self.stage in STAGES else None
        self._bar.update(self._task, completed=done, description=f"{self.title}: {self.stage}")
