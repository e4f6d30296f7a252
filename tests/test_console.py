"""What a terminal shows: progress, tables, sizes and times; and JSON."""

import io
import json
import sys

import numpy as np
import pytest

from onnxc import console


def test_progress_is_a_line_a_stage_when_it_takes_long_and_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    with console.Progress("compile a") as progress:
        progress._timer.join()
        progress("import")
        progress("link")
    assert capsys.readouterr().err == "compile a: import\ncompile a: link\n"


def test_progress_is_silent_when_it_is_quick(capsys):
    with console.Progress("compile a") as progress:
        progress("import")
    assert capsys.readouterr().err == ""


def test_progress_is_silent_where_no_thread_can_be_started(capsys, threads_left):
    threads_left(0)
    with console.Progress("compile a") as progress:
        progress("import")
    assert capsys.readouterr().err == ""


class Terminal(io.StringIO):
    """Text that a terminal would show."""

    def isatty(self):
        return True


def test_progress_is_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with console.Progress("compile a") as progress:
        progress._timer.join()
        progress("generate code")
    assert "compile a: generate code" in sys.stderr.getvalue()
    assert "\u2501" in sys.stderr.getvalue()


def test_a_table_has_the_same_cells_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    console.print_table(("name", "size"), [("[bold]x", "1")])
    assert "[bold]x" in sys.stdout.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (console.bytes_text(999), "999 bytes"),
        (console.bytes_text(1500), "1.50 kB"),
        (console.bytes_text(102_469_368), "102.5 MB"),
        (console.bytes_text(None), "unknown"),
        (console.time_text(1.5), "1.5 s"),
        (console.time_text(0.00123), "1.23 ms"),
        (console.time_text(4.5e-7), "0.45 \u00b5s"),
        (console.time_text(1234.5), "1234.5 s"),
    ],
)
def test_sizes_and_times_are_short(text, expected):
    assert text == expected


def test_json_has_no_numbers_that_json_lacks(capsys):
    console.print_json({"a": float("nan"), "b": [np.float32(1.5), np.int64(2)], "c": float("inf")})
    assert json.loads(capsys.readouterr().out) == {"a": "nan", "b": [1.5, 2], "c": "inf"}
