"""What a pipeline is before Spark comes into it: a function, a name and topics."""

from __future__ import annotations

from typing import Any

import pytest

import headrace.streams as hr
from headrace.errors import PipelineError

transactions = hr.topic("transactions", schema="card_id string")
not_a_topic = "transactions"
ALERTS = hr.topic("alerts")


def test_a_pipeline_is_called_like_the_function_it_is() -> None:
    @hr.pipeline(writes=ALERTS)
    def doubled(transactions: Any) -> Any:
        return transactions * 2

    results: list[object] = [doubled(21), doubled(transactions=21)]
    assert results == [42, 42]


def test_a_pipeline_is_named_after_its_function() -> None:
    @hr.pipeline(writes=ALERTS)
    def card_minutes(transactions: Any) -> Any: ...

    assert card_minutes.name == "card_minutes"


def test_a_pipeline_can_have_another_name() -> None:
    @hr.pipeline(writes=ALERTS, name="card-minutes.v2")
    def card_minutes(transactions: Any) -> Any: ...

    assert card_minutes.name == "card-minutes.v2"


@pytest.mark.parametrize("name", ["", "..", "../escape", "a b", "a/b"])
def test_a_name_that_can_not_be_a_directory_is_refused(name: str) -> None:
    def function(transactions: Any) -> Any: ...

    with pytest.raises(PipelineError, match="can't name a pipeline"):
        hr.pipeline(writes=ALERTS, name=name)(function)


def test_parameters_are_topics_of_the_module_by_name() -> None:
    @hr.pipeline(writes=ALERTS)
    def reader(transactions: Any) -> Any: ...

    assert reader.sources() == {"transactions": transactions}


def test_topics_are_looked_up_when_the_pipeline_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    @hr.pipeline(writes=ALERTS)
    def reader(defined_later: Any) -> Any: ...

    later = hr.topic("later", schema="x int")
    monkeypatch.setitem(globals(), "defined_later", later)

    assert reader.sources() == {"defined_later": later}


def test_reads_names_the_topic_of_a_parameter() -> None:
    other = hr.topic("other", schema="x int")

    @hr.pipeline(writes=ALERTS, reads={"rows": other})
    def reader(rows: Any, transactions: Any) -> Any: ...

    assert reader.sources() == {"rows": other, "transactions": transactions}


def test_a_parameter_that_names_no_topic_is_refused_with_the_topics_there_are() -> None:
    @hr.pipeline(writes=ALERTS)
    def reader(transaction: Any) -> Any: ...

    with pytest.raises(
        PipelineError, match=r"'transaction' names no topic.*topics here: ALERTS, transactions"
    ):
        reader.sources()


def test_a_parameter_that_names_something_else_is_refused() -> None:
    @hr.pipeline(writes=ALERTS)
    def reader(not_a_topic: Any) -> Any: ...

    with pytest.raises(PipelineError, match="names a str, not a topic"):
        reader.sources()


def test_reads_must_name_parameters() -> None:
    def reader(transactions: Any) -> Any: ...

    with pytest.raises(PipelineError, match="reads has 'rows'; its parameters are transactions"):
        hr.pipeline(writes=ALERTS, reads={"rows": transactions})(reader)


def test_a_pipeline_that_reads_nothing_is_refused() -> None:
    def nothing() -> Any: ...

    with pytest.raises(PipelineError, match="has no parameter"):
        hr.pipeline(writes=ALERTS)(nothing)


def test_each_topic_must_have_a_parameter_of_its_own() -> None:
    def anything(*topics: Any) -> Any: ...

    with pytest.raises(PipelineError, match=r"takes \*topics"):
        hr.pipeline(writes=ALERTS)(anything)


def test_writes_must_be_a_topic() -> None:
    with pytest.raises(PipelineError, match=r'writes is \'alerts\': write hr.topic\("name"'):
        hr.pipeline(writes="alerts")  # type: ignore[arg-type] # the mistake that is being tested


def test_what_is_no_dataframe_is_refused() -> None:
    @hr.pipeline(writes=ALERTS)
    def forgetful(transactions: Any) -> Any: ...

    with pytest.raises(PipelineError, match="forgetful returned NoneType: it must return a DataFrame"):
        forgetful.build({"transactions": None})  # type: ignore[dict-item] # nothing looks at it


def test_an_error_in_the_function_is_told_in_one_line_with_its_place() -> None:
    @hr.pipeline(writes=ALERTS)
    def careless(transactions: Any) -> Any:
        return {"a": transactions}["b"]

    line = careless.function.__code__.co_firstlineno + 2
    with pytest.raises(PipelineError) as told:
        careless.build({"transactions": None})  # type: ignore[dict-item] # nothing looks at it
    assert str(told.value) == f"pipeline careless failed at {__file__}:{line}: KeyError: 'b'"
    assert isinstance(told.value.__cause__, KeyError)


def test_an_error_that_says_what_is_wrong_with_the_pipeline_is_left_as_it_is() -> None:
    @hr.pipeline(writes=ALERTS)
    def refused(transactions: Any) -> Any:
        raise PipelineError("no window of that size")

    with pytest.raises(PipelineError, match=r"^no window of that size$"):
        refused.build({"transactions": None})  # type: ignore[dict-item] # nothing looks at it


def test_a_result_goes_to_one_topic() -> None:
    with pytest.raises(PipelineError, match="a, b are several topics: a row goes to one"):
        hr.pipeline(writes=hr.topic(["a", "b"]))


@pytest.mark.parametrize("patience", ["0 seconds", "6 seconds", "900 microseconds"])
def test_a_patience_that_is_none_or_too_long_is_refused(patience: str) -> None:
    with pytest.raises(PipelineError, match="patience is"):
        hr.pipeline(writes=hr.topic("out"), patience=patience)


def test_a_pipeline_is_prompt_unless_it_says_otherwise() -> None:
    def copy(orders: Any) -> Any:
        return orders

    assert hr.pipeline(writes=hr.topic("out"))(copy).patience_ms == 0
    assert hr.pipeline(writes=hr.topic("out"), patience="2 seconds")(copy).patience_ms == 2_000
