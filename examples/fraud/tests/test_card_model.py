"""The model: how it is published, and how it is trained."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import train
from card_model import FraudModel, read_model
from card_rules import FEATURES
from card_world import Arrivals, World
from headrace.errors import PipelineError

MODEL = FraudModel(
    version="1",
    limit=0.9,
    intercept=-1.5,
    weights=dict.fromkeys(FEATURES, 0.25),
    trained_on=10,
    precision=1.0,
    recall=0.5,
)
PUBLISHED = Path(train.__file__).with_name("model.json")


def test_a_model_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(MODEL.encode())

    assert read_model(path) == MODEL


def test_the_published_model_was_good_on_cards_that_it_had_not_seen() -> None:
    model = read_model(PUBLISHED)

    assert model.trained_on > 10_000
    assert model.precision > 0.9
    assert model.recall > 0.5


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"version": "1"})])
def test_a_file_that_is_no_model_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)

    with pytest.raises(PipelineError, match=r"can't be read .*: train one with train.py"):
        read_model(path)


def test_a_model_of_other_features_is_refused() -> None:
    with pytest.raises(PipelineError, match="weighs age, and the features are amount"):
        replace(MODEL, weights={"age": 1.0})


@pytest.mark.parametrize("limit", [0.0, 1.0])
def test_a_limit_that_no_score_or_every_score_is_above_is_refused(limit: float) -> None:
    with pytest.raises(PipelineError, match="must be between 0 and 1"):
        replace(MODEL, limit=limit)


@pytest.mark.spark
def test_a_model_that_is_trained_on_labelled_history_finds_thieves(headrace_spark: SparkSession) -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    world = World(seed=2, start=start, rate=100, theft_pause_s=0.5, card_count=2_000)
    arrivals = list(islice(Arrivals(world), 3_000))
    profiles = [profile.encode() for one in arrivals for profile in one.profiles]
    labels = [
        json.dumps({"tx_id": one.transaction.tx_id}).encode()
        for one in arrivals
        if one.is_fraud and one.transaction is not None
    ]

    model = train.train(train.labelled(headrace_spark, [one.value for one in arrivals], profiles, labels))

    assert model.weights["risky"] > 0
    assert model.precision > 0.8
    assert model.recall > 0.3
    assert 1_800 < model.trained_on < 3_000
