"""An MQTT broker, Mosquitto, which keeps its sessions on disk.

`make mqtt`, which is `python -m tests.servers.mosquitto`, starts it in the foreground at the usual port.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tests.servers.server import Server, free_port, in_foreground, need, refuse_missing, start_server

PATHS = "/usr/local/sbin:/usr/sbin:/sbin"
USER, PASSWORD = "topo", "planted-4711"
"""Of a broker that wants them."""


@dataclass
class Mosquitto(Server):
    """A broker that answers.

    Attributes:
        folder: its data, settings and log.
        tls_port: where it wants certificates, if it does.
    """

    folder: Path = field(default_factory=Path)
    port: int = 0
    tls_port: int = 0

    def start_again(self) -> None:
        """Start it again on its data, at its address, after `stop` or `kill`."""
        self.process = _start(self.folder, self.port).process


def start(
    folder: Path,
    port: int | None = None,
    *,
    is_locked: bool = False,
    survives: bool = True,
    most_bytes: int | None = None,
    most_payload: int | None = None,
    certificate: tuple[Path, Path] | None = None,
    settings: Sequence[str] = (),
) -> Mosquitto:
    """Start a broker with its data in `folder`. Skips the test where it or its client is missing.

    Args:
        is_locked: whether clients have to give USER and PASSWORD.
        survives: whether its data survives a kill: it writes all of it at each change, which takes long with many messages.
        most_bytes: of a packet that it takes, which it states.
        most_payload: bytes of a message that it takes, by the setting of former versions, which it does not state.
        settings: more lines of its settings.
        certificate: with its key. It is the server's and signs itself; clients at `tls_port` have to show a certificate, too.
    """
    need(("paho",), "mqtt")
    if _command() is None:
        refuse_missing("mosquitto", "mqtt")
    port, tls_port = port or free_port(), 0 if certificate is None else free_port()
    lines = [
        *settings,
        f"listener {port} 127.0.0.1",
        f"allow_anonymous {str(not is_locked).lower()}",
        "persistence true",
        f"persistence_location {folder}/",
        *(["autosave_on_changes true", "autosave_interval 1"] if survives else []),
        "max_queued_messages 0",
        # It drops its rights otherwise, and cannot write to the folder then.
        *(["user root"] if os.geteuid() == 0 else []),
        *([f"password_file {folder / 'passwords'}"] if is_locked else []),
        *([] if most_bytes is None else [f"max_packet_size {most_bytes}"]),
        *([] if most_payload is None else [f"message_size_limit {most_payload}"]),
    ]
    if certificate is not None:
        cert, key = certificate
        lines += [f"listener {tls_port} 127.0.0.1", f"cafile {cert}", f"certfile {cert}", f"keyfile {key}"]
        lines += ["require_certificate true"]
    if is_locked:
        tool = shutil.which("mosquitto_passwd", path=os.environ["PATH"] + os.pathsep + PATHS) or "mosquitto_passwd"
        subprocess.run([tool, "-b", "-c", str(folder / "passwords"), USER, PASSWORD], check=True, capture_output=True)
    (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    return replace(_start(folder, port), tls_port=tls_port)


def _command() -> str | None:
    return shutil.which("mosquitto", path=os.environ["PATH"] + os.pathsep + PATHS)


def _start(folder: Path, port: int) -> Mosquitto:
    command = [str(_command()), "-c", str(folder / "mosquitto.conf")]
    server = start_server(command, folder / "mosquitto.log", f"mqtt://127.0.0.1:{port}", partial(_answers, port))
    return Mosquitto(server.address, server.process, folder, port)


def _answers(port: int) -> bool:
    """Whether it answers a request to connect, also by a refusal."""
    connect = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x05\x00\x05probe"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as probe:
            probe.sendall(connect)
            return probe.recv(4)[:1] == b"\x20"
    except OSError:
        return False


def main() -> None:
    """Start a broker at port 1883 until it is interrupted."""
    in_foreground("Mosquitto", lambda folder: start(folder, 1883, survives=False))


if __name__ == "__main__":
    main()
