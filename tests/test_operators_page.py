"""docs/operators.md is what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_page_of_operators_is_made_of_the_code():
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "operator_table.py")]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    page = (REPOSITORY / "docs" / "operators.md").read_text(encoding="utf-8")
    assert page == made, f"make it anew: {' '.join(command[1:])} > docs/operators.md"
