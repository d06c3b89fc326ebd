"""Options and arguments that several commands share, declared once."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from click import ParamType

    from topo.storage.submitted import SparkCluster
else:

    class ParamType(click.ParamType):
        """A `ParamType` to which a type can be given: click has it from 8.4 on."""

        __class_getitem__ = classmethod(lambda cls, _: cls)


F = TypeVar("F", bound=Callable[..., Any])
_EMPTY = "it is empty; name a place, or leave it out"

DEADLINE_S = 10.0


class ShownByDefault(click.Group):
    """A group whose `show` needs no name: `topo dead-letters NAME`, `topo state PATH`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] not in ctx.help_option_names
        return super().parse_args(ctx, ["show", *args] if is_option else args)


class TimeSpan(ParamType[float]):
    """A duration such as "500ms", "30s" or "5m", as seconds.

    Args:
        above_zero: 0 is refused: no answer comes in that time.
        least: the shortest one, in seconds.
        most: the longest one. Calendars and timers of the system end some centuries away.
    """

    name = "duration"

    def __init__(self, *, above_zero: bool = False, least: float = 0.0, most: float = 36500 * 86400.0) -> None:
        self._above_zero, self._least, self._most = above_zero, least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from topo.config import parse_duration
        from topo.errors import ConfigError

        try:
            seconds = parse_duration(value)
        except ConfigError:
            self.fail(f'{value!r} is not a duration: write "500ms", "30s", "5m" or a number of seconds', param, ctx)
        if self._above_zero and seconds <= 0:
            self.fail(f"{value!r} is too short: give more than 0", param, ctx)
        if not self._least <= seconds <= self._most:
            bound = f"short: give {self._least:g}s or more" if seconds < self._least else f"long: give at most {self._most:.0f}s"
            self.fail(f"{value!r} is too {bound}", param, ctx)
        return seconds


class Number(click.FloatRange):
    """A number within limits. NaN, which click takes, lies within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Assignment(ParamType[tuple[str, str]]):
    """NAME=VALUE, as a pair."""

    name = form = "name=value"

    def is_name(self, text: str) -> bool:
        return text.isidentifier()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, is_given, text = value.partition("=")
        if not is_given or not self.is_name(name):
            self.fail(f"{value!r} is not of the form {self.form}", param, ctx)
        return name, text


class Setting(Assignment):
    """NAME=VALUE, or user.NAME=VALUE, as a pair."""

    def is_name(self, text: str) -> bool:
        return text.isidentifier() or len(text.removeprefix("user.")) not in (0, len(text))


class SparkSetting(Assignment):
    """spark.some.name=VALUE, as a pair."""

    form = "spark.name=value"

    def is_name(self, text: str) -> bool:
        return text.startswith("spark.")


class Parallelism(ParamType[tuple[str, int]]):
    """COMPONENT=TASKS, as a pair."""

    name = "component=n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        component, _, tasks = value.partition("=")
        if not component or not tasks.isdecimal() or int(tasks) < 1:
            self.fail(f"{value!r} is not of the form component=n, with n at least 1", param, ctx)
        return component, int(tasks)


def _home(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path:
    from topo.storage.state_folder import home_folder

    return value.absolute() if value is not None else home_folder(os.environ)


def _no_color(_ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        os.environ["NO_COLOR"] = "1"


def _no_more(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> None:
    """Refuse arguments behind TOPOLOGY; show parameters with the option that they need."""
    for value in values:
        name, is_given, _ = value.partition("=")
        if not is_given or not name.isidentifier():
            raise click.UsageError(f"there is one TOPOLOGY, and nothing behind it: {quote(value)}")
    if values:
        options = " ".join(f"-p {quote(value)}" for value in values)
        raise click.UsageError(f"parameters of the topology function are given with -p: {options}")


def _place(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse an option that is given and empty, as by a variable of a script that is not set."""
    if not value and param.name and ctx.get_parameter_source(param.name) is not ParameterSource.DEFAULT:
        raise click.BadParameter(_EMPTY)
    return value


class FolderPath(click.Path):
    """A folder, whose name is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail(_EMPTY, param, ctx)
        return super().convert(value, param, ctx)


def time_option(option: str, name: str, default: str, help: str) -> Callable[[F], F]:
    """Return the option of a time above zero, in seconds."""
    return click.option(option, name, type=TimeSpan(above_zero=True), default=default, show_default=True, help=help)


def place_option(option: str, name: str, help: str) -> Callable[[F], F]:
    """Return the option of a path or URL; "" where it is not given."""
    return click.option(option, name, default="", metavar="PATH", callback=_place, help=help)


name_argument = click.argument("name", metavar="NAME")
topology_argument = click.argument("topology", metavar="TOPOLOGY")
_no_more_arguments = click.argument("more", nargs=-1, metavar="", callback=_no_more, expose_value=False)
home_option = click.option(
    "--home",
    type=FolderPath(file_okay=False, path_type=Path),
    callback=_home,
    help="State folder, by default $TOPO_HOME or topo in the XDG state folder.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON: one stable form, nothing left out.")
no_color_option = click.option(
    "--no-color", is_flag=True, expose_value=False, callback=_no_color, help="Print without colours, as with NO_COLOR."
)
deadline_option = time_option("--deadline", "deadline", f"{DEADLINE_S:g}s", "How long to wait for an answer.")
ui_option = click.option("--ui", is_flag=True, help="Also serve the web page, unless it is already served; print its address.")
parameter_option = click.option(
    "-p", "--parameter", "parameters", type=Assignment(), multiple=True, help="An argument of the topology function."
)


def topology_options(function: F) -> F:
    """Add the options that name a topology and how to start it."""
    for option in reversed(
        (
            topology_argument,
            _no_more_arguments,
            parameter_option,
            click.option("-s", "--setting", "settings", type=Setting(), multiple=True, help="A setting: -s message_timeout=5s."),
            click.option("--workers", type=click.IntRange(min=1), help="Number of processes that the tasks are packed into."),
            click.option("-e", "--parallelism", type=Parallelism(), multiple=True, help="The number of tasks of a component."),
            click.option("--name", help="Run it under this name."),
            home_option,
            no_color_option,
        )
    ):
        function = option(function)
    return function


def spark_options(function: F) -> F:
    """Add the options of the Spark cluster that a topology runs on, and of further modules.

    Gives the command `cluster`, None for this machine, and `py_files`.
    """

    @functools.wraps(function)
    def command(
        *args: Any,
        master: str | None,
        conf: tuple[tuple[str, str], ...],
        py_files: tuple[str, ...],
        slots: int | None,
        **options: Any,
    ) -> Any:
        if master is None and (conf or slots):
            raise click.UsageError("--conf and --slots say how to run on a Spark cluster: add --master")
        files = [os.path.abspath(name) for given in py_files for name in given.split(",") if name]
        return function(*args, cluster=_cluster(master, conf, slots) if master else None, py_files=files, **options)

    for option in reversed(
        (
            click.option("--master", help="Run its workers on this Spark cluster: spark://host:7077, yarn, k8s://..."),
            click.option("--conf", type=SparkSetting(), multiple=True, help="A Spark setting: --conf spark.ui.port=4050."),
            click.option(
                "--py-files", multiple=True, help="Further modules that it imports: .py, .zip, .egg or .whl, separated by commas."
            ),
            click.option("--slots", type=click.IntRange(min=1), help="Cores to use, by default one for each worker process."),
        )
    ):
        command = option(command)
    return cast(F, command)


def _cluster(master: str, conf: tuple[tuple[str, str], ...], slots: int | None) -> SparkCluster:
    from topo.storage.submitted import SparkCluster

    return SparkCluster(master=master, conf=dict(conf), slots=slots)


def start_options(function: F) -> F:
    """Add the options of the state that a topology begins from."""
    for option in (
        click.option(
            "--resume-or-start",
            "resume",
            is_flag=True,
            help="Continue the last run under this name, however it ended; start from the beginning if there was none.",
        ),
        click.option(
            "--drop-state",
            "drop_state",
            multiple=True,
            metavar="COMPONENT",
            help="With --from: ignore the state of this component.",
        ),
        place_option("--from", "start_from", "Restore a savepoint, or a topology's checkpoints."),
    ):
        function = option(function)
    return function


def request_options(function: F) -> F:
    """Add the options of a run: topology, cluster and state. The command receives a `RunRequest` as `request`."""

    @functools.wraps(function)
    def command(
        *args: Any,
        parameters: tuple[tuple[str, str], ...],
        settings: tuple[tuple[str, str], ...],
        workers: int | None,
        parallelism: tuple[tuple[str, int], ...],
        **options: Any,
    ) -> Any:
        from topo.launch.request import RunRequest

        if options["drop_state"] and not options["start_from"]:
            raise click.UsageError("--drop-state ignores state of a savepoint: add --from PATH")
        asked = {name: options.pop(name) for name in RunRequest.__struct_fields__ if name in options}
        request = RunRequest(
            **asked,
            parameters=dict(parameters),
            settings=collect_settings(settings, workers, os.environ),
            parallelism=dict(parallelism),
        )
        return function(*args, request=request, **options)

    return topology_options(spark_options(start_options(cast(F, command))))


def reading_options(function: F) -> F:
    for option in (no_color_option, json_option, home_option):
        function = option(function)
    return function


def collect_settings(
    settings: tuple[tuple[str, str], ...], workers: int | None, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the settings from outside by public name: TOPO_... variables, overridden by those of the command line."""
    from difflib import get_close_matches

    from topo.config import RENAMED_SETTINGS, setting_names

    found: dict[str, Any] = {}
    variables = {f"TOPO_{name.upper()}": name for name in (*RENAMED_SETTINGS, *setting_names()) if name != "user"}
    for variable, name in variables.items():
        if variable in environment:
            found[_current_name(name, f"{variable}=...")] = environment[variable]
    for other in [one for one in environment if one.startswith("TOPO_") and one not in variables]:
        # Far enough from those of others, such as the addresses that Kubernetes gives of a service named topo.
        for near in get_close_matches(other, variables, n=1, cutoff=0.9):
            click.echo(f"topo: {other} is no setting, and changes nothing; did you mean {near}?", err=True)
    found.update({_current_name(name, f"-s {name}=..."): value for name, value in settings})
    if workers is not None:
        if dict(settings).get("workers", str(workers)) != str(workers):
            raise click.UsageError(f"--workers {workers} and -s workers={dict(settings)['workers']} were given; give one of them")
        found["workers"] = workers
    return found


def _current_name(name: str, given: str) -> str:
    """Return the current name of a setting, with a note about an old one: warnings of Python would not be shown here."""
    from topo.config import RENAMED_SETTINGS

    new = RENAMED_SETTINGS.get(name, name)
    if new != name:
        click.echo(f"topo: {given} sets {new}, which is the setting's new name; the old one ends with topo 0.2", err=True)
    return new


def examples(*lines: str) -> str:
    """Return the end of a help text: examples, one a line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
