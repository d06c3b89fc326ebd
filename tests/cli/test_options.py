from __future__ import annotations

from topo_cli.options import collect_settings


def test_settings_come_from_the_environment_and_the_command_line_wins() -> None:
    environment = {"TOPO_MESSAGE_TIMEOUT": "5s", "TOPO_ACKERS": "2", "TOPO_HOME": "/somewhere", "MESSAGE_TIMEOUT": "1s"}
    assert collect_settings((), None, environment) == {"message_timeout": "5s", "ackers": "2"}
    assert collect_settings((("ackers", "3"),), None, environment) == {"message_timeout": "5s", "ackers": "3"}


def test_workers_has_an_option_of_its_own() -> None:
    assert collect_settings((("workers", "4"),), 2, {}) == {"workers": 2}


def test_a_setting_that_does_not_exist_is_left_for_the_plan_to_refuse() -> None:
    assert collect_settings((("wrokers", "4"),), None, {}) == {"wrokers": "4"}
