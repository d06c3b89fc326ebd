from __future__ import annotations

import dataclasses
import re
import runpy
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.config import (
    TopologyConfig,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    setting_names,
)
from topo.errors import ConfigError

ROOT = Path(__file__).parents[2]
GENERATOR = runpy.run_path(str(ROOT / "scripts" / "settings_page.py"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0),
        ("500ms", 0.5),
        ("1m", 60.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("1m30s", 90.0),
        (" 1m 30s ", 90.0),
        ("1.5s", 1.5),
        (timedelta(milliseconds=250), 0.25),
        (3, 3.0),
        (0.001, 0.001),
        ("0s", 0.0),
        ("10", 10.0),
        ("1.5", 1.5),
    ],
)
def test_durations_are_read_as_seconds(text: str | float | timedelta, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "wrong",
    ["", "1 2", "s", "ten s", "1x", "-1s", "10 s later", -1, float("nan"), float("inf"), 10**400, True, None, timedelta(-1)],
)
def test_what_is_no_duration_is_refused_with_what_is_accepted(wrong: str) -> None:
    with pytest.raises(ConfigError, match='"500ms", "10s", "1m30s", "2h", a timedelta or a number of seconds'):
        parse_duration(wrong)


@pytest.mark.parametrize("wrong", ["_", "1__0", "1_", "x", "1.5", "-1"])
def test_what_is_no_whole_number_is_refused_as_a_setting(wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"workers: '{wrong}' is not a whole number"):
        TopologyConfig().with_settings({"workers": wrong})


@pytest.mark.parametrize(("given", "read"), [("auto", "auto"), ("off", None), (0, None), ("4", 4)])
def test_the_number_of_workers_may_be_left_to_the_machine(given: object, read: object) -> None:
    assert TopologyConfig().with_settings({"workers": given}).workers == read
    assert TopologyConfig().workers == "auto"


def test_the_least_size_is_told_as_sizes_are_written() -> None:
    with pytest.raises(ConfigError, match="max_frame: '10' is too small: it must be at least 4MiB"):
        TopologyConfig().with_settings({"max_frame": "10"})


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16MiB", 16 << 20),
        ("64KiB", 65536),
        ("1GiB", 1 << 30),
        ("10MB", 10**7),
        ("512B", 512),
        ("1.5KiB", 1536),
        (7, 7),
        ("7", 7),
    ],
)
def test_sizes_are_read_as_bytes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("wrong", ["", "MiB", "1mib", "-1KiB", -1, True, None, 1.5])
def test_what_is_no_size_is_refused_with_what_is_accepted(wrong: str) -> None:
    with pytest.raises(ConfigError, match='"64KiB", "16MiB"'):
        parse_size(wrong)


@given(st.integers(0, 10**8))
def test_a_duration_is_shown_as_it_would_be_written(milliseconds: int) -> None:
    shown = format_duration(milliseconds / 1000)
    assert parse_duration(shown) == pytest.approx(milliseconds / 1000, rel=1e-5)


@given(st.integers(0, 1 << 40))
def test_a_size_is_shown_as_it_would_be_written(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_public_names_take_texts_and_fields_hold_numbers() -> None:
    config = TopologyConfig.from_settings(
        {
            "message_timeout": "500ms",
            "max_frame": "8MiB",
            "backoff": ["1s", 2, timedelta(seconds=3)],
            "max_spout_pending": "1_000",
            "tick_interval": "off",
            "transport": "tcp",
            "workers": 2,
        }
    )
    assert config.message_timeout_s == 0.5
    assert config.max_frame_bytes == 8 << 20
    assert config.back_off_s == (1.0, 2.0, 3.0)
    assert config.max_spout_pending == 1000
    assert config.tick_interval_s is None
    assert (config.transport, config.workers) == ("tcp", 2)
    assert TopologyConfig.from_settings({"backoff": "1s,4s"}).back_off_s == (1.0, 4.0)


def test_the_defaults_are_valid_and_say_what_the_design_says() -> None:
    config = TopologyConfig()
    config.validate()
    assert (config.message_timeout_s, config.max_spout_pending, config.ackers, config.attempts) == (30.0, 10_000, 1, 3)
    assert (config.batch_size, config.batch_bytes, config.flush_interval_s, config.edge_window) == (1024, 65536, 0.005, 64)
    assert (config.heartbeat_s, config.worker_timeout_s, config.master_timeout_s) == (1.0, 5.0, 60.0)


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="no setting 'message_timout'; did you mean 'message_timeout'"):
        TopologyConfig.from_settings({"message_timout": "1s"})
    with pytest.raises(ConfigError, match="did you mean 'message_timeout'"):
        TopologyConfig.from_settings({"message_timeout_s": 1})


@pytest.mark.parametrize("wrong", ["parallelism", "paralelism", "parallelism_hint"])
def test_a_parallelism_among_the_settings_is_sent_to_its_argument(wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"no setting '{wrong}'; did you mean parallelism=, an argument of set_spout"):
        TopologyConfig.from_settings({wrong: 2})


def test_all_that_is_wrong_with_settings_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        TopologyConfig.from_settings({"ackers": -1, "heartbeat": "soon", "transport": "udp", "colour": 1, "batch_size": "many"})
    text = str(caught.value)
    assert all(name in text for name in ("ackers", "heartbeat", "transport", "colour", "batch_size"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ackers": True},
        {"ackers": 1.5},
        {"workers": -1},
        {"edge_window": 0},
        {"heartbeat": 0},
        {"heartbeat": None},
        {"backoff": ()},
        {"backoff": 3},
        {"host": 3},
        {"on_error": "ignore"},
        {"max_frame": "1B"},
    ],
)
def test_a_value_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        TopologyConfig.from_settings(wrong)


@pytest.mark.parametrize("off", [None, 0, "off", "none", "0s"])
def test_no_message_timeout_with_a_pending_limit_is_refused(off: object) -> None:
    with pytest.raises(ConfigError, match="max_spout_pending=None as well"):
        TopologyConfig.from_settings({"message_timeout": off})
    config = TopologyConfig.from_settings({"message_timeout": off, "max_spout_pending": None})
    assert config.message_timeout_s is None


def test_no_message_timeout_is_fine_when_nothing_is_tracked() -> None:
    assert TopologyConfig.from_settings({"message_timeout": None, "ackers": 0}).delivery == "at_most_once"


def test_delivery_and_ackers_say_the_same() -> None:
    assert TopologyConfig.from_settings({"ackers": 0}).delivery == "at_most_once"
    untracked = TopologyConfig.from_settings({"delivery": "at_most_once"})
    assert untracked.ackers == 0
    assert untracked.with_settings({"ackers": 2}).delivery == "auto"
    assert untracked.with_settings({"delivery": "at_least_once"}).ackers == 1
    with pytest.raises(ConfigError, match="does not go with"):
        TopologyConfig.from_settings({"delivery": "at_most_once", "ackers": 1})
    with pytest.raises(ConfigError, match="does not go with"):
        TopologyConfig.from_settings({"delivery": "at_least_once", "ackers": 0})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"worker_timeout": "1s", "heartbeat": "1s"}, "worker_timeout"),
        ({"restart_backoff": "1m"}, "restart_backoff_max"),
        ({"batch_bytes": "5MiB", "max_frame": "4MiB"}, "batch_bytes"),
        ({"max_parallelism": 40_000}, "32768"),
        ({"delivery": "exactly_once", "ackers": 0}, "does not go with"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        TopologyConfig.from_settings(settings)


def test_later_settings_change_earlier_ones_and_leave_the_rest() -> None:
    first = TopologyConfig.from_settings({"message_timeout": "1s", "workers": 2})
    second = first.with_settings({"workers": None})
    assert (second.message_timeout_s, second.workers) == (1.0, None)
    assert first.workers == 2


def test_a_component_takes_only_the_settings_that_are_for_components() -> None:
    config, problems = TopologyConfig().changed({"max_spout_pending": 5, "ackers": 2}, per_component=True)
    assert config.max_spout_pending == 5
    assert problems == ["ackers holds for the whole topology; set it with builder.config(ackers=...)"]
    assert "tick_interval" in setting_names(per_component=True)
    assert "ackers" not in setting_names(per_component=True)


@given(st.sampled_from(setting_names()))
def test_all_settings_can_be_read_back(name: str) -> None:
    config = TopologyConfig.from_settings({"message_timeout": "7s", "tick_interval": "1s"})
    assert TopologyConfig.from_settings({name: config.settings()[name]}).settings()[name] == config.settings()[name]
    assert TopologyConfig.from_settings(config.settings()) == config


def test_the_settings_page_is_the_one_that_the_code_generates() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    assert page == GENERATOR["page"](), "regenerate it: python scripts/settings_page.py"


def test_the_settings_page_has_a_row_with_a_meaning_for_every_field() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", GENERATOR["page"](), re.MULTILINE)
    assert [name for name, _ in rows] == list(setting_names())
    assert len(rows) == len(dataclasses.fields(TopologyConfig))
    assert all(len(rest.split("|")[-1].strip()) > 15 for _, rest in rows)


def test_a_tcp_host_that_names_no_address_is_refused() -> None:
    problems = TopologyConfig.from_settings({"transport": "tcp"}).changed({"host": "0.0.0.0"})[0].problems()
    assert any("name one address of this machine" in problem for problem in problems)
