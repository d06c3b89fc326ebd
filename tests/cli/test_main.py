from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.drive import call
from topo_cli.main import COMMANDS


def test_help_lists_every_command_and_ends_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "--help")
    assert result.code == 0
    for name, summary in COMMANDS.items():
        assert f"  {name} " in result.out
        assert summary in result.out
    assert result.out.rstrip().rpartition("Examples:")[2].strip().startswith("topo ")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_ends_with_examples_of_it(capsys: pytest.CaptureFixture[str], name: str) -> None:
    result = call(capsys, name, "--help")
    assert result.code == 0
    examples = result.out.partition("Examples:")[2].strip().splitlines()
    assert examples and all(line.strip().startswith(f"topo {name}") for line in examples)


def test_the_option_for_the_version_does_as_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--json"]):
        asked, expected = call(capsys, "--version", *arguments), call(capsys, "version", *arguments)
        assert asked.code == 0 and asked.out == expected.out != ""


def test_help_imports_no_command_no_engine_and_nothing_that_draws() -> None:
    code = (
        "import sys\n"
        "from topo_cli.main import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('modules:', *sys.modules)\n"
    )
    loaded = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        .stdout.split("modules:")[-1]
        .split()
    )
    assert "topo_cli.main" in loaded
    heavy = {"topo", "rich", "zmq", "msgspec", "msgpack", "psutil", "topo_cli.run"}
    assert heavy.isdisjoint(loaded)


def test_a_command_that_does_not_exist_is_a_usage_error_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "stauts", "x")
    assert result.code == 2
    assert "did you mean 'status'?" in result.err
    assert result.out == ""


def test_no_command_prints_the_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys)
    assert result.code == 2
    assert "Commands:" in result.out + result.err


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("run",), "Missing argument 'TOPOLOGY'"),
        (("run", "x.py", "-p", "novalue"), "'novalue' is not of the form name=value"),
        (("logs", "x", "--since", "soon"), "'soon' is not a duration"),
        (("graph", "x.py", "--format", "png"), "'png' is not one of"),
        (("run", "x.py", "--workers", "0"), "0 is not in the range"),
    ],
)
def test_wrong_arguments_are_usage_errors_that_say_what_is_wrong(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], shown: str
) -> None:
    result = call(capsys, *arguments)
    assert result.code == 2
    assert shown in result.err


def test_version_names_topo_and_its_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    from topo import __version__

    lines = dict(line.split() for line in call(capsys, "version").out.splitlines())
    assert lines["topo"] == __version__
    assert {"python", "libzmq", "pyzmq", "msgpack", "msgspec"} <= lines.keys()
