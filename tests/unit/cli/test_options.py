"""Options that several commands share."""

from __future__ import annotations

import pytest

from headrace.cli.options import spark_options
from headrace.errors import ConfigError


def test_settings_of_spark_are_taken_apart_at_the_first_equals_sign() -> None:
    given = ["spark.executor.memory=4g", "spark.driver.extraJavaOptions=-Da=b", "spark.x="]
    assert spark_options(given) == {
        "spark.executor.memory": "4g",
        "spark.driver.extraJavaOptions": "-Da=b",
        "spark.x": "",
    }
    assert spark_options(None) == {}


@pytest.mark.parametrize("given", ["spark.executor.memory", "=4g", ""])
def test_what_is_no_setting_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(ConfigError, match=r"write KEY=VALUE, such as spark\.executor\.memory=4g"):
        spark_options([given])
