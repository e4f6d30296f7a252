"""The documentation as a site."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.outside

CONFIGURATION = Path(__file__).parents[2] / "docs" / "site" / "mkdocs.yml"


def test_the_site_is_built_without_a_warning_and_has_every_page(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", CONFIGURATION, "-d", tmp_path]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=quiet)
    assert ended.returncode == 0, ended.stderr
    pages = {page.stem for page in CONFIGURATION.parents[1].glob("*.md")} - {"index"}
    assert pages <= {folder.name for folder in tmp_path.iterdir()} and (tmp_path / "index.html").exists()
