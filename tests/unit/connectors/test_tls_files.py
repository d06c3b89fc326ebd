"""Files of TLS that cannot be used, and what a server has against the client's certificate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import encrypted, self_signed
from topo.connectors.tls import tls_advice
from topo.connectors.tls_context import client_context
from topo.errors import ConfigError

PASSWORD = "planted-4711"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, other = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("other")
    cert, key = self_signed(folder, "127.0.0.1")
    (folder / "text").write_text("no key\n")
    return {
        "cert": cert,
        "key": key,
        "other": self_signed(other, "127.0.0.1")[1],
        "encrypted": encrypted(key, PASSWORD),
        "text": folder / "text",
        "missing": folder / "missing.key",
    }


@pytest.mark.parametrize(
    ("key", "password", "message"),
    [
        ("missing", None, r"keyfile='.*missing.key' cannot be read: No such file or directory"),
        ("text", None, r"certfile='.*cert.pem' and its key, keyfile='.*text', are no certificate and key in PEM"),
        ("other", None, r"keyfile='.*key.pem' is not the key of certfile='.*cert.pem'"),
        ("encrypted", None, r"keyfile='.*' is encrypted with a password: give it as keyfile_password"),
        ("encrypted", "planted-wrong", r"keyfile='.*' is encrypted with another password: correct keyfile_password"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_nobody_is_asked_for_a_password(
    files: dict[str, Path], key: str, password: str | None, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    tls = {"certfile": files["cert"], "keyfile": str(files[key]), "keyfile_password": password}
    with pytest.raises(ConfigError, match=message) as refused:
        client_context(tls)
    assert "planted" not in str(refused.value)
    assert "pass phrase" not in "".join(capfd.readouterr())


def test_a_file_without_a_certificate_is_no_authority(files: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"^ssl_ca_certs='.*text' has no certificate in PEM"):
        client_context({"ca_certs": str(files["text"])}, "ssl_{}".format)


def test_files_that_fit_are_taken(files: dict[str, Path]) -> None:
    client_context({"certfile": files["cert"], "keyfile": files["encrypted"], "keyfile_password": PASSWORD})
    client_context({"ca_certs": files["cert"], "certfile": files["cert"], "keyfile": files["key"]})


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired", "GIVEN, has expired: renew it"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", "GIVEN, is of an authority that the server does not know"),
        ("[SSL: SSLV3_ALERT_BAD_CERTIFICATE]", "GIVEN, is missing, has expired, or is of an authority"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]", "wants a certificate of the client: give it as GIVEN"),
        ("certificate verify failed: certificate has expired", "renew the server's certificate"),
    ],
)
def test_what_a_server_has_against_a_certificate_is_said(text: str, advice: str) -> None:
    assert advice in tls_advice(text, "AUTHORITY", "GIVEN", "redis://")
