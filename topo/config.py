"""All settings of a topology, each with its unit and default, in one frozen object.

Users write public names (`message_timeout="30s"`); inside, a duration is `message_timeout_s`, a float of seconds, and a size
`max_frame_bytes`, an int. The object is made once, at the edge, and passed down.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Literal

from topo.deprecation import with_new_names
from topo.errors import ConfigError

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SIZE_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_OFF = ("off", "none", "")
MAX_PARALLELISM_LIMIT = 32768
_USER_KEY = "user."


def parse_duration(value: str | timedelta | float) -> float:
    """Return a duration in seconds: from "500ms", "10s", "1m30s", "2h", "1d", a timedelta, or a number of seconds, as text, too.

    Raises:
        ConfigError: the value is none of these, negative or not finite.
    """
    seconds = math.nan
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            seconds = float(value)
    elif isinstance(value, str):
        parts = _DURATION_PART.findall(value)
        if _NUMBER.fullmatch(value.strip()):
            seconds = float(value)
        elif parts and not _DURATION_PART.sub("", value.strip()):
            seconds = math.fsum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)
    if not math.isfinite(seconds) or seconds < 0:
        raise ConfigError(
            f'{value!r} is not a duration: write "500ms", "10s", "1m30s", "2h", a timedelta or a number of seconds, not negative'
        )
    return seconds


def parse_size(value: str | int) -> int:
    """Return a size in bytes: from "64KiB", "16MiB", "1GiB", "10MB", "512B", or a number of bytes.

    Raises:
        ConfigError: the value is none of these or negative.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in _SIZE_UNITS:
        raise ConfigError(f'{value!r} is not a size: write "64KiB", "16MiB", "1GiB", "10MB" or a number of bytes')
    return int(float(match[1]) * _SIZE_UNITS[match[2]])


def format_duration(seconds: float) -> str:
    """Return a duration as a setting would say it, such as "1m30s"."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    text, rest = "", seconds
    for unit, length in (("h", 3600), ("m", 60)):
        if rest >= length:
            text += f"{int(rest // length)}{unit}"
            rest %= length
    return text + (f"{rest:g}s" if rest or not text else "")


def format_size(size: int) -> str:
    """Return a size as a setting would say it, such as "16MiB"."""
    for unit in ("GiB", "MiB", "KiB"):
        if size >= _SIZE_UNITS[unit] and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return f"{size}B"


_Kind = Literal["duration", "durations", "size", "count", "choice", "text", "values"]
_SUFFIX = {"duration": "_s", "durations": "_s", "size": "_bytes"}


def _setting(
    kind: _Kind,
    default: Any,
    doc: str,
    *,
    optional: bool = False,
    per_component: bool = False,
    least: float = 0,
    choices: tuple[str, ...] = (),
    only: str = "component",
) -> Any:
    about = {"kind": kind, "doc": doc, "optional": optional, "per_component": per_component, "least": least, "choices": choices}
    about["only"] = only
    if kind == "values":
        return dataclasses.field(default_factory=dict, metadata=about, hash=False)
    return dataclasses.field(default=default, metadata=about)


class DefaultCount(int):
    """A number that no user has set, so that a plan may choose another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyConfig:
    """The settings of one topology, or of one component of it.

    Make it with `TopologyConfig.from_settings({"message_timeout": "10s"})`. `TopologyConfig()` holds the defaults.
    """

    delivery: Literal["auto", "at_least_once", "at_most_once", "exactly_once"] = _setting(
        "choice", "auto",
        "The promise for each message. `auto` is `exactly_once` where the engine keeps state, else `at_least_once`; "
        "`at_most_once` is the same as `ackers=0`.",
        choices=("auto", "at_least_once", "at_most_once", "exactly_once"),
    )  # fmt: skip
    ackers: int = _setting("count", 1, "Acker tasks that follow the tuple trees; 0 switches tracking off.")
    message_timeout_s: float | None = _setting(
        "duration", 30.0, "A message whose tuple tree is not done after this time fails.", optional=True, per_component=True
    )
    max_spout_pending: int | None = _setting(
        "count", DefaultCount(10_000),
        "Messages that one spout task may have in flight. The default is higher with more than 8 tasks: 1,250 for each, 40,000 "
        "at most, divided among the spout tasks.",
        optional=True, per_component=True, least=1, only="spout",
    )  # fmt: skip
    attempts: int = _setting(
        "count", 3, "How often a retrying spout emits a message, in all, before it goes to the dead letters.",
        per_component=True, least=1,
    )  # fmt: skip
    back_off_s: tuple[float, ...] = _setting(
        "durations", (1.0, 4.0, 16.0), "Waits before the second, third, ... attempt; the last one repeats.",
        per_component=True, only="spout",
    )  # fmt: skip
    on_error: Literal["fail", "crash"] = _setting(
        "choice", "fail", "An exception in user code fails the tuple, or ends the process as in Storm.",
        choices=("fail", "crash"), per_component=True,
    )  # fmt: skip
    tick_interval_s: float | None = _setting(
        "duration", None, "How often a bolt gets a tick tuple.", optional=True, per_component=True, only="bolt"
    )
    watermark_interval_s: float = _setting(
        "duration", 0.2, "How often a watermark strategy is asked for a watermark.", per_component=True
    )
    max_task_emit: int = _setting(
        "count",
        1_000_000,
        "Tuples that one call of `execute`, `process`, `on_timer` or `next_tuple` may emit.",
        per_component=True,
        least=1,
    )
    max_parallelism: int | None = _setting(
        "count", None, "Key groups of a component; off: 128, or more where its parallelism needs it. At most 32768.",
        optional=True, per_component=True, least=1,
    )  # fmt: skip

    user: Mapping[str, Any] = _setting(
        "values", None,
        "Settings of your own, for `context.config.user[\"name\"]`: plain values by name. From outside: `-s user.name=value`. "
        "Those of a component are added to those of the topology.",
        per_component=True,
    )  # fmt: skip
    checkpoint_interval_s: float = _setting(
        "duration", 10.0, "How often a checkpoint is taken; only with `delivery=exactly_once`, as all settings of checkpoints."
    )
    checkpoint_pause_s: float = _setting("duration", 0.1, "The shortest time between the end of a checkpoint and the next one.")
    checkpoint_timeout_s: float = _setting("duration", 60.0, "A checkpoint that takes longer is given up.")
    checkpoint_keep: int = _setting("count", 3, "Complete checkpoints that are kept.", least=1)
    checkpoint_folder: str | None = _setting(
        "text", None, "Where checkpoints are stored: a path, or a URL that all workers reach; off: with the topology's state.",
        optional=True,
    )  # fmt: skip

    workers: int | Literal["auto"] | None = _setting(
        "count", "auto",
        "Worker processes that the tasks are packed into; off: each task has its own; auto: the same, but on one machine "
        "at most 16, or 8 for each core if that is more.",
        optional=True, least=1, choices=("auto",),
    )  # fmt: skip
    transport: Literal["ipc", "tcp"] = _setting(
        "choice", "ipc", "How tasks of different workers reach each other.", choices=("ipc", "tcp")
    )
    host: str = _setting("text", "127.0.0.1", "Address that TCP inboxes are bound to.")

    batch_size: int = _setting(
        "count", 1024, "Tuples of a full batch, which leaves at once. Up to four leave as one frame.", per_component=True, least=1
    )
    batch_bytes: int = _setting("size", 64 << 10, "Bytes of values of a full batch.", per_component=True, least=1)
    flush_interval_s: float = _setting("duration", 0.005, "Age at which a batch leaves that is not full.", per_component=True)
    queue_time_s: float | None = _setting(
        "duration", 0.5,
        "Target for the time that tuples wait before a bolt: its edges hold as many as it processes in this time, or in a "
        "twentieth of `message_timeout` or `checkpoint_interval` if that is less; off: `edge_window` alone bounds them.",
        optional=True, per_component=True,
    )  # fmt: skip
    edge_window: int = _setting("count", 64, "Frames of one edge that the receiver has not confirmed yet, at most.", least=1)
    outbox_limit: int = _setting("count", 64, "Frames that a task may hold back before it takes no more input.", least=1)
    max_frame_bytes: int = _setting("size", 16 << 20, "The largest frame of data that is sent or accepted.", least=4 << 20)
    max_control_frame_bytes: int = _setting("size", 1 << 20, "The largest frame of verdicts that an acker sends.", least=1024)

    tap: Literal["on"] | None = _setting(
        "choice", "on", "Whether `topo tap` may show tuples that the component emits.", choices=("on",), optional=True,
        per_component=True,
    )  # fmt: skip
    secret_fields: str | None = _setting(
        "text", None, "Fields, separated by commas, whose values `topo tap` shows as `•••`, whichever component emits them.",
        optional=True, per_component=True,
    )  # fmt: skip

    spare_workers: int = _setting(
        "count", 1, "Processes that have imported topo, to fork workers (Linux) or replace lost ones; 36 MB each; none on Spark."
    )  # fmt: skip
    start_timeout_s: float = _setting("duration", 30.0, "Time that all workers have to come up.")
    heartbeat_s: float = _setting("duration", 1.0, "Interval of a worker's heartbeats to the master.")
    worker_timeout_s: float = _setting("duration", 5.0, "A worker that was silent for this time is replaced.")
    progress_timeout_s: float | None = _setting(
        "duration", 30.0, "A worker whose user code has not returned for this time is replaced.", optional=True
    )
    master_timeout_s: float = _setting("duration", 60.0, "Workers end after this time without a message from a master.")
    restart_back_off_s: float = _setting("duration", 0.2, "Wait before a lost worker is started again, doubling; none at first.")
    restart_back_off_max_s: float = _setting("duration", 30.0, "The longest such wait.")
    drain_timeout_s: float = _setting("duration", 30.0, "Time that messages in flight have to finish when a topology is stopped.")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TopologyConfig:
        """Return the defaults changed by settings under their public names, validated.

        Raises:
            ConfigError: a name is unknown or a value cannot be used; the message names every mistake.
        """
        return cls().with_settings(settings)

    def with_settings(self, settings: Mapping[str, Any]) -> TopologyConfig:
        """Return this changed by settings under their public names, validated. Raises as `from_settings`."""
        config, problems = self.changed(settings)
        problems = problems or config.problems()
        if problems:
            raise ConfigError("; ".join(problems))
        return config

    def changed(self, settings: Mapping[str, Any], *, per_component: bool = False) -> tuple[TopologyConfig, list[str]]:
        """Return this changed by the settings that can be read, and the mistakes in the others.

        Args:
            settings: values by public name.
            per_component: refuse settings that hold for a whole topology only.
        """
        changes: dict[str, Any] = {}
        problems: list[str] = []
        for name, value in current_names(settings).items():
            if isinstance(name, str) and name.startswith(_USER_KEY):
                changes["user"] = {**changes.get("user", self.user), name.removeprefix(_USER_KEY): value}
                continue
            setting = SETTINGS.get(name)
            if setting is None:
                problems.append(_unknown(name))
            elif per_component and not setting.metadata["per_component"]:
                problems.append(f"{name} holds for the whole topology; set it with builder.config({name}=...)")
            else:
                try:
                    read = _read(setting, value)
                    # Of the user's own settings each key is one setting.
                    changes[setting.name] = {**changes.get("user", self.user), **read} if name == "user" else read
                except ConfigError as error:
                    problems.append(f"{name}: {error}")
        # Both settings mean the same, so a setting that was given decides.
        if changes.get("delivery") == "at_most_once":
            changes.setdefault("ackers", 0)
        elif "ackers" in changes and "delivery" not in changes:
            changes["delivery"] = "at_most_once" if not changes["ackers"] else self._tracked
        elif "delivery" in changes and not self.ackers:
            changes.setdefault("ackers", TopologyConfig().ackers)
        return dataclasses.replace(self, **changes), problems

    @property
    def _tracked(self) -> Literal["auto", "at_least_once", "exactly_once"]:
        """The mode with ackers: the chosen one, if it has ackers."""
        return "auto" if self.delivery == "at_most_once" else self.delivery

    def problems(self) -> list[str]:
        """Return the conflicts between settings, a sentence with its fix each."""
        found: list[str] = []
        if self.message_timeout_s is None and self.max_spout_pending is not None and self.ackers:
            found.append(
                "message_timeout is off while max_spout_pending is set: messages that are lost would fill it and stop the spout; "
                "set a message_timeout, or max_spout_pending=None as well"
            )
        if (self.delivery == "at_most_once") != (self.ackers == 0):
            found.append(f"delivery={self.delivery!r} does not go with ackers={self.ackers}; leave one of them out")
        if self.transport == "tcp" and self.host in ("", "*", "0.0.0.0", "::"):
            found.append(f"host={self.host!r} gives peers no address to connect to; name one address of this machine")
        if self.worker_timeout_s <= self.heartbeat_s:
            found.append("worker_timeout must be longer than heartbeat, or live workers would be given up; take five times it")
        if self.restart_back_off_max_s < self.restart_back_off_s:
            found.append("restart_backoff_max is shorter than restart_backoff; make it at least as long")
        if self.batch_bytes > self.max_frame_bytes:
            found.append("batch_bytes is more than max_frame; a batch must fit into a frame")
        if self.max_parallelism is not None and self.max_parallelism > MAX_PARALLELISM_LIMIT:
            found.append(f"max_parallelism is {self.max_parallelism}; it can be at most {MAX_PARALLELISM_LIMIT}")
        return found

    def validate(self) -> None:
        """Check that the settings go together.

        Raises:
            ConfigError: they do not; the message names every mistake and its fix.
        """
        if found := self.problems():
            raise ConfigError("; ".join(found))

    def settings(self) -> dict[str, Any]:
        """Return all settings under their public names, as `from_settings` reads them."""
        return {public: getattr(self, setting.name) for public, setting in SETTINGS.items()}


def public_name(field_name: str, kind: str) -> str:
    """Return the name that users know a field by: without its unit, except where the unit is the whole meaning."""
    name = field_name if field_name == "batch_bytes" else field_name.removesuffix(_SUFFIX.get(kind, ""))
    return RENAMED_SETTINGS.get(name, name)


RENAMED_SETTINGS = {"back_off": "backoff", "restart_back_off": "restart_backoff", "restart_back_off_max": "restart_backoff_max"}
"""New public names by old ones. The fields keep the old ones: they are keys in the stored plans of `topology.json`."""


def current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under their current public names, with a DeprecationWarning for each old one."""
    return with_new_names(settings, RENAMED_SETTINGS, "setting")


SETTINGS: dict[str, dataclasses.Field[Any]] = {
    public_name(setting.name, setting.metadata["kind"]): setting for setting in dataclasses.fields(TopologyConfig)
}


def setting_names(*, per_component: bool = False) -> tuple[str, ...]:
    """Return the public names of all settings, or of those that a single component can have."""
    return tuple(name for name, setting in SETTINGS.items() if setting.metadata["per_component"] or not per_component)


def has_effect(name: str, kind: str) -> bool:
    """Whether a setting of a single component does anything for one of this kind, "spout" or "bolt"."""
    setting = SETTINGS.get(name)
    return setting is None or setting.metadata["only"] in ("component", kind)


def _unknown(name: str) -> str:
    known = [*SETTINGS, "parallelism"]
    near = get_close_matches(name, known, n=1) or get_close_matches(name.removesuffix("_s"), known, n=1)
    if near == ["parallelism"]:
        return f"there is no setting {name!r}; did you mean parallelism=, an argument of set_spout and set_bolt?"
    hint = f"; did you mean {near[0]!r}?" if near else "; docs/settings.md lists them all, and user={...} takes your own"
    return f"there is no setting {name!r}{hint}"


def _read(setting: dataclasses.Field[Any], value: Any) -> Any:
    about = setting.metadata
    if value is None or (isinstance(value, str) and value.lower() in _OFF) or (about["optional"] and _is_zero(value)):
        if about["optional"]:
            return None
        raise ConfigError(f"cannot be switched off; its default is {shown(setting, setting.default)}")
    if isinstance(value, str) and about["kind"] == "count" and value in about["choices"]:
        return value
    kind = about["kind"]
    if kind == "durations":
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not parts:
            raise ConfigError(f'{value!r} is not a list of durations: write ("1s", "4s", "16s")')
        return tuple(parse_duration(part) for part in parts)
    if kind == "choice":
        if value not in about["choices"]:
            raise ConfigError(f"{value!r} is not one of {', '.join(map(repr, about['choices']))}")
        return value
    if kind == "text":
        if not isinstance(value, str):
            raise ConfigError(f"{value!r} is not a string")
        return value
    if kind == "values":
        return _read_values(value)
    number = {"duration": parse_duration, "size": parse_size, "count": _parse_count}[kind](value)
    if number < about["least"] or (kind == "duration" and number == 0 and setting.name != "flush_interval_s"):
        least = "more than 0" if kind == "duration" else f"at least {shown(setting, about['least'])}"
        raise ConfigError(f"{value!r} is too small: it must be {least}")
    return number


def _read_values(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ConfigError(f'{values!r} is no mapping: write user={{"name": value}}, or -s user.name=value')
    for name, value in values.items():
        if not isinstance(name, str):
            raise ConfigError(f"the name {name!r} is no string")
        try:
            is_plain = json.loads(json.dumps(value)) == value
        except (TypeError, ValueError):
            is_plain = False
        if not is_plain:
            kind = type(value).__name__
            raise ConfigError(
                f"{name!r} is a {kind}; a setting is None, a bool, a number, a string, or a list or dict (by string) of these: "
                "build the object from it in open or prepare"
            )
    return dict(values)


def _is_zero(value: Any) -> bool:
    return value in (0, timedelta(0), "0", "0s", "0ms") and not isinstance(value, bool)


def _parse_count(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d+(_\d+)*", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{value!r} is not a whole number")
    return value


def shown(setting: dataclasses.Field[Any], value: Any) -> str:
    """Return a value of a setting as its page and messages show it."""
    if value is None or isinstance(value, str):
        return "off" if value is None else value
    match setting.metadata["kind"]:
        case "duration":
            return format_duration(value)
        case "durations":
            return ", ".join(map(format_duration, value))
        case "size":
            return format_size(value)
        case "count":
            return f"{value:,}"
        case "values":
            return "none"
        case _:
            return str(value)
