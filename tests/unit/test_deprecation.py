"""Each old public name works, and warns with the new one at the line of the user."""

from __future__ import annotations

import importlib
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import topo
import topo.errors
from topo import BasicBolt, BasicCollector, TopologyBuilder, TopologyConfig, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.api.tuples import Tuple
from topo.storage.state_folder import StateFolder
from topo.storage.submitted import SubmittedTopology
from topo.testing import run_bolt
from topo_cli.options import collect_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "upgrading.md").read_text()
NAMES = re.findall(r"^\| `(topo[.\w]*)\.(\w+)` \| `topo[.\w]*\.(\w+)` \|$", PAGE, re.MULTILINE)


def warned(call: Callable[[], Any]) -> tuple[Any, str]:
    """Return a call's value and its warning, which names this file as the place."""
    with pytest.warns(DeprecationWarning) as found:
        value = call()
    assert {warning.filename for warning in found} == {__file__}
    (message,) = {str(warning.message) for warning in found}
    return value, message


def test_the_page_lists_the_old_names_of_all_modules() -> None:
    in_errors = {(old, new) for module, old, new in NAMES if module in ("topo", "topo.errors") and old != "AsyncTimeout"}
    assert in_errors == set(topo.errors.RENAMED.items())


def test_pickled_topologies_find_a_class_of_another_module() -> None:
    async_io = importlib.import_module("topo.api.async_io")
    assert warned(lambda: async_io.AsyncTimeout)[0] is topo.AsyncTimeoutError


def test_star_import_gives_new_names_alone() -> None:
    assert not {old for module, old, _ in NAMES if module == "topo"} & set(topo.__all__)


def test_the_kit_takes_an_old_setting_of_the_bolt_beside_the_new_name() -> None:
    class Old(BasicBolt):
        outputs = ("n",)
        component_settings = {"back_off": "3s"}

        def execute(self, tup: Tuple, collector: BasicCollector) -> None:
            collector.emit((1,))

    with pytest.warns(DeprecationWarning, match="back_off is now backoff"):
        assert run_bolt(Old(), [(1,)], fields=("n",), backoff="1s").emitted


@pytest.mark.parametrize(("module", "old", "new"), NAMES)
def test_an_old_name_gives_the_class_of_the_new_one(module: str, old: str, new: str) -> None:
    imported = importlib.import_module(module)
    value, message = warned(lambda: getattr(imported, old))
    assert value is getattr(imported, new)
    assert message == f"{module}.{old} is now {new}; the old name ends with topo 0.2"


def test_an_import_of_an_old_name_warns_at_its_line() -> None:
    def imports() -> Any:
        from topo import NotFound

        return NotFound

    assert warned(imports)[0] is topo.NotFoundError


def test_an_exception_pickled_under_an_old_name_is_read() -> None:
    stored = pickle.dumps(topo.UnsupportedValueError("field 'at'")).replace(b"\x15UnsupportedValueError", b"\x0fValueNotCarried")
    value, _ = warned(lambda: pickle.loads(re.sub(rb"\x95.{8}", b"", stored, count=1, flags=re.DOTALL)))
    assert type(value) is topo.UnsupportedValueError


def test_unknown_names_are_attribute_errors() -> None:
    for module in ("topo", "topo.errors", "topo.testing"):
        with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'Sprout'"):
            importlib.import_module(module).Sprout  # noqa: B018


def test_old_watermark_strategies_are_the_new_ones() -> None:
    class Generator:
        def on_event(self, value: Any, timestamp: int, output: Any) -> None: ...
        def on_periodic_emit(self, output: Any) -> None: ...

    strategy, message = warned(lambda: WatermarkStrategy.own(Generator, timestamp="at"))
    assert strategy == WatermarkStrategy.from_generator(Generator, timestamp="at")
    assert "WatermarkStrategy.own is now WatermarkStrategy.from_generator" in message
    strategy, message = warned(lambda: WatermarkStrategy.monotonous_timestamps("at"))
    assert strategy == WatermarkStrategy.monotonic_timestamps("at")
    assert "is now WatermarkStrategy.monotonic_timestamps" in message


def sums(**arguments: Any) -> WindowBolt:
    window = windows.TumblingEventTimeWindows.of("1h")
    return WindowBolt(key="key", window=window, aggregate=aggregates.Count(), **arguments)


def test_the_old_parameter_of_a_window_bolt_is_the_new_one() -> None:
    bolt, message = warned(lambda: sums(held_for="20s"))
    assert bolt.max_wait_ms == 20_000
    assert "parameter held_for is now max_wait" in message


def test_an_old_parameter_beside_the_new_one_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'held_for'"):
        sums(held_for="20s", max_wait="20s")


OLD_SETTINGS = {"back_off": "7s", "restart_back_off": "8s", "restart_back_off_max": "9s"}


class Quiet(topo.RetryingSpout):
    outputs = ("value",)

    def next_tuple(self) -> None: ...


class Nothing(topo.BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


def test_old_settings_of_a_topology_and_of_a_component_are_read() -> None:
    builder = TopologyBuilder("flow")
    warned(lambda: builder.config(back_off="7s"))
    warned(lambda: builder.set_spout("quiet", Quiet(), back_off="1s"))
    built = builder.build()
    assert built.config.back_off_s == (7.0,)
    assert built.components[0].settings == {"backoff": "1s"}


def test_old_settings_of_a_config_are_read() -> None:
    with pytest.warns(DeprecationWarning, match="setting restart_back_off is now restart_backoff;"):
        config = TopologyConfig.from_settings(OLD_SETTINGS)
    assert (config.back_off_s, config.restart_back_off_s, config.restart_back_off_max_s) == ((7.0,), 8.0, 9.0)


def test_an_old_setting_beside_the_new_one_is_refused() -> None:
    with pytest.raises(topo.ConfigError, match="there is no setting 'back_off'; did you mean 'backoff'"):
        TopologyConfig.from_settings({"back_off": "1s", "backoff": "2s"})


def test_old_settings_of_the_kit_are_read() -> None:
    warned(lambda: run_bolt(Nothing(), [], back_off="1s"))


def test_the_command_reads_old_settings_and_notes_the_new_ones(capsys: pytest.CaptureFixture[str]) -> None:
    found = collect_settings((("restart_back_off", "8s"),), None, {"TOPO_BACK_OFF": "7s"})
    assert found == {"backoff": "7s", "restart_backoff": "8s"}
    assert capsys.readouterr().err.splitlines() == [
        "topo: TOPO_BACK_OFF=... sets backoff, which is the setting's new name; the old one ends with topo 0.2",
        "topo: -s restart_back_off=... sets restart_backoff, which is the setting's new name; the old one ends with topo 0.2",
    ]


@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_a_stored_submission_with_old_settings_is_read(tmp_path: Path) -> None:
    golden = ROOT / "tests" / "contract" / "golden" / "state_folder" / "topology.json"
    folder = StateFolder(tmp_path).create("flow")
    folder.topology.write_text(json.dumps({**json.loads(golden.read_text()), "settings": OLD_SETTINGS}))
    submitted = SubmittedTopology.read(folder)
    assert submitted.settings == {"backoff": "7s", "restart_backoff": "8s", "restart_backoff_max": "9s"}
    assert submitted.plan.config.back_off_s == (0.01,)
