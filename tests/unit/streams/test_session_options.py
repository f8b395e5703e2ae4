"""What the session is started with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.streams.session import Jars, session_options

JARS = Jars(connector=[Path("/jars/a.jar"), Path("/jars/b.jar")], checkpoint=Path("/jars/c.jar"))


def options_of(config: StreamsConfig) -> dict[str, str]:
    return session_options(config, slots=12, jars=JARS, work_dir=Path("/work space"))


def test_a_local_session_has_a_slot_for_each_task_and_stays_on_this_machine() -> None:
    options = options_of(StreamsConfig())

    assert options["spark.master"] == "local[12]"
    assert options["spark.driver.host"] == options["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_cluster_is_used_as_it_is_and_must_be_able_to_reach_the_driver() -> None:
    options = options_of(StreamsConfig(master="spark://example:7077"))

    assert options["spark.master"] == "spark://example:7077"
    assert "spark.driver.host" not in options
    assert "spark.driver.bindAddress" not in options


def test_a_cluster_on_this_machine_needs_no_driver_that_others_can_reach() -> None:
    options = options_of(StreamsConfig(master="spark://127.0.0.1:7077"))

    assert options["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.extraClassPath" not in options


def test_the_connector_jars_are_handed_over() -> None:
    assert options_of(StreamsConfig())["spark.jars"] == "/jars/a.jar,/jars/b.jar"


def test_an_archive_of_classes_is_used_where_the_class_path_is_the_one_that_it_was_made_with() -> None:
    archived = replace(JARS, archive=Path("/a cache/classes.jsa"))

    def java_options(config: StreamsConfig) -> str:
        options = session_options(config, slots=1, jars=archived, work_dir=Path("/work"))
        return options["spark.driver.extraJavaOptions"]

    assert '"-XX:SharedArchiveFile=/a cache/classes.jsa"' in java_options(StreamsConfig())
    assert "SharedArchiveFile" not in java_options(StreamsConfig(master="spark://example:7077"))
    assert "SharedArchiveFile" not in options_of(StreamsConfig())["spark.driver.extraJavaOptions"]


def test_times_are_utc_whatever_the_machine_says() -> None:
    assert options_of(StreamsConfig())["spark.sql.session.timeZone"] == "UTC"


def test_what_is_needed_only_while_it_runs_goes_to_the_work_directory() -> None:
    options = options_of(StreamsConfig())

    assert options["spark.local.dir"] == "/work space"
    assert '"-Djava.io.tmpdir=/work space"' in options["spark.driver.extraJavaOptions"]


def test_sparks_log_goes_to_a_file_below_the_data_directory(tmp_path: Path) -> None:
    options = options_of(StreamsConfig(data_dir=tmp_path / "with space"))

    assert (
        f'"-Dheadrace.log.file={tmp_path}/with space/logs/spark.log"'
        in options["spark.driver.extraJavaOptions"]
    )


def test_checkpoints_are_cheap_where_all_of_spark_is_in_one_process() -> None:
    for master in (None, "local[2]"):
        options = options_of(StreamsConfig(master=master))
        assert options["spark.driver.extraClassPath"] == "/jars/c.jar"
        assert options["spark.hadoop.fs.file.impl"].endswith(".BareLocalFileSystem")


def test_a_cluster_has_the_file_system_that_all_its_machines_have() -> None:
    options = options_of(StreamsConfig(master="spark://example:7077"))

    assert not any("fs.file.impl" in key or "extraClassPath" in key for key in options)


def test_without_the_jar_for_checkpoints_spark_has_its_own_file_system() -> None:
    options = session_options(
        StreamsConfig(), slots=2, jars=Jars(connector=JARS.connector), work_dir=Path("/work")
    )

    assert not any("fs.file.impl" in key or "extraClassPath" in key for key in options)


def test_python_processes_are_talked_to_by_files_where_their_names_are_short_and_without_capitals() -> None:
    key = "spark.python.unix.domain.socket.dir"
    assert options_of(StreamsConfig())[key] == "/work space"
    # Spark tells stateful workers the name in small letters.
    for unfit in (Path("/") / ("d" * 60), Path("/Users/ada")):
        assert key not in session_options(StreamsConfig(), slots=2, jars=JARS, work_dir=unfit)
    assert key not in options_of(StreamsConfig(master="spark://example:7077"))


def test_settings_of_a_user_are_added_or_put_behind_those_that_are_there() -> None:
    given = {"spark.executor.memory": "4g", "spark.jars": "/own.jar", "spark.ui.enabled": "true"}
    options = options_of(StreamsConfig(spark_options=given))

    assert options["spark.executor.memory"] == "4g"
    assert options["spark.jars"] == "/jars/a.jar,/jars/b.jar,/own.jar"
    assert options["spark.ui.enabled"] == "true"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("spark.master", "name the cluster with --master"),
        ("spark.sql.shuffle.partitions", "use --shuffle-partitions"),
        ("spark.sql.session.timeZone", "times are read and written in UTC"),
        ("spark.sql.streaming.stateStore.providerClass", "real-time mode only"),
        ("spark.sql.streaming.stopTimeout", "Headrace sets it to 10s, and relies on it"),
        ("spark.app.name", "it is the command's"),
    ],
)
def test_a_setting_of_our_own_is_refused_with_the_reason(key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} can't be set: .*{reason}"):
        options_of(StreamsConfig(spark_options={key: "x"}))


def test_a_cluster_may_be_told_where_its_driver_is() -> None:
    config = StreamsConfig(master="spark://example:7077", spark_options={"spark.driver.host": "10.0.0.1"})
    assert options_of(config)["spark.driver.host"] == "10.0.0.1"


def test_what_is_no_setting_of_spark_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'executor\.memory' is no setting of Spark"):
        StreamsConfig(spark_options={"executor.memory": "4g"})


OPTIONS_OF_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


@pytest.fixture
def no_options_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OPTIONS_OF_JAVA:
        monkeypatch.delenv(name, raising=False)


def of_java(config: StreamsConfig, *, realtime: bool = False) -> list[str]:
    options = session_options(config, slots=1, jars=JARS, work_dir=Path("/work"), realtime=realtime)
    return options["spark.driver.extraJavaOptions"].split(" ")


@pytest.mark.usefixtures("no_options_of_java")
def test_micro_batches_collect_garbage_at_one_go_and_real_time_mode_beside_its_work() -> None:
    assert "-XX:+UseParallelGC" in of_java(StreamsConfig())
    assert not [word for word in of_java(StreamsConfig(), realtime=True) if word.startswith("-XX:+Use")]


@pytest.mark.usefixtures("no_options_of_java")
@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"])
@pytest.mark.parametrize("choice", ["-XX:+UseZGC", "-XX:-UseParallelGC", "-XX:G1HeapRegionSize=4m"])
def test_whoever_chooses_how_to_collect_garbage_has_his_way(key: str, choice: str) -> None:
    assert "-XX:+UseParallelGC" not in of_java(StreamsConfig(spark_options={key: f"-Xss4m {choice}"}))
    assert "-XX:+UseParallelGC" in of_java(StreamsConfig(spark_options={key: "-XX:MaxGCPauseMillis=9"}))


@pytest.mark.usefixtures("no_options_of_java")
@pytest.mark.parametrize("name", OPTIONS_OF_JAVA)
def test_whoever_chooses_it_in_the_environment_too(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "-XX:+UseSerialGC")

    assert "-XX:+UseParallelGC" not in of_java(StreamsConfig())
