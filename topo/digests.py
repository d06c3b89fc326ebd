"""SHA-256 and BLAKE2b without OpenSSL.

`hashlib` loads OpenSSL whatever is taken from it: 3.4 MB of each worker, which needs digests of a few kilobytes. The modules
named here are those which hashlib itself takes them from where Python is built without OpenSSL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    try:
        from _sha2 import sha256
    except ImportError:
        # Before Python 3.12.
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

__all__ = ["blake2b", "sha256"]
