"""Certificates for servers of tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def self_signed(folder: Path, address: str) -> tuple[Path, Path]:
    """Return a certificate for an address, such as 127.0.0.2, which signs itself, and its key: two files in the folder."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    openssl = shutil.which("openssl")
    assert openssl is not None, "there is no `openssl`: apt install openssl"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=topo", "-addext", f"subjectAltName=IP:{address}", "-out", str(cert), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key
