"""Certificates for servers of tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def self_signed(folder: Path, address: str) -> tuple[Path, Path]:
    """Return a certificate for an address, such as 127.0.0.2, which signs itself, and its key: two files in the folder."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=authority", "-addext", f"subjectAltName=IP:{address}", "-out", str(cert), "-keyout", str(key)]
    _openssl(*command)
    return cert, key


def signed(folder: Path, authority: tuple[Path, Path], name: str, *, days: int = 2) -> tuple[Path, Path]:
    """Return a certificate of an authority for a client, and its key: two files in the folder, which NAME begins.

    Args:
        authority: its certificate and key.
        days: for which it holds; less than zero: it has expired.
    """
    cert, key, request = folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.csr"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl("req", *curve, "-subj", "/CN=topo", "-keyout", str(key), "-out", str(request))
    pair = ["-CA", str(authority[0]), "-CAkey", str(authority[1]), "-CAcreateserial"]
    _openssl("x509", "-req", "-in", str(request), *pair, "-days", str(days), "-out", str(cert))
    return cert, key


def encrypted(key: Path, password: str) -> Path:
    """Return a file beside a key that has it encrypted."""
    file = key.with_name(f"{key.name}.encrypted")
    _openssl("pkey", "-in", str(key), "-aes256", "-passout", f"pass:{password}", "-out", str(file))
    return file


def _openssl(*words: str) -> None:
    openssl = shutil.which("openssl")
    assert openssl is not None, "there is no `openssl`: apt install openssl"
    subprocess.run([openssl, *words], check=True, capture_output=True)
