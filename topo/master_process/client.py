"""Requests to the master of a running topology."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from topo.errors import TopoEnvironmentError, UserError
from topo.storage.state_folder import StateFolder, TopologyFolder, home_folder
from topo.transport.control_client import ControlClient
from topo.wire import control

_LOOK_S = 0.25


class Unreachable(TopoEnvironmentError):
    """The topology is known, but no master of it answers."""


class AnswerTimeout(TopoEnvironmentError):
    """The master runs and did not answer in time."""


class Client:
    """Talks to the master of one topology of this machine.

    Args:
        home: the state folder; by default that of the environment.

    Raises:
        NotFoundError: no topology of that name is known; carries near misses.
    """

    def __init__(self, name: str, home: Path | None = None) -> None:
        self.folder: TopologyFolder = StateFolder(home or home_folder(os.environ)).find(name)

    def request(self, verb: str, timeout_s: float = 10.0, **arguments: Any) -> Any:
        """Return the master's answer.

        Raises:
            Unreachable: no master runs; `topo resume` starts one.
            AnswerTimeout: it did not answer within `timeout_s` seconds.
            UserError: it refused; the message names the reason.
        """
        name = self.folder.name
        self._check_master()
        try:
            endpoint = json.loads(self.folder.master.read_bytes())["client_endpoint"]
        except (OSError, ValueError, KeyError) as error:
            raise Unreachable(f"the master of {name!r} has not published its address yet; try again in a moment") from error
        asker = ControlClient(endpoint)
        until = time.monotonic() + timeout_s
        try:
            asker.ask(control.encode(control.Request(verb, arguments)))
            while (answer := asker.answer(min(_LOOK_S, timeout_s))) is None:
                self._check_master()
                if time.monotonic() >= until:
                    raise AnswerTimeout(f"{self._stalled()}; {verb!r} had no answer within {timeout_s:g} s")
        finally:
            asker.close()
        reply = control.decode_reply(answer, 16 * control.MAX_CONTROL)
        if not reply.ok:
            raise UserError(reply.error)
        return reply.result

    def _stalled(self) -> str:
        """Say that the master does not answer, and what helps."""
        pid = self.folder.owner() or "unknown"
        return (
            f"the master of {self.folder.name!r}, process {pid}, runs and does not answer: it is stopped or very busy; "
            f"`kill -CONT {pid}` lets a stopped one continue, `kill -9 {pid}` and `topo resume {self.folder.name}` replace it"
        )

    def _check_master(self) -> None:
        name = self.folder.name
        if not self.folder.is_running():
            raise Unreachable(
                f"topology {name!r} is not running; `topo status {name}` shows how it ended, `topo resume {name}` continues it"
            )
