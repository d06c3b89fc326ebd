"""The web application: routes, and the checks before all of them.

Everything below /api needs a token. Requests whose Host is not ours, and those but GET whose Origin is not, are refused: so
neither a page elsewhere nor a name that was pointed at this machine reaches a topology.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from topo.errors import NotFoundError, TopoError, UserError
from topo.master_process.client import AnswerTimeout, Unreachable
from topo.storage.files import state_of
from topo.ui import actions
from topo.ui.access import Names, Role, Tokens
from topo.ui.assets import Assets
from topo.ui.live import TICK_S, LiveHome, TooManyQuestions, as_text
from topo.ui.reading import READ, number
from topo.version import __version__

MOST_BODY = 16 * 1024
MOST_SOCKETS = 100
MOST_REQUESTS = 100
"""In a second, of all browsers."""
MOST_ID = 999_999_999
TOKEN_S = 5.0
SEND_S = 10.0


class Guard:
    """Refuses requests before they reach a route, and gives every answer its headers. An ASGI application around another."""

    def __init__(self, app: Any, names: Names, policy: str) -> None:
        self._app, self._names, self._clock = app, names, time.monotonic
        self._second, self._seen = 0, 0
        self._headers = {
            b"content-security-policy": policy.encode(),
            b"x-content-type-options": b"nosniff",
            b"referrer-policy": b"no-referrer",
            b"cross-origin-opener-policy": b"same-origin",
            b"cross-origin-resource-policy": b"same-origin",
            b"cache-control": b"no-store",
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        send = self._with_headers(send) if scope["type"] == "http" else send
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4403, "reason": refusal[1]})
        else:
            await JSONResponse({"error": refusal[1]}, refusal[0])(scope, receive, send)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        headers = [(name, value.decode("latin-1")) for name, value in scope["headers"]]
        hosts, origins = ([value for name, value in headers if name == wanted] for wanted in (b"host", b"origin"))
        if len(hosts) != 1 or hosts[0].lower() not in self._names.hosts:
            return 403, "this Host is not served here"
        asks = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if len(origins) > 1 or ((origins or not asks) and not (origins and origins[0].lower() in self._names.origins)):
            return 403, "this Origin is not served here"
        second = int(self._clock())
        self._second, self._seen = second, self._seen + 1 if second == self._second else 1
        return (429, "too many requests; try again in a second") if self._seen > MOST_REQUESTS else None

    def _with_headers(self, send: Any) -> Any:
        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*(self._headers | dict(message["headers"])).items()]
            await send(message)

        return answer


class _Page:
    """The handlers of the routes."""

    def __init__(self, home: Path, tokens: Tokens, assets: Assets, *, read_only: bool) -> None:
        self.home, self.tokens, self.assets, self.read_only = home, tokens, assets, read_only
        self.live = LiveHome(home)
        self._sockets = 0
        self._acting: set[str] = set()

    def _role(self, request: Request) -> Role:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        role = self.tokens.role_of(token.strip() if scheme.lower() == "bearer" else "")
        if role is None:
            raise _Refusal(401, "the token is missing or wrong; `topo ui --print` prints the address with it")
        return role

    def _check_operator(self, request: Request) -> None:
        if self._role(request) is Role.VIEWER or self.read_only:
            raise _Refusal(403, "this page is for viewers: it changes nothing")

    async def index(self, request: Request) -> Response:
        return Response(self.assets.index, media_type="text/html", headers={"cache-control": "no-cache"})

    async def static(self, request: Request) -> Response:
        found = self.assets.find(request.path_params["digest"], request.path_params["name"])
        if found is None:
            return JSONResponse({"error": "there is no such file"}, 404)
        return Response(found[0], headers={"content-type": found[1], "cache-control": "public, max-age=31536000, immutable"})

    async def api(self, request: Request) -> Response:
        self._role(request)
        answer = await self._answer(request)
        return Response(answer if isinstance(answer, str) else as_text(answer), media_type="application/json")

    async def _answer(self, request: Request) -> Any:
        """Return the answer to a GET request; text is JSON already."""
        path, query = request.path_params, request.query_params
        if "name" not in path:
            return await self._list()
        topology = self.live.find(path["name"])
        if "component" in path:
            return await topology.ask("component", component=path["component"], window=query.get("window", "10s"))
        if "observation" in path:
            self._check_operator(request)
            return await topology.observed(number(path, "observation", 0, MOST_ID), number(query, "after", 0, MOST_ID))
        if "checkpoint" in path:
            return {"parts": await topology.ask("checkpoint", checkpoint=number(path, "checkpoint", 0, MOST_ID))}
        what = path["what"]
        if what == "log-levels":
            return {"levels": await topology.ask("log_levels")}
        if what == "workers":
            try:
                return {"workers": await topology.ask("workers")}
            except Unreachable:
                return {"workers": (topology.folder.last_summary() or {}).get("workers", [])}
        if what not in READ:
            raise NotFoundError(f"a topology has no {what!r}; it has workers, log-levels, {', '.join(READ)}")
        folder = topology.folder
        files = {"errors": (folder.older_errors, folder.errors), "dead-letters": (folder.dead_letters, folder.replays)}.get(what)
        name = what if files else f"{what}?{query}" if what in ("history", "checkpoints") else ""
        return await topology.alone(lambda: READ[what](folder, query), name, files and (str(query), *state_of(*files)))

    async def _list(self) -> dict[str, Any]:
        return {"type": "list", "at_ms": int(time.time() * 1000), "topologies": await self.live.rows()}

    async def _order(self, request: Request) -> dict[str, Any]:
        """Return the body of a request that changes something. Raises _Refusal."""
        self._check_operator(request)
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise _Refusal(415, "the body is application/json")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BODY:
                raise _Refusal(413, f"the body has more than {MOST_BODY} bytes")
        try:
            asked = json.loads(body or b"{}")
            # Neither a command nor an answer can have a lone surrogate.
            json.dumps(asked, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise _Refusal(400, f"the body is no JSON: {error}") from error
        if not isinstance(asked, dict):
            raise _Refusal(400, "the body is a JSON object")
        return asked

    async def observe(self, request: Request) -> Response:
        """Begin to watch a component, or messages."""
        asked = await self._order(request)
        topology = self.live.find(request.path_params["name"])
        kind, component, for_s = asked.pop("kind", ""), asked.pop("component", ""), asked.pop("for_s", 60)
        if kind not in ("tap", "trace", "profile", "log-level") or not isinstance(component, str):
            raise UserError("kind is tap, trace, profile or log-level, component a name")
        if type(for_s) not in (int, float) or not 0 < for_s <= 3600:
            raise UserError("for_s is a number of seconds, 3600 at most")
        return JSONResponse(await topology.observe(kind, component=component, for_s=for_s, spec=asked))

    async def unobserve(self, request: Request) -> Response:
        self._check_operator(request)
        topology, ended = self.live.find(request.path_params["name"]), number(request.path_params, "observation", 0, MOST_ID)
        return JSONResponse(await topology.ask("unobserve", is_order=True, id=ended))

    async def act(self, request: Request) -> Response:
        asked = await self._order(request)
        topology, action = self.live.find(request.path_params["name"]), request.path_params["action"]
        folder, asks_for_command = topology.folder, request.query_params.get("command") == "1"
        if action == "replace":
            worker = actions.worker_of(asked)
            if not asks_for_command:
                await topology.ask("restart", is_order=True, worker=worker)
                actions.note(folder, {"action": action, "worker": worker})
            return JSONResponse({"command": "", "exit": 0, "output": f"worker {worker} is being replaced"})
        arguments = actions.arguments_of(action, folder.name, asked)
        if asks_for_command:
            return JSONResponse({"command": " ".join(["topo", *arguments])})
        # Commands may take minutes, and a kill is not to wait for them.
        if folder.name in self._acting and action != "kill":
            raise _Refusal(409, f"another action on {folder.name} is under way")
        self._acting.add(folder.name)
        try:
            return JSONResponse(await actions.run(folder, self.home, action, arguments))
        finally:
            self._acting.discard(folder.name)

    async def socket(self, socket: WebSocket) -> None:
        await socket.accept()
        if self._sockets >= MOST_SOCKETS:
            await socket.close(4429)
            return
        self._sockets += 1
        try:
            # Either is a browser that has gone.
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._converse(socket)
        finally:
            self._sockets -= 1

    async def _converse(self, socket: WebSocket) -> None:
        try:
            first = await asyncio.wait_for(_message(socket), TOKEN_S)
        except TimeoutError:
            await socket.close(4408)
            return
        role = self.tokens.role_of(str(first.get("token", "")))
        if role is None:
            await socket.close(4401)
            return
        about = {"type": "hello", "version": __version__, "home": str(self.home), "now_ms": int(time.time() * 1000)}
        await socket.send_text(as_text(about | {"read_only": self.read_only or role is Role.VIEWER}))
        look: dict[str, Any] = {}
        while True:
            with suppress(TimeoutError):
                look = await asyncio.wait_for(_message(socket), TICK_S)
            if look.get("look") is None:
                continue
            snapshot = await self._snapshot(look)
            try:
                # Waits for a slow reader, which so gets the newest snapshot alone; who reads nothing is given up.
                await asyncio.wait_for(socket.send_text(snapshot), SEND_S)
            except TimeoutError:
                await socket.close(1013)
                return

    async def _snapshot(self, look: dict[str, Any]) -> str:
        try:
            if look["look"] == "list":
                return as_text(await self._list())
            return await self.live.find(str(look["look"])).overview(str(look.get("window", "10s")))
        except TopoError as error:
            return as_text({"type": "error", "error": str(error)})


async def _message(socket: WebSocket) -> dict[str, Any]:
    # A frame of bytes has no text.
    with suppress(ValueError, RecursionError, KeyError):
        text = await socket.receive_text()
        if len(text) <= MOST_BODY and isinstance(found := json.loads(text), dict):
            return found
    return {}


class _Refusal(UserError):
    """A request that is refused with a status of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def _refused(request: Request, error: Exception) -> Response:
    kinds = ((NotFoundError, 404), (TooManyQuestions, 429), (Unreachable, 409), (AnswerTimeout, 504), (UserError, 400))
    status = getattr(error, "status", None) or next((status for kind, status in kinds if isinstance(error, kind)), 500)
    return JSONResponse({"error": str(error), "candidates": list(getattr(error, "candidates", ()))}, status)


def make_app(home: Path, tokens: Tokens, names: Names, *, read_only: bool = False) -> Any:
    """Return the application of a home."""
    shown = Assets()
    page = _Page(home, tokens, shown, read_only=read_only)
    routes = [
        Route("/", page.index),
        Route("/t/{rest:path}", page.index),
        Route("/static/{digest}/{name:path}", page.static),
        Route("/api/topologies", page.api),
        Route("/api/t/{name}/c/{component}", page.api),
        Route("/api/t/{name}/checkpoints/{checkpoint}", page.api),
        Route("/api/t/{name}/observations/{observation}", page.api),
        Route("/api/t/{name}/{what}", page.api),
        Route("/api/t/{name}/actions/{action}", page.act, methods=["POST"]),
        Route("/api/t/{name}/observations", page.observe, methods=["POST"]),
        Route("/api/t/{name}/observations/{observation}", page.unobserve, methods=["DELETE"]),
        WebSocketRoute("/api/live", page.socket),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={TopoError: _refused}), names, shown.policy)
