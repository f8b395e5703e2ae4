"""The model as it is published: a logistic regression, as a JSON object with a version.

    {"version": "1", "limit": 0.9, "intercept": -9.1, "weights": {"amount": 0.8, ...},
     "trained_on": 40000, "precision": 0.97, "recall": 0.71}

`weights` has exactly the features of `card_rules.FEATURES`. Precision and recall are those of held-out data,
at the limit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from card_rules import FEATURES
from headrace.errors import PipelineError


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudModel:
    """A logistic regression, and how good it was."""

    version: str
    limit: float
    intercept: float
    weights: Mapping[str, float]
    trained_on: int
    precision: float
    recall: float

    def __post_init__(self) -> None:
        if set(self.weights) != set(FEATURES):
            raise PipelineError(
                f"the model {self.version} weighs {', '.join(sorted(self.weights))}, and the features are "
                f"{', '.join(FEATURES)}: train it again with train.py"
            )
        if not all(map(math.isfinite, (*self.weights.values(), self.intercept))) or not 0 < self.limit < 1:
            raise PipelineError(
                f"the model {self.version} has weights that are no numbers, or the limit {self.limit}, which "
                "must be between 0 and 1: train it again with train.py"
            )

    def encode(self) -> str:
        """The artefact as it is published."""
        return json.dumps({**asdict(self), "weights": dict(self.weights)}, indent=2) + "\n"


def read_model(path: Path) -> FraudModel:
    """The model that a file holds."""
    try:
        return FraudModel(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise PipelineError(f"the model {path} can't be read ({error}): train one with train.py") from error
