from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.cli.drive import call
from topo_cli.bench import command as bench
from topo_cli.exits import Exit
from topo_cli.options import collect_settings
from topo_cli.run import command as run


def test_a_variable_that_is_nearly_a_setting_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    others = {"TOPO_HOME": "/somewhere", "TOPO_VENV": "venv", "TOPO_PURE": "1", "TOPO_WORKERS_SERVICE_HOST": "10.0.0.5"}
    assert collect_settings((), None, {"TOPO_MESAGE_TIMEOUT": "5s", "TOPO_ACKERS": "2", **others}) == {"ackers": "2"}
    note = "topo: TOPO_MESAGE_TIMEOUT is no setting, and changes nothing; did you mean TOPO_MESSAGE_TIMEOUT?\n"
    assert capsys.readouterr().err == note


def test_settings_come_from_the_environment_and_the_command_line_wins() -> None:
    environment = {"TOPO_MESSAGE_TIMEOUT": "5s", "TOPO_ACKERS": "2", "TOPO_HOME": "/somewhere", "MESSAGE_TIMEOUT": "1s"}
    assert collect_settings((), None, environment) == {"message_timeout": "5s", "ackers": "2"}
    assert collect_settings((("ackers", "3"),), None, environment) == {"message_timeout": "5s", "ackers": "3"}


def test_two_numbers_of_workers_are_refused() -> None:
    assert collect_settings((("workers", "3"),), 3, {"TOPO_WORKERS": "2"}) == {"workers": 3}
    with pytest.raises(click.UsageError, match="--workers 3 and -s workers=2 were given; give one of them"):
        collect_settings((("workers", "2"),), 3, {})


@pytest.mark.parametrize(
    "arguments",
    ["status flow --deadline 0", "list --deadline 0s", "tap flow count --for 0ms", "status flow --watch --interval 0"],
)
def test_a_time_in_which_no_answer_can_come_is_refused(
    arguments: str, capsys: pytest.CaptureFixture[str], topo_home: Path
) -> None:
    result = call(capsys, *arguments.split())
    assert result.code == Exit.USAGE
    assert f"'{arguments.split()[-1]}' is too short: give more than 0" in result.err


@pytest.mark.parametrize(
    ("command", "option"), [("submit flow.py", "--from"), ("run flow.py", "--from"), ("kill flow --savepoint", "--to"),
                            ("savepoint flow", "--to"), ("list", "--home")],
)  # fmt: skip
def test_an_empty_place_is_refused(command: str, option: str, capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    """As by a variable of a script that is not set: a submit would begin from the beginning."""
    result = call(capsys, *command.split(), option, "")
    assert result.code == Exit.USAGE
    assert f"Invalid value for '{option}': it is empty; name a place, or leave it out" in result.err


def test_a_setting_that_does_not_exist_is_left_for_the_plan_to_refuse() -> None:
    assert collect_settings((("wrokers", "4"),), None, {}) == {"wrokers": "4"}


@pytest.mark.parametrize("command", [run, bench])
def test_a_setting_of_the_users_own_is_taken(command: click.Command) -> None:
    with command.make_context("run", ["words.py", "-s", "user.model-path=/v3", "-s", "ackers=2"]) as context:
        assert context.params["settings"] == (("user.model-path", "/v3"), ("ackers", "2"))
    for wrong in ("user.=3", "other.model=3", "ackers"):
        with pytest.raises(click.BadParameter, match="not of the form name=value"):
            command.make_context("run", ["words.py", "-s", wrong])


@pytest.mark.parametrize("command", ["run", "submit"])
def test_state_is_dropped_from_a_savepoint_alone(command: str, capsys: pytest.CaptureFixture[str], flow: Path) -> None:
    result = call(capsys, command, flow, "--drop-state", "count")
    assert result.code == Exit.USAGE
    assert "--drop-state ignores state of a savepoint: add --from PATH" in result.err


@pytest.mark.parametrize("command", ["run", "submit", "validate", "graph"])
def test_parameters_without_their_option_are_shown_with_it(command: str, capsys: pytest.CaptureFixture[str], flow: Path) -> None:
    result = call(capsys, command, flow, "path=a file", "items=2")
    assert result.code == Exit.USAGE
    assert "given with -p: -p 'path=a file' -p items=2" in result.err
    result = call(capsys, command, flow, "items=2", "other.py")
    assert result.code == Exit.USAGE and "nothing behind it: other.py" in result.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("history flow --since 99999999999999999999", "'99999999999999999999' is too long: give at most 3153600000s"),
        ("metrics --otlp http://127.0.0.1:1 --every 99999999999d", "'99999999999d' is too long"),
        ("profile flow count --seconds 100ms", "'100ms' is too short: give 0.5s or more"),
        ("profile flow count --seconds 11m", "'11m' is too long: give at most 600s"),
        ("profile flow count --seconds nan", "'nan' is not a duration"),
        ("tap flow count --rate nan", "'nan' is not a number"),
        ("bench pipe --rate nan", "'nan' is not a number"),
        ("bench pipe --rate inf", "inf is not in the range"),
    ],
)
def test_a_number_that_nothing_can_be_done_with_is_refused(
    arguments: str, reason: str, capsys: pytest.CaptureFixture[str], topo_home: Path
) -> None:
    result = call(capsys, *arguments.split())
    assert result.code == Exit.USAGE
    assert reason in result.err


def test_a_name_that_no_file_can_have_is_refused(capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    result = call(capsys, "graph", "a" * 300)
    assert result.code == Exit.FAILED
    assert "aaa: File name too long" in result.err
