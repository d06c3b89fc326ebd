"""Requests to the master of a running topology."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Self

import msgspec

from topo.errors import TopoEnvironmentError, UserError
from topo.storage.shapes import AddressShape, EndShape
from topo.storage.state_folder import StateFolder, TopologyFolder, home_folder
from topo.transport.control_client import ControlClient, EndpointInvalid
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

    @classmethod
    def of(cls, folder: TopologyFolder) -> Self:
        """Return the client of a topology by its folder."""
        return cls(folder.name, folder.path.parents[1])

    def request(self, verb: str, timeout_s: float = 10.0, **arguments: Any) -> Any:
        """Return the master's answer.

        Raises:
            Unreachable: no master runs; `topo resume` starts one.
            AnswerTimeout: it did not answer within `timeout_s` seconds.
            UserError: it refused, or an argument is a number of more than 64 bits; the message names the reason.
        """
        try:
            question = control.encode(control.Request(verb, arguments))
        except OverflowError as error:
            raise UserError(f"{verb!r} takes numbers of at most 64 bits: {error}") from error
        self._check_master()
        with self._connected(self._endpoint_of_master()) as asker:
            until = time.monotonic() + timeout_s
            asker.ask(question)
            while (answer := asker.answer(min(_LOOK_S, timeout_s))) is None:
                self._check_master()
                if time.monotonic() >= until:
                    raise AnswerTimeout(f"{self._stalled()}; {verb!r} had no answer within {timeout_s:g} s")
        reply = control.decode_reply(answer, 16 * control.MAX_CONTROL)
        if not reply.ok:
            raise UserError(reply.error)
        return reply.result

    def _endpoint_of_master(self) -> str:
        """Return where the running master listens."""
        pid, name = self.folder.owner() or "unknown", self.folder.name
        try:
            address = msgspec.json.decode(self.folder.master.read_bytes(), type=AddressShape)
        except OSError:
            address = AddressShape()
        except msgspec.MsgspecError as error:
            raise self._damaged(error) from error
        if str(address.pid) != pid or not address.client_endpoint:
            raise Unreachable(
                f"the master of {name!r}, process {pid}, has not published its address yet: it starts, or waits for a cluster; "
                f"try again in a moment, or `kill {pid}` ends it"
            )
        return address.client_endpoint

    def _new_asker(self, endpoint: str) -> ControlClient:
        try:
            return ControlClient(endpoint)
        except EndpointInvalid as error:
            raise self._damaged(error) from error

    def _damaged(self, why: Exception) -> Unreachable:
        """Say that the file with the master's address is of no use, and what helps."""
        pid, name = self.folder.owner() or "unknown", self.folder.name
        return Unreachable(
            f"{self.folder.master} is damaged ({why}), so the master of {name!r} cannot be asked; `kill {pid}` lets "
            f"messages in flight finish and ends it, and `topo resume {name}` continues it"
        )

    @contextmanager
    def _connected(self, endpoint: str) -> Iterator[ControlClient]:
        asker = self._new_asker(endpoint)
        try:
            yield asker
        finally:
            asker.close()

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
            if not self.folder.summary.exists():
                raise Unreachable(
                    f"the master of {name!r} does not run and left no summary; workers that it left end after `master_timeout`; "
                    f"`topo resume {name}` continues it"
                )
            if _has_finished(self.folder.summary):
                raise Unreachable(
                    f"topology {name!r} is not running: it has processed all its input; `topo status {name}` shows its figures"
                )
            raise Unreachable(
                f"topology {name!r} is not running; `topo status {name}` shows how it ended, `topo resume {name}` continues it"
            )


def _has_finished(summary: Path) -> bool:
    try:
        return msgspec.json.decode(summary.read_bytes(), type=EndShape).status == "FINISHED"
    except (OSError, msgspec.MsgspecError):
        return False


class LastingClient(Client):
    """Keeps its connection between requests, which a new one for each would make the most of their cost, until `close`.

    One request at a time, whichever thread asks. It finds a new master without help.
    """

    def __init__(self, name: str, home: Path | None = None) -> None:
        super().__init__(name, home)
        self._lock = RLock()
        self._kept: ControlClient | None = None
        self._endpoint = ""

    def close(self) -> None:
        with self._lock:
            if self._kept is not None:
                self._kept.close()
            self._kept = None

    def _check_master(self) -> None:
        try:
            super()._check_master()
        except Unreachable:
            # A connection to a topology that has ended would try for ever to be made again.
            self.close()
            raise

    @contextmanager
    def _connected(self, endpoint: str) -> Iterator[ControlClient]:
        with self._lock:
            if self._kept is None or endpoint != self._endpoint:
                self.close()
                self._kept, self._endpoint = self._new_asker(endpoint), endpoint
            try:
                yield self._kept
            except BaseException:
                # An answer that comes too late must not be taken for that to the next request.
                self.close()
                raise
