"""Which tests are quick, the folders of a run, and the hand-written models, compiled once and loaded for each
test."""

from __future__ import annotations

import os
import tempfile
import threading
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest
from support.handmade_models import AFFINE, DIVIDE, HERE, build, scale_bytes
from support.shared import KEPT, VARIABLE, shared
from support.sources import ZOO

from onnxc.loading import loader

collect_ignore = [] if ZOO else ["models/test_exported_models.py"]


def pytest_configure(config):
    """A cache that begins empty, in place of the user's, and folders for what is made once: workers share
    them."""
    if not hasattr(config, "workerinput"):
        if hasattr(config, "cache"):
            os.environ[KEPT] = str(config.cache.mkdir("made-once"))
        for variable in ("ONNXC_CACHE", VARIABLE):
            folder = tempfile.TemporaryDirectory(prefix="onnxc-tests-")
            os.environ[variable] = folder.name
            config.add_cleanup(folder.cleanup)


OUTSIDE = pytest.StashKey[set[str]]()  # the tests of that group which this run leaves out


def leave_outside(config, items):
    """Leaves out what is marked `outside` unless the command names the group."""
    left = [item for item in items if item.get_closest_marker("outside")]
    if not left or "outside" in config.option.markexpr:
        return
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)
    config.stash[OUTSIDE] = {item.nodeid for item in left}


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["outside"] = sorted(session.config.stash.get(OUTSIDE, set()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash.setdefault(OUTSIDE, set()).update(getattr(node, "workeroutput", {}).get("outside", ()))


def pytest_terminal_summary(terminalreporter, config):
    left = config.stash.get(OUTSIDE, set())
    if left:
        files = sorted({Path(nodeid.partition("::")[0]).name for nodeid in left})
        terminalreporter.write_line(
            f"left to `pytest -m outside` (set up by tests/outside/setup.sh): {len(left)} "
            f"test{'s' if len(left) > 1 else ''} of {', '.join(files)}"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """`-m quick`: of every test function one case, in the middle of its list so that sizes and processors
    vary, unless it is marked slow. What is marked quick is so with all its cases. Every room has
    some."""
    leave_outside(config, items)
    rooms: dict[Path, list[pytest.Item]] = {}
    for _, group in groupby(items, key=lambda item: (item.path, getattr(item, "originalname", item.name))):
        cases = list(group)
        middle = cases[len(cases) // 2]
        if middle.get_closest_marker("slow") is None:
            middle.add_marker(pytest.mark.quick)
        rooms.setdefault(cases[0].path.parent, []).append(middle)
    slow = [
        str(room) for room, found in rooms.items() if not any(m.get_closest_marker("quick") for m in found)
    ]
    if slow and config.option.markexpr == "quick":
        raise pytest.UsageError(f"none of the tests in {', '.join(slow)} is quick")


@pytest.fixture(scope="session")
def affine_path() -> Path:
    make = partial(build, source=HERE / "affine.c", description=AFFINE, weights=scale_bytes(3))
    return shared("affine", make) / "model.so"


@pytest.fixture(scope="session")
def divide_path() -> Path:
    return shared("divide", partial(build, source=HERE / "divide.c", description=DIVIDE)) / "model.so"


@pytest.fixture
def affine(affine_path):
    with loader.load(affine_path, threads=2) as model:
        yield model


@pytest.fixture
def divide(divide_path):
    with loader.load(divide_path, threads=1) as model:
        yield model


@pytest.fixture
def threads_left(monkeypatch):
    """Call it with how many threads more the system starts; it returns the list of those."""
    begin = threading.Thread.start

    def limit(count):
        begun = []

        def start(thread):
            if len(begun) == count:
                raise RuntimeError("can't start new thread")
            begun.append(thread)
            begin(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        return begun

    return limit
