"""The package as a plain installation has it, for checkers that read it: in a checkout its rooms are folders
of their own."""

from pathlib import Path

import onnxc
from onnxc import codegen, passes, runtime_c


def installed_tree(folder: Path) -> Path:
    """The folder, with `onnxc` in it."""
    tree = folder / "onnxc"
    tree.mkdir(parents=True)
    for entry in Path(onnxc.__file__).parent.iterdir():
        (tree / entry.name).symlink_to(entry)
    for package in (codegen, passes, runtime_c):
        place = tree / package.__name__.rpartition(".")[2]
        if not place.exists():
            place.symlink_to(Path(package.__file__).parent)
    return folder
