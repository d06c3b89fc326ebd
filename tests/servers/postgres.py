"""A PostgreSQL server, which listens on a Unix socket alone.

PostgreSQL refuses to run as root: then it runs as the user `postgres`, with its data in a folder that this user can enter.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from tests.servers.server import Server, ServerEndedError, free_port, need, refuse_missing, start_server

USER = "topo"
PASSWORD = "planted-4711"
"""Of the role `locked`, which has to give it; the others connect without one."""
_SETTINGS = {
    "listen_addresses": "",
    "wal_level": "logical",
    "max_prepared_transactions": "16",
    "max_replication_slots": "16",
    "max_wal_senders": "16",
    "shared_buffers": "16MB",
    "autovacuum_naptime": "1h",
}
_HBA = "local all locked scram-sha-256\nlocal all all trust\nlocal replication all trust\n"


class PostgresServer(Server):
    """The server process, its sessions, and the folder of its data."""

    folder: Path
    port: int

    def _family(self) -> list[psutil.Process]:
        # Each session is a process, in a process group alone.
        main = psutil.Process(self.pid)
        return [main, *main.children(recursive=True)]

    def stop(self) -> None:
        """End it without waiting for its clients, and remove its data."""
        if self.process.poll() is None:
            self.thaw()
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
        shutil.rmtree(self.folder)

    def kill(self) -> None:
        """End it and its sessions at once."""
        family = self._family()
        for one in family:
            # A session may have ended with the server.
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()
        psutil.wait_procs(family)

    def freeze(self) -> None:
        """Let it and its sessions answer nothing, with their connections open."""
        for one in self._family():
            with suppress(psutil.NoSuchProcess):
                one.suspend()

    def thaw(self) -> None:
        """Let it and its sessions continue."""
        for one in self._family():
            with suppress(psutil.NoSuchProcess):
                one.resume()

    def start_again(self) -> None:
        """Start it on the data that there is."""
        for is_last in (False, False, True):
            try:
                self.process = _start(self.folder, self.port).process
                return
            except ServerEndedError:
                # A session that began while the server was killed has its memory until it notices.
                if is_last:
                    raise
                time.sleep(1.0)


def start(
    folder: Path | None = None, certificate: tuple[Path, Path] | None = None, *, wants_client: bool = False
) -> PostgresServer:
    """Start a new server, with its data in a temporary folder or in `folder`, which all users may enter.

    Args:
        certificate: with its key: it listens on loopback, too, and requires TLS there.
        wants_client: whether clients have to show a certificate there, which that one has signed.
    """
    need(("psycopg",), "postgres")
    initdb = _program("initdb")
    if initdb is None:
        refuse_missing("PostgreSQL", "postgres")
    place = Path(tempfile.mkdtemp(prefix="topo-postgres-")) if folder is None else folder
    if (user := _user()) is not None:
        shutil.chown(place, user, user)
    command = [str(initdb), "-D", str(place / "data"), "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", user=user, group=user)
    data = place / "data"
    (data / "pg_hba.conf").write_text(_HBA)
    port = 5432
    if certificate is not None:
        port = free_port()
        for name, file in zip(("server.crt", "server.key"), certificate, strict=True):
            (data / name).write_bytes(file.read_bytes())
            (data / name).chmod(0o600)
            if user is not None:
                shutil.chown(data / name, user, user)
        (data / "pg_hba.conf").write_text(f"{_HBA}hostssl all all all trust{' clientcert=verify-full' if wants_client else ''}\n")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"listen_addresses = '127.0.0.1'\nport = {port}\nssl = on\n")
            settings.write("ssl_ca_file = 'server.crt'\n" if wants_client else "")
    server = _start(place, port)
    _run(server, f"create role locked login password '{PASSWORD}'")
    return server


def _start(folder: Path, port: int) -> PostgresServer:
    given = _SETTINGS if port == 5432 else {name: value for name, value in _SETTINGS.items() if name != "listen_addresses"}
    settings = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
    command = [str(_program("postgres")), "-D", str(folder / "data"), "-c", f"unix_socket_directories={folder}", *settings]
    address = f"host={folder} port={port} dbname=postgres user={USER}"
    started = start_server(command, folder / "log", address, partial(_answers, address), user=_user())
    server = PostgresServer(started.address, started.process)
    server.folder, server.port = folder, port
    return server


def _answers(address: str) -> bool:
    import psycopg

    try:
        with psycopg.connect(address, connect_timeout=5) as connection:
            return connection.execute("select 1").fetchone() == (1,)
    except psycopg.Error:
        return False


def _run(server: PostgresServer, statement: str) -> None:
    import psycopg

    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute(statement)


def _program(name: str) -> Path | None:
    # Debian keeps them out of the path, in a folder for each version.
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    elsewhere = shutil.which(name)
    return found[-1] if found else None if elsewhere is None else Path(elsewhere)


def _user() -> str | None:
    return "postgres" if os.geteuid() == 0 else None


def _serve() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = start()
    print(f'dsn="{server.address}"', flush=True)
    try:
        server.process.wait()
    except KeyboardInterrupt:
        server.stop()


if __name__ == "__main__":
    _serve()
