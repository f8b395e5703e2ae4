"""What `import headrace.streams as hr` offers, and what it costs."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest
from pyspark import cloudpickle

import headrace.streams as hr


def run(program: str) -> None:
    """Run it in a process that has imported nothing yet."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_function_that_uses_it_can_travel_to_the_workers() -> None:
    packed = cloudpickle.dumps({"hr": hr})  # type: ignore[no-untyped-call] # it has no types
    assert cloudpickle.loads(packed)["hr"] is hr


def test_no_module_hides_a_public_name() -> None:
    for module in pkgutil.iter_modules(hr.__path__, f"{hr.__name__}."):
        importlib.import_module(module.name)
    hidden = [name for name in hr.__all__ if isinstance(getattr(hr, name), ModuleType)]
    assert hidden == []


def test_a_module_that_is_imported_first_does_not_hide_a_public_name() -> None:
    run(
        "from headrace.streams.topic import Topic\n"
        "import headrace.streams as hr\n"
        "assert isinstance(hr.topic('orders'), Topic)\n"
        "from headrace.streams import topic, window\n"
        "assert callable(topic) and callable(window)\n"
    )


def test_every_public_function_is_documented() -> None:
    undocumented = [name for name in hr.__all__ if callable(found := getattr(hr, name)) and not found.__doc__]
    assert undocumented == []


def test_each_public_name_is_where_type_checkers_are_told_to_find_it() -> None:
    """They read the imports; the table that is used instead must say the same."""
    tree = ast.parse(inspect.getsource(hr))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    told = {alias.name: node.module for node in imports for alias in node.names}
    assert told == {name: f"{hr.__name__}.{home}" for name, home in hr._HOMES.items()}
    assert sorted(told) == sorted(hr.__all__)
    assert set(hr.__all__) <= set(dir(hr))


def test_a_name_that_is_none_is_refused() -> None:
    name = "tumbling_window"
    with pytest.raises(AttributeError, match="no attribute 'tumbling_window'"):
        getattr(hr, name)


def test_a_process_that_writes_to_a_topic_loads_nothing_of_windows_and_state() -> None:
    run(
        "import sys\n"
        "import headrace.streams.sinks.topic_task\n"
        "parts = ('windows', 'keyed', 'buckets', 'plans', 'queries', 'session')\n"
        "loaded = [part for part in parts if f'headrace.streams.{part}' in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
