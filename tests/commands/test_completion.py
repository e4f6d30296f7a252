"""Completion scripts and the manual page: both know every command and option that the parser has."""

import argparse
import subprocess
from pathlib import Path

import pytest

from onnxc.commands.cli import main, make_parser

MANUAL = Path(__file__).parents[2] / "docs" / "onnxc.1"


def commands(parser):
    """Each command's parser by name, of commands within commands too."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield name, command
                yield from commands(command)


def options():
    return {o for _, c in commands(make_parser()) for a in c._actions for o in a.option_strings} - {
        "-h",
        "--help",
    }


@pytest.mark.parametrize("shell", ("bash", "zsh", "fish", "tcsh", "powershell"))
def test_a_script_for_each_shell_names_the_commands(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    missing = [name for name, _ in commands(make_parser()) if name not in script]
    assert not missing


def test_bash_completes_commands_options_and_choices(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    (tmp_path / "onnxc").write_text(capsys.readouterr().out)

    def completed(*words):
        typed = " ".join(f"'{word}'" for word in words)
        script = f"source {tmp_path}/onnxc; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}"
        asked = script + '; _shtab_onnxc; echo "${COMPREPLY[@]}"'
        ended = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
        return ended.stdout.split()

    assert completed("onnxc", "ver") == ["verify"]
    assert completed("onnxc", "compile", "--prec") == ["--precision"]


def test_the_manual_page_tells_of_every_command_and_option():
    """Made by `argparse-manpage --module onnxc.commands.cli --function make_parser`, as docs/cli.md says."""
    page = " ".join(MANUAL.read_text().replace("\\-", "-").split())
    assert not [name for name, _ in commands(make_parser()) if name not in page]
    assert not sorted(option for option in options() if option not in page)
    actions = [a for _, c in commands(make_parser()) for a in c._actions]
    choices = {"{" + ",".join(a.choices) + "}" for a in actions if a.option_strings and a.choices}
    assert not sorted(some for some in choices if some not in page)
    told = {" ".join(a.help.split()) for a in actions if a.help and "%" not in a.help and a.dest != "help"}
    assert not sorted(text for text in told if text not in page)
