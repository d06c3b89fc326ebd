"""Which files belong to a topology's code."""

from __future__ import annotations

from pathlib import Path

import msgpack._cmsgpack
import pytest

from topo.user_code.files import code_of, is_installed


def test_a_compiled_module_of_an_installed_package_is_installed() -> None:
    assert is_installed(Path(msgpack._cmsgpack.__file__))


def test_an_environment_below_the_code_is_not_copied_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project's package lies beside its `.venv`, and the topology imports a compiled module when it is built."""
    site = tmp_path / ".venv" / "site-packages"
    for package in (tmp_path / "flows", site / "quick"):
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    flow, compiled = tmp_path / "flows" / "count.py", site / "quick" / "lib.cpython-311-x86_64-linux-gnu.so"
    flow.touch()
    compiled.touch()
    monkeypatch.setattr("sysconfig.get_path", lambda kind: str(site))
    assert code_of(flow, [compiled]) == [tmp_path / "flows" / "__init__.py", flow]
