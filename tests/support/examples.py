"""The example programs of docs/examples, each copied to a folder of its own, to be built, moved and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SEVEN = (EXAMPLES / "models" / "seven.txt").read_text()
DRAWING = (EXAMPLES / "models" / "seven.drawing").read_text()


class Example:
    """A copy of an example with the models beside it."""

    def __init__(self, name: str, folder: Path):
        self.name, self.folder = name, folder / "built"
        for part in ("models", name):
            shutil.copytree(EXAMPLES / part, self.folder / part)

    @classmethod
    def of(cls, folder: Path) -> Example:
        """A program that is in a folder already."""
        made = cls.__new__(cls)
        made.name, made.folder = folder.name, folder.parent
        return made

    def run(self, *command: object, given: str | None = None, **variables: str) -> str:
        """What a command prints in the example's folder. given: its input; variables: of its environment."""
        own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            list(map(str, command)), cwd=self.folder / self.name, input=given, capture_output=True, text=True,
            env={**os.environ, "PATH": own, **variables}, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def move(self, *files: str) -> None:
        """What is built is left, alone, in another folder."""
        elsewhere = self.folder.with_name("elsewhere") / self.name
        elsewhere.mkdir(parents=True)
        for file in files:
            source = self.folder / self.name / file
            shutil.move(source, elsewhere / source.name)
        shutil.rmtree(self.folder)
        self.folder = elsewhere.parent

    def run_alone(self, file: str, given: str) -> str:
        """What a program prints where there is nothing else: no other file, no shared library, no device."""
        self.move(file)
        root, name = self.folder / self.name, Path(file).name
        assert [path.name for path in root.iterdir()] == [name]
        as_root = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
        return self.run(*as_root, "chroot", root, f"/{name}", given=given)


def build_with_cmake(folder: Path, *options: str) -> set[str]:
    """Builds and installs the example in C++, moves what was installed, and runs it; the files."""
    example = Example("cpp", folder)
    package = example.run("onnxc", "--cmake-dir").strip()
    example.run("cmake", "-B", "build", f"-Donnxc_DIR={package}", *options)
    example.run("cmake", "--build", "build")
    example.run("cmake", "--install", "build", "--prefix", "out")
    example.move("out")
    seven, refusal = example.run("out/bin/digits", given=DRAWING).splitlines()
    assert seven == "7" and refusal.startswith("5: input 'image': expected rank 3")
    return {path.name for path in (example.folder / "cpp" / "out").rglob("*") if path.is_file()}
