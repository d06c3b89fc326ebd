"""Clients of HTTP and a server whose certificate no authority of the system has signed."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.certificates import self_signed
from tests.connectors.spout_tasks import until
from topo import HttpSink, SseSpout, TaskContext, WebSocketSpout
from topo.errors import PeerError
from topo.testing.partition_harness import PartitionHarness

pytest.importorskip("aiohttp")

pytestmark = [pytest.mark.server, pytest.mark.timeout(60)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The host and port of a server whose certificate signs itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path, "127.0.0.1"))
    found = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    found.socket = context.wrap_socket(found.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield f"127.0.0.1:{found.server_port}"
    found.shutdown()
    thread.join()
    found.server_close()


def test_a_sink_names_the_way_to_have_the_certificate_taken(server: str) -> None:
    async def send() -> None:
        sink = HttpSink(f"https://{server}/orders", value="n", retry_for="100ms", headers={"Authorization": "planted"})
        await sink.open(TaskContext("topology", "sink", 1))
        try:
            await sink._send(f"https://{server}/orders", b"1", {})
        finally:
            await sink.close()

    with pytest.raises(PeerError, match=f"{server}.*SSL_CERT_FILE") as refused:
        asyncio.run(send())
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["https", "wss"])
def test_a_spout_names_the_way_to_have_the_certificate_taken(server: str, scheme: str) -> None:
    url = f"{scheme}://user:planted@{server}/events"
    harness = PartitionHarness(lambda: SseSpout(url) if scheme == "https" else WebSocketSpout(url))
    until(harness, lambda: harness.errors)
    text = str(harness.errors[0])
    assert "SSL_CERT_FILE" in text and server in text and "planted" not in text
    harness.stop()
