"""Redirects of requests that carry secrets: they are followed within one origin (scheme, host and port) alone.

The client leaves out Authorization for another origin, and sends all other headers, such as X-Api-Key.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import aiohttp
from yarl import URL

from topo.connectors.http.requests import shown_url
from topo.errors import PeerError


def guarded(url: str, headers: Mapping[str, str], texts: object = ()) -> list[aiohttp.TraceConfig]:
    """Return the traces for a session by which a redirect to another origin raises PeerError.

    There are none where nothing can be secret: no headers, no password in the URL, no texts that are sent after the connection.
    """
    try:
        own = URL(url)
    except ValueError:
        return []  # nothing can be sent to it
    candidates = {"headers": headers, "password": own.user or own.password, "texts": texts}
    sent = [name for name, given in candidates.items() if given]
    if not sent:
        return []
    trace = aiohttp.TraceConfig()
    shown = " and ".join(f"the {one}" for one in sent)

    async def check(_session: object, _context: SimpleNamespace, params: aiohttp.TraceRequestRedirectParams) -> None:
        answer = params.response
        try:
            target = answer.url.join(URL(answer.headers.get("Location") or answer.headers.get("URI") or ""))
        except ValueError:
            return  # the client reports it
        if _origin(target) != _origin(own):
            answer.close()
            raise PeerError(
                f"redirects to {shown_url(str(target))}, another origin, which would be sent {shown}; "
                "give that address as url=, if it may have them"
            )

    trace.on_request_redirect.append(check)
    return [trace]


def _origin(url: URL) -> tuple[bool, str | None, int | None]:
    """Return the origin of a URL; a WebSocket has that of its HTTP request."""
    return url.scheme in ("https", "wss"), url.host, url.port
