"""The files of the page: read once, served under the digest of them all, so that browsers need not ask again."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
_IMPORT_MAP = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)
_KINDS = {".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
"""The media types of files that are served; no other files of the folder are."""
_NO_PAGE = "<!doctype html><html lang=en><title>topo</title><p>The files of the page are not installed."


class Assets:
    """The files of the page.

    Attributes:
        index: the page, with the digest in its addresses.
        policy: the Content-Security-Policy that fits the page.
    """

    def __init__(self) -> None:
        paths = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.suffix in _KINDS)
        self._files = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in paths}
        index = FOLDER / "index.html"
        text = index.read_text() if index.is_file() else _NO_PAGE
        whole = hashlib.sha256(text.encode())
        for name, content in self._files.items():
            whole.update(f"{name}\0{len(content)}\0".encode() + content)
        self._digest = whole.hexdigest()[:16]
        text = text.replace("{{static}}", f"/static/{self._digest}")
        self.index = text.encode()
        self.policy = policy(_IMPORT_MAP.findall(text))

    def find(self, digest: str, name: str) -> tuple[bytes, str] | None:
        """Return content and media type of a file; None when there is none of that digest and name."""
        content = self._files.get(name) if digest == self._digest else None
        return None if content is None else (content, _KINDS[name[name.rindex(".") :]])


def policy(inline_scripts: list[str]) -> str:
    """Return a policy by which nothing but our own files, and these import maps, is loaded or run."""
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in inline_scripts]
    return (
        f"default-src 'none'; script-src {' '.join([chr(39) + 'self' + chr(39), *hashes])}; style-src 'self'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'"
    )
