from __future__ import annotations

import os
import pickle
import queue
import re
import sys
from pathlib import Path

import pytest

from tests.unit.user_code.own_folder import SOURCE, clean_imports, state, write
from topo import IterableSpout, Topology, TopologyBuilder
from topo.errors import NotFoundError, UserError
from topo.user_code import load as code
from topo.user_code.copy import (
    CodeCopy,
    TopologyReference,
    as_user_knows_it,
    copy_code,
    origin_of_copy,
    parse_reference,
    pickle_topology,
)
from topo.user_code.load import CodeError, bind_parameters, load_topology

__all__ = ["clean_imports", "state"]


def copied(text: str, state: Path) -> CodeCopy:
    return copy_code(parse_reference(text), state)


@pytest.mark.parametrize(
    ("text", "target", "attribute"),
    [
        ("words.py", "words.py", "topology"),
        ("a/b/words.py:other", "a/b/words.py", "other"),
        ("package.module", "package.module", "topology"),
        ("package.module:build", "package.module", "build"),
        ("words.py:", "words.py", "topology"),
        ("with:colon/words.py", "with:colon/words.py", "topology"),
    ],
)
def test_a_reference_is_a_target_and_an_attribute(text: str, target: str, attribute: str) -> None:
    assert parse_reference(text) == TopologyReference(target, attribute)


def test_a_copied_file_is_loaded_though_the_original_changes(state: Path) -> None:
    write("words.py")
    copy = copied("words.py", state)
    write("words.py", extra="raise RuntimeError('edited while it runs')")
    topology, code_hash, _ = load_topology(copy.reference, {"count": "7", "name": "copied"})
    assert code_hash == copy.hash
    assert (topology.name, topology.components[0].args) == ("copied", (range(7),))


def test_the_same_code_has_the_same_hash_and_one_copy(state: Path) -> None:
    write("words.py")
    first, again = copied("words.py", state), copied("words.py:ready", state)
    assert first.hash == again.hash
    assert len(list(state.iterdir())) == 1
    write("words.py", extra="X = 1")
    assert copied("words.py", state).hash != first.hash
    write("elsewhere/words.py")
    assert copied("elsewhere/words.py", state).hash == first.hash


def test_a_file_in_a_package_brings_the_whole_package_but_no_caches(state: Path) -> None:
    write("shop/__init__.py", source="")
    write("shop/helpers.py", source="LIMIT = 5")
    write("shop/flows/__init__.py", source="")
    write(
        "shop/flows/words.py", extra="from shop.helpers import LIMIT\nfrom ..helpers import LIMIT as same\nassert LIMIT == same"
    )
    write("shop/__pycache__/junk.py", source="")
    write("shop/.git/junk.py", source="")
    write("unrelated.py", source="")
    copy = copied("shop/flows/words.py", state)
    names = {path.name for path in state.rglob("*") if path.is_file()}
    assert names == {"__init__.py", "helpers.py", "words.py", ".origin"}
    assert origin_of_copy(copy.reference) == (str(next(state.iterdir())), str(Path.cwd()))
    write("shop/helpers.py", source="LIMIT = 'edited'")
    assert load_topology(copy.reference).code_hash == copy.hash
    assert str(sys.modules["shop.helpers"].__file__).startswith(str(state))


def test_data_beside_the_code_is_copied_anew_but_is_no_code(state: Path) -> None:
    write("shop/__init__.py", source="")
    write("shop/words.py")
    write("shop/stop-words.txt", source="the")
    first = copied("shop/words.py", state)
    write("shop/stop-words.txt", source="a")
    second = copied("shop/words.py", state)
    assert first.hash == second.hash
    assert (Path(second.reference.partition(":")[0]).parent / "stop-words.txt").read_text() == "a"


def test_a_file_in_a_package_may_be_named_by_a_way_up(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("shop/__init__.py", source="")
    write("shop/sub/__init__.py", source="")
    write("shop/words.py", extra="from . import sub")
    monkeypatch.chdir("shop/sub")
    assert load_topology("../words.py").topology.name == "words"
    assert copied("../words.py", state) == copied("../../shop/words.py", state)


def test_a_module_is_named_with_dots(state: Path) -> None:
    write("shop/__init__.py", source="")
    write("shop/words.py")
    assert load_topology(copied("shop.words:ready", state).reference).topology.name == "ready"
    write("single.py")
    assert load_topology(copied("single", state).reference).topology.name == "words"
    assert load_topology("single").topology.name == "words"
    assert origin_of_copy("single") is None


def test_an_installed_package_is_loaded_by_name_and_not_copied(state: Path) -> None:
    with pytest.raises(NotFoundError, match="has no 'topology'"):
        load_topology(copied("topo.ids", state).reference)
    assert list(state.iterdir()) == []


def forget(*names: str) -> None:
    """Let this process import modules again, as a restarted worker does, and not from the originals."""
    for name in [name for name in sys.modules if name.split(".")[0] in names]:
        del sys.modules[name]
    # Another test may have left the folder of a file of the same name.
    sys.path[:] = [folder for folder in sys.path if folder not in ("", os.getcwd()) and not Path(folder, "words.py").exists()]
    code._roots.clear()


def test_modules_beside_a_lone_file_are_copied_and_the_originals_not_used(state: Path) -> None:
    write("beside_it.py", source="from deeper import inner\nLIMIT = inner.LIMIT")
    write("deeper/inner.py", source="LIMIT = 5")
    write("deeper/unused.py", source="")
    write("toolbox/__init__.py", source="")
    write("toolbox/late.py", source="import other_one")
    write("other_one.py", source="")
    write("unrelated.py", source="")
    lazy = "def later():\n    import toolbox.late\n    return toolbox.late.__file__\n"
    write("words.py", extra=f"import json\nfrom beside_it import LIMIT\n{lazy}")
    copy = copied("words.py", state)
    assert copy.files == ("beside_it.py", "deeper/inner.py", "other_one.py", "toolbox/__init__.py", "toolbox/late.py", "words.py")
    for name in ("beside_it.py", "deeper/inner.py", "toolbox/late.py", "other_one.py", "words.py"):
        Path(name).unlink()
    forget("words", "beside_it", "deeper", "toolbox")

    loaded = load_topology(copy.reference)

    assert loaded.code_hash == copy.hash
    assert sys.modules["words"].later().startswith(str(state))


def test_an_edited_helper_changes_the_hash_of_new_copies_and_nothing_of_old_ones(state: Path) -> None:
    write("beside_it.py", source="NAME = 'first'")
    write("words.py", extra="from beside_it import NAME", source=SOURCE.replace('"ready"', "NAME"))
    first = copied("words.py:ready", state)
    write("beside_it.py", source="NAME = 'second'")
    second = copied("words.py:ready", state)

    assert first.hash != second.hash
    for copy, name in ((first, "first"), (second, "second"), (first, "first")):
        assert load_topology(copy.reference).topology.name == name


def test_a_module_that_is_imported_by_a_computed_name_is_copied_when_it_was_seen(state: Path) -> None:
    write("plugged.py", source="")
    write("words.py", extra="import importlib\nimportlib.import_module('plug' + 'ged')")
    loaded = load_topology("words.py")
    assert copy_code(parse_reference("words.py"), state, loaded.imported).files == ("plugged.py", "words.py")
    forget("plugged", "words")
    with pytest.raises(CodeError, match=r"plugged lies in .*/work and was not copied: .* --py-files"):
        load_topology(copied("words.py", state).reference)


def test_helpers_of_one_name_in_two_folders_are_not_confused(state: Path) -> None:
    for place in ("one", "two"):
        write(f"{place}/common_help.py", source=f"NAME = 'of-{place}'")
        write(f"{place}/words.py", extra="from common_help import NAME", source=SOURCE.replace('"ready"', "NAME"))
    for place in ("one", "two", "one"):
        original = f"{place}/words.py:ready"
        assert load_topology(original).topology.name == f"of-{place}"
        assert load_topology(copied(original, state).reference).topology.name == f"of-{place}"


def test_code_of_too_many_bytes_is_refused_and_names_the_largest_file(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.user_code.copy.MAX_CODE_BYTES", 1 << 20)
    write("shop/__init__.py", source="")
    write("shop/words.py")
    Path("shop/data.bin").write_bytes(bytes(1 << 20))
    with pytest.raises(UserError, match=r"has 1 MiB, over 1 MiB \(the largest file is shop/data\.bin\)"):
        copied("shop/words.py", state)
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("name", ["queue.py", "word-count.py", "json.py"])
def test_a_file_may_have_the_name_of_another_module_or_no_name_for_one(state: Path, name: str) -> None:
    write(name)
    assert load_topology(copied(name, state).reference).topology.name == "words"
    import json
    import queue

    assert hasattr(queue, "Queue") and hasattr(json, "dumps")


def test_two_packages_of_one_name_are_not_confused(state: Path) -> None:
    for shop, limit in (("one", 1), ("two", 2)):
        write(f"{shop}/shop/__init__.py", source="")
        write(f"{shop}/shop/helpers.py", source=f"NAME = 'shop-{limit}'")
        write(f"{shop}/shop/words.py", extra="from shop.helpers import NAME\n", source=SOURCE.replace('"ready"', "NAME"))
    for limit, shop in ((1, "one"), (2, "two")):
        assert load_topology(copied(f"{shop}/shop/words.py:ready", state).reference).topology.name == f"shop-{limit}"


def test_loading_again_builds_another_topology(state: Path) -> None:
    write("words.py")
    for attribute in ("topology", "ready"):
        reference = copied(f"words.py:{attribute}", state).reference
        assert load_topology(reference).topology is not load_topology(reference).topology


def test_a_folder_is_answered_with_the_files_in_it(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (state / "shelf").mkdir()
    (state / "shelf" / "words.py").write_text("")
    monkeypatch.chdir(state)
    for reference in ("shelf", "./shelf", str(state / "shelf")):
        with pytest.raises(NotFoundError, match=r"is a folder; name a file in it. Did you mean 'shelf/words\.py'\?"):
            load_topology(reference)


def test_what_is_not_there_brings_near_misses(state: Path) -> None:
    write("words.py")
    write("shop/__init__.py", source="")
    write("shop/words.py")
    with pytest.raises(NotFoundError, match=r"no file word\.py.* Did you mean 'words\.py'"):
        copied("word.py", state)
    with pytest.raises(NotFoundError, match=r"no module shop\.wrods.* Did you mean 'words'"):
        copied("shop.wrods", state)
    with pytest.raises(NotFoundError, match=r"has no 'topolgy'. Did you mean 'topology'"):
        load_topology(copied("words.py:topolgy", state).reference)
    write("shop/more.py", source="from topo import TopologyBuilder\n\ndef make():\n    pass")
    with pytest.raises(NotFoundError, match=r"has no 'topology'. Did you mean 'make'\?"):
        load_topology("shop/more.py")
    write("shop/none.py", source="from topo import TopologyBuilder\n\nbuilder = TopologyBuilder('words')")
    fix = r"has no 'topology'; define topology\(\) to return builder\.build\(\), or give another name: none\.py:NAME\."
    with pytest.raises(NotFoundError, match=fix):
        load_topology("shop/none.py")


def test_a_module_in_a_folder_of_sources_is_suggested_as_its_file(state: Path) -> None:
    write("src/shop/words.py")
    with pytest.raises(NotFoundError, match=r"no module shop\.words\. Did you mean 'src/shop/words\.py'\?"):
        copied("shop.words", state)
    with pytest.raises(NotFoundError, match=r"no module threading_xylem\.$"):
        copied("threading_xylem", state)


def test_a_module_without_a_topology_is_named_with_its_place(state: Path) -> None:
    """The user has a queue.py, and calls its module in another folder: it is the standard library's."""
    with pytest.raises(NotFoundError, match=rf"^{re.escape(queue.__file__)} has no 'topology'"):
        load_topology("queue")
    write("shop/__init__.py", source="")
    with pytest.raises(NotFoundError, match=r"shop/__init__\.py has no 'topology'; .*or give another name: shop:NAME\."):
        load_topology("shop")


@pytest.mark.parametrize("file", ["shop/words.txt", "words.txt"])
def test_a_file_that_is_no_python_is_refused_by_its_name(file: str, state: Path) -> None:
    write(file, source="a")
    with pytest.raises(NotFoundError, match=rf"{re.escape(file)} is not a Python file: its name has to end in \.py"):
        load_topology(file)


def test_parameters_are_checked_against_the_function(state: Path) -> None:
    write("words.py")
    reference = copied("words.py", state).reference
    with pytest.raises(
        NotFoundError, match=r"topology\(\) of words.py has no parameter 'cuont': it takes count, name. Did you mean 'count'"
    ):
        load_topology(reference, {"cuont": "1"})
    with pytest.raises(UserError, match="parameter count is int, not 'many'"):
        load_topology(reference, {"count": "many"})
    with pytest.raises(UserError, match=r"ready of words.py is no function"):
        load_topology(copied("words.py:ready", state).reference, {"count": "1"})

    def needs(path: str, *, limit: int) -> None: ...

    with pytest.raises(UserError, match=r"needs limit: add -p limit=\.\.\."):
        bind_parameters(needs, {"path": "x"}, "topology()")


@pytest.mark.parametrize(
    ("extra", "line", "what"),
    [
        ("1 / 0", 3, "ZeroDivisionError: division by zero"),
        ("x = (", 3, "SyntaxError: '\\(' was never closed"),
        ("import missing_module", 3, "ModuleNotFoundError: No module named 'missing_module'"),
        ("import sys; sys.exit('no')", 3, "SystemExit: no"),
    ],
)
def test_what_the_users_import_raises_points_at_the_original_file_and_line(state: Path, extra: str, line: int, what: str) -> None:
    write("words.py", extra=extra)
    reference = copied("words.py", state).reference
    for _ in range(2):
        with pytest.raises(CodeError, match=f"importing words.py failed: {what}") as caught:
            load_topology(reference)
        assert (caught.value.file, caught.value.line) == (str(Path("words.py").absolute()), line)
        assert str(state) not in caught.value.traceback + str(caught.value)
        assert "importlib" not in caught.value.traceback
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.file, again.line) == (str(caught.value), caught.value.file, line)


def test_what_the_users_function_raises_points_at_its_line(state: Path) -> None:
    write("words.py", source="def topology():\n    return helper()\n\ndef helper():\n    raise KeyError('lost')\n")
    with pytest.raises(CodeError, match=r"building the topology of words.py failed: KeyError: 'lost'") as caught:
        load_topology(copied("words.py", state).reference)
    assert caught.value.line == 5
    assert "in topology" in caught.value.traceback and "in helper" in caught.value.traceback


def test_a_package_that_raises_is_named(state: Path) -> None:
    Path("shop").mkdir()
    Path("shop", "__init__.py").write_text("1 / 0\n")
    with pytest.raises(CodeError, match=r"importing shop/__init__\.py failed: ZeroDivisionError"):
        load_topology("shop")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("Tumbling(10)", "10 is not a duration here: .*, or a timedelta"),
        ("Tumbling('0s')", "tumbling windows need .*, size 0 ms"),
        ("Rows('100')", "Rows takes whole numbers of records; got '100', None"),
    ],
)
def test_a_value_that_topo_refuses_at_once_points_at_the_users_line(state: Path, wrong: str, problem: str) -> None:
    source = f"from topo.streams import *\n\ndef topology():\n    return {wrong}\n"
    write("flow.py", source=source)
    with pytest.raises(UserError, match=f"^{problem} \\(flow.py:4\\)$"):
        load_topology(copied("flow.py", state).reference)


def test_a_result_that_is_no_topology_is_refused(state: Path) -> None:
    write("words.py", extra="builder = TopologyBuilder('x')\nnumber = 5\ndef nothing(): pass")
    with pytest.raises(UserError, match=r"gave a TopologyBuilder.*call its build"):
        load_topology(copied("words.py:builder", state).reference)
    for attribute, kind in (("number", "int"), ("nothing", "NoneType")):
        with pytest.raises(UserError, match=f"gave a {kind}, not a Topology"):
            load_topology(copied(f"words.py:{attribute}", state).reference)


def test_a_function_that_returns_nothing_is_named_with_its_line_and_the_fix(state: Path) -> None:
    write("flow.py", source="from topo.streams import *\n\ndef topology():\n    flow = StreamBuilder('x')\n")
    with pytest.raises(UserError) as raised:
        load_topology(copied("flow.py", state).reference)
    assert str(raised.value) == (
        "topology() at flow.py:3 gave a NoneType, not a Topology: end it with `return flow` (the StreamBuilder), or "
        "`return builder.build()`"
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("word", ["return", "yield"])
def test_a_coroutine_function_is_refused_before_it_is_called(state: Path, word: str) -> None:
    write("flow.py", source=f"async def topology():\n    {word} None\n")
    with pytest.raises(UserError, match=r"^topology\(\) at flow.py:1 is `async def`, and topo calls it without an event loop: "):
        load_topology(copied("flow.py", state).reference)


def notebook_topology() -> Topology:
    builder = TopologyBuilder("notebook")
    builder.set_spout("numbers", IterableSpout([1, 2]))
    return builder.build()


def test_a_topology_of_a_notebook_goes_by_a_private_pickle(state: Path) -> None:
    pytest.importorskip("cloudpickle")
    copy = pickle_topology(notebook_topology(), state)
    path = Path(copy.reference)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_topology(copy.reference).topology.name == "notebook"
    assert load_topology(copy.reference).code_hash == copy.hash
    path.chmod(0o644)
    with pytest.raises(UserError, match="not private"):
        load_topology(copy.reference)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="cannot load"):
        load_topology(copy.reference)
    with pytest.raises(NotFoundError):
        load_topology(str(state / "missing.pickle"))


def test_without_cloudpickle_the_error_says_what_to_install(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    made = "a topology that an import of its file does not make .*below `if __name__ == '__main__':`.*"
    with pytest.raises(UserError, match=f"{made}pip install 'cloudpickle.*; or make it in a function of a file"):
        pickle_topology(notebook_topology(), state)


def test_files_of_a_copy_on_any_host_are_told_as_the_users_own() -> None:
    trace = 'File "/spark/agent-x/topologies/words/code/ab12/words.py", line 3, in /home/me/topologies/words/code/ab12/words.py'
    known = as_user_knows_it(trace, "/home/me/topologies/words/code/ab12", "/src")
    assert known == 'File "/src/words.py", line 3, in /src/words.py'
    joined = as_user_knows_it("/a/words/code/ab12/x.py:/b/words/code/ab12/y.py", "/home/words/code/ab12", "/src")
    assert joined == "/src/y.py"


@pytest.mark.timeout(5)
def test_a_message_with_a_long_word_is_translated_in_no_time() -> None:
    """The master does this for each error: while it takes long, workers seem silent, and are replaced."""
    word = "x" * 1_000_000
    assert as_user_knows_it(f"bad {word} in /far/words/code/ab12/words.py", "/home/words/code/ab12", "/src").endswith(
        " in /src/words.py"
    )


def test_a_file_sees_no_arguments_while_it_is_imported_and_while_it_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["topo", "run", "file.py"])
    file = Path(tmp_path, "arguments.py")
    read = "import sys\nread = lambda: '-'.join(sys.argv[1:]) or 'none'\nNAME = read()"
    source = SOURCE.format(extra=read).replace("TopologyBuilder(name)", 'TopologyBuilder(f"{NAME}-{read()}")')
    file.write_text(source)
    for reference in (str(file), f"{file}:ready", f"{file}:ready"):
        assert load_topology(reference).topology.name == "none-none"
        assert sys.argv == ["topo", "run", "file.py"]
