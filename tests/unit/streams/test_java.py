"""Which Java is found, and what is said when none is."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.streams.java import find_java, install_java, parse_version


def fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f"[ \"$1\" = -XshowSettings:properties ] && echo '    java.home = {home}' >&2\n"
        f"echo 'openjdk version \"{version}\" 2025-01-01' >&2\n"
    )
    executable.chmod(0o755)
    return executable


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No JAVA_HOME, and a PATH with a single empty directory on it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19 LTS', 21),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "25-ea" 2025-09-16', 25),
        ("Error: could not find libjava.so", None),
    ],
)
def test_the_feature_version_is_read_from_what_java_prints(printed: str, version: int | None) -> None:
    assert parse_version(printed) == version


def test_java_home_comes_before_path(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = bare_machine / "jdk"
    executable = fake_java(home, "21.0.2")
    on_path = fake_java(bare_machine / "other", "17.0.1")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(home))

    java = find_java()

    assert (java.executable, java.version, java.home) == (executable, 21, home)


@pytest.mark.parametrize(("release", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", None)])
def test_an_installed_java_is_known_by_its_release_without_being_started(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch, release: str, version: int | None
) -> None:
    home = bare_machine / "jdk"
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.touch()
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))

    if version is None:
        with pytest.raises(SetupError, match="is Java 8"):
            find_java()
    else:
        assert (find_java().version, find_java().home) == (version, home.resolve())


def test_a_java_home_that_is_too_old_is_passed_over(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(bare_machine / "old", "11.0.2")
    on_path = fake_java(bare_machine / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "old"))
    monkeypatch.setenv("PATH", str(on_path.parent))

    assert find_java().executable == on_path


def test_home_is_where_a_link_on_path_leads(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = fake_java(bare_machine / "jvm" / "17", "17.0.1")
    (bare_machine / "path" / "java").symlink_to(executable)

    assert find_java().home == bare_machine / "jvm" / "17"


def test_home_is_what_java_says_where_a_wrapper_on_path_starts_it(bare_machine: Path) -> None:
    executable = fake_java(bare_machine / "versions" / "my jdk", "17.0.1")
    wrapper = bare_machine / "path" / "java"
    wrapper.write_text(f'#!/bin/sh\nexec "{executable}" "$@"\n')
    wrapper.chmod(0o755)

    java = find_java()

    assert (java.executable, java.home) == (wrapper, bare_machine / "versions" / "my jdk")


@pytest.mark.usefixtures("bare_machine")
def test_without_java_one_sentence_says_what_to_install() -> None:
    with pytest.raises(SetupError, match=r"needs Java 17 or newer.*openjdk-17-jre-headless.*JAVA_HOME"):
        find_java()


def test_a_java_that_is_too_old_is_named(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = fake_java(bare_machine / "old", "11.0.2")
    monkeypatch.setenv("PATH", str(executable.parent))

    with pytest.raises(SetupError, match=f"{executable} is Java 11"):
        find_java()


def test_a_java_that_does_not_run_is_named(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = fake_java(bare_machine / "broken", "17.0.1")
    executable.write_text("#!/no/such/interpreter\n")
    monkeypatch.setenv("PATH", str(executable.parent))

    with pytest.raises(SetupError, match=f"{executable} is no working Java"):
        find_java()


@pytest.mark.usefixtures("bare_machine")
def test_java_is_not_installed_where_there_is_no_apt_get() -> None:
    with pytest.raises(SetupError, match="there is no apt-get"):
        install_java()


def test_java_is_installed_with_the_first_package_that_exists(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = fake_java(bare_machine / "jvm", "21.0.2")
    apt_get = bare_machine / "path" / "apt-get"
    apt_get.write_text(
        "#!/bin/sh\n"
        f'case "$*" in\n'
        f"  update) ;;\n"
        f"  *openjdk-21*) /bin/ln -s {java} {bare_machine}/path/java ;;\n"
        "  *) echo 'E: Unable to locate package' >&2; exit 100 ;;\n"
        "esac\n"
    )
    apt_get.chmod(0o755)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    shown: list[str] = []

    assert install_java(shown.append).version == 21
    assert shown == [
        "java: apt-get update",
        "java: apt-get install openjdk-17-jre-headless",
        "java: E: Unable to locate package",
        "java: apt-get install openjdk-21-jre-headless",
    ]


def test_java_is_not_installed_by_anyone_but_root(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt_get = bare_machine / "path" / "apt-get"
    apt_get.write_text("#!/bin/sh\n")
    apt_get.chmod(0o755)
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    with pytest.raises(SetupError, match="only root may run apt-get"):
        install_java()
