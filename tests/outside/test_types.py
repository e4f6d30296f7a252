"""What a second type checker makes of the public names."""

import json
import os
import subprocess
import sys

import pytest
from support.installed import installed_tree

import onnxc
from onnxc import onnxruntime

pytestmark = pytest.mark.outside


def test_every_public_name_has_a_type_that_is_known(tmp_path):
    """A class counts where all of its members do; the compiler's rooms behind these names are its own."""
    command = [sys.executable, "-P", "-m", "pyright", "--verifytypes", "onnxc", "--ignoreexternal"]
    done = subprocess.run(
        [*command, "--outputjson", "--pythonpath", sys.executable],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(installed_tree(tmp_path / "tree"))},
    )  # fmt: skip
    symbols = {entry["name"]: entry for entry in json.loads(done.stdout)["typeCompleteness"]["symbols"]}
    public = [f"{module.__name__}.{name}" for module in (onnxc, onnxruntime) for name in module.__all__]
    known = {name for name, entry in symbols.items() if entry["isTypeKnown"]}
    assert not [name for name in public if name not in known and not name.endswith("__version__")]
