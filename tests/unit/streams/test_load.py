"""Pipelines out of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import PipelineError, SqlError
from headrace.streams.code import fingerprint
from headrace.streams.load import load_pipelines, load_topics, split_target

TWO_PIPELINES = """
import headrace.streams as hr

rows = hr.topic("rows", schema="x int")

@hr.pipeline(writes=hr.topic("a"))
def first(rows): ...

@hr.pipeline(writes=hr.topic("b"))
def second(rows): ...
"""


@pytest.fixture(autouse=True)
def _imports_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        del sys.modules[name]


def write(directory: Path, text: str) -> Path:
    path = directory / "pipelines.py"
    path.write_text(text)
    return path


def test_a_file_gives_all_its_pipelines_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_PIPELINES)

    assert [pipeline.name for pipeline in load_pipelines(str(path))] == ["first", "second"]


def test_one_pipeline_of_a_file_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_PIPELINES)

    assert [pipeline.name for pipeline in load_pipelines(f"{path}:second")] == ["second"]


def test_a_pipeline_with_two_names_in_the_file_is_one(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_PIPELINES + "\nalias = first\n")

    assert len(load_pipelines(str(path))) == 2


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text('NAME = "from-next-door"')
    text = TWO_PIPELINES.replace("import headrace", "import neighbour\nimport headrace")
    path = write(tmp_path, text.replace('hr.topic("a")', "hr.topic(neighbour.NAME)"))

    assert load_pipelines(str(path))[0].writes.name == "from-next-door"


def test_the_pipelines_topics_are_found_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_PIPELINES)

    assert load_pipelines(str(path))[0].sources()["rows"].schema == "x int"


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_PIPELINES)

    with pytest.raises(PipelineError, match="has no pipeline 'third': it has first, second"):
        load_pipelines(f"{path}:third")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n", "has no pipeline: mark a function"),
        ("x = 1\ny = undefined\n", r"pipelines\.py, line 2: NameError: name 'undefined' is not defined"),
        ("x = 1\n\ndef broken(:\n", r"pipelines\.py, line 3: SyntaxError: invalid syntax$"),
        ("import no_such_module\n", r"line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        (
            'import headrace.streams as hr\n\nhr.topic("no spaces")\n',
            r"line 3: 'no spaces' is not a topic name",
        ),
    ],
)
def test_an_error_in_the_file_is_told_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path, text)

    with pytest.raises(PipelineError, match=complaint):
        load_pipelines(str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no file"):
        load_pipelines(str(tmp_path / "missing.py"))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")

    with pytest.raises(PipelineError, match=r"must end in \.py"):
        load_pipelines(str(tmp_path / "notes.txt"))


@pytest.mark.parametrize("target", ["file.py:", ":name"])
def test_half_a_target_is_refused(target: str) -> None:
    with pytest.raises(PipelineError, match="write FILE or FILE:PIPELINE"):
        split_target(target)


SQL = """
CREATE TABLE orders (id string, city string);
CREATE VIEW copies WITH (key = 'id') AS SELECT id FROM orders;
CREATE VIEW by_city AS SELECT city, count(*) AS n FROM orders GROUP BY city;
"""


def test_the_views_of_a_file_of_sql_are_pipelines(tmp_path: Path) -> None:
    path = tmp_path / "views.sql"
    path.write_text(SQL)
    found = {pipeline.name: pipeline.outputs[0].key for pipeline in load_pipelines(str(path))}
    assert found == {"copies": ("id",), "by_city": ("_key",)}
    (one,) = load_pipelines(f"{path}:by_city")
    assert one.name == "by_city"


def test_a_directory_has_the_views_of_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(SQL)
    (tmp_path / "b.sql").write_text("CREATE TABLE t (id string); CREATE VIEW others AS SELECT id FROM t")
    assert [pipeline.name for pipeline in load_pipelines(str(tmp_path))] == ["copies", "by_city", "others"]


def test_a_changed_query_is_other_code(tmp_path: Path) -> None:
    def code(sql: str) -> str | None:
        (tmp_path / "v.sql").write_text(sql)
        return fingerprint(load_pipelines(f"{tmp_path / 'v.sql'}:copies")[0].function)

    assert code(SQL) == code(SQL.replace("SELECT id FROM", "SELECT  id\nFROM"))
    assert code(SQL) != code(SQL.replace("SELECT id FROM orders", "SELECT id, city FROM orders"))


def test_a_file_of_sql_without_views_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.sql").write_text("CREATE TABLE orders (id string)")
    with pytest.raises(PipelineError, match="has no pipeline: write CREATE VIEW"):
        load_pipelines(str(tmp_path / "t.sql"))


def test_a_view_without_its_tables_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.sql").write_text("CREATE VIEW v AS SELECT id FROM orders")
    with pytest.raises(SqlError, match="view v reads no table that is described with it"):
        load_pipelines(str(tmp_path / "v.sql"))


def test_the_topics_of_a_file_are_those_that_it_describes(tmp_path: Path) -> None:
    (tmp_path / "views.sql").write_text(SQL)
    assert list(load_topics(tmp_path / "views.sql")) == ["orders"]
    (tmp_path / "pipelines.py").write_text(
        "import headrace.streams as hr\n"
        "orders = hr.topic('orders', schema='id string')\n"
        "lines = hr.topic(['a', 'b'], format='text')\n"
        "@hr.pipeline(writes=hr.topic('copies', key='id'))\n"
        "def copies(orders): return orders\n"
    )
    found = load_topics(tmp_path / "pipelines.py")
    assert {name: topic.names for name, topic in found.items()} == {
        "orders": ("orders",),
        "a": ("a",),
        "b": ("b",),
    }
