"""Which files belong to a topology's code."""

from __future__ import annotations

from pathlib import Path

import msgpack._cmsgpack
import pytest

from topo.errors import NotFoundError
from topo.user_code.copy import find_file, parse_reference
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


@pytest.mark.parametrize("given", ["flows/count", "flows/cuont.py"])
def test_a_file_that_may_be_meant_is_named_with_its_folder(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "count.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match=r"Did you mean 'flows/count\.py'"):
        find_file(parse_reference(given))
