"""How many processors' time control groups leave a process, read from files as Linux has them."""

import subprocess

import pytest
from support.handmade_models import HERE, cc

from onnxc.codegen.library.runtime import SOURCES


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program and the folder in which it looks for /proc and /sys."""
    folder = tmp_path_factory.mktemp("quota")
    root = folder / "root"
    cc("-O1", f'-DONNXC_ROOT="{root}"', f"-I{SOURCES}", HERE / "quotas.c", "-o", folder / "quota")
    return folder / "quota", root


@pytest.mark.parametrize(
    "groups,files,quota",
    [
        ("0::/", {}, "none"),
        ("0::/", {"cpu.max": "max 100000"}, "none"),
        ("0::/", {"cpu.max": "200000 100000"}, "2"),
        ("0::/", {"cpu.max": "150000 100000"}, "2"),
        ("0::/", {"cpu.max": "1000 100000"}, "1"),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, "3"),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "100000 50000"}, "2"),
        ("0::/gone", {"cpu.max": "400000 100000"}, "4"),
        ("0::/", {"cpu.max": "99999999999999999999 1"}, "none"),
        ("0::/", {"cpu.max": "5 0"}, "none"),
        ("0::/", {"cpu.max": "what"}, "none"),
        (
            "2:cpuacct:/\n1:cpu:/c",
            {"cpu/c/cpu.cfs_quota_us": "250000", "cpu/c/cpu.cfs_period_us": "100000"},
            "3",
        ),
        ("1:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "none"),
        ("1:cpuset:/", {"cpu/cpu.cfs_quota_us": "1", "cpu/cpu.cfs_period_us": "1"}, "none"),
        ("nonsense\n:\n", {"cpu.max": "1 1"}, "none"),
    ],
)
def test_the_least_quota_counts(program, groups, files, quota):
    path, root = program
    subprocess.run(["rm", "-rf", root], check=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups + "\n")
    for name, content in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    assert subprocess.run([path], capture_output=True, text=True, check=True).stdout.strip() == quota


def test_without_control_groups_nothing_limits(program):
    path, root = program
    subprocess.run(["rm", "-rf", root], check=True)
    assert subprocess.run([path], capture_output=True, text=True, check=True).stdout.strip() == "none"
