"""Whether the alerts are right: those of card_reference.py, on the log that was written.

The reference keeps everything, what is measured the 50 newest transactions of a card. Where there are 1,000
transactions a second of 10,000 cards, a card's ten minutes have 60. So alerts of rules over ten minutes are
not compared where they say `complete: false`, and may be missing where their window has more than FEW
transactions. Those over a minute, and between two transactions, are compared without exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isclose
from pathlib import Path
from typing import Any, Final

import card_reference as reference
from alert_reader import read_values

FEW: Final = 30
"""A phone is offline for up to three minutes; some 20 transactions may be newer than the late ones."""
OVER_TEN_MINUTES: Final = ("spending", "model")
TOLD_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How the alerts compare."""

    same: int
    beyond: int
    """Not compared, because the kept history does not cover them."""
    different: list[str]

    @property
    def count(self) -> int:
        """How many were compared."""
        return self.same + len(self.different)


def expected(bootstrap: str, model: Path) -> dict[str, reference.Alert]:
    """The alerts that the log must raise."""
    return reference.alerts(
        map(reference.read_transaction, read_values(bootstrap, "transactions")),
        map(reference.read_profile, read_values(bootstrap, "card-profiles")),
        reference.read_model(model.read_text()),
    )


def compare(versions: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, reference.Alert]) -> Compared:
    """Hold the last versions of alerts against those that must be."""
    held = {alert_id: fields for alert_id, fields in versions.items() if fields["holds"]}
    same, beyond, different = 0, 0, []
    for alert_id, fields in held.items():
        if not fields["complete"] and fields["rule"] in OVER_TEN_MINUTES:
            beyond += 1
        elif alert_id in wanted and _is_same(reference.read_alert(fields), wanted[alert_id]):
            same += 1
        else:
            different.append(f"{_name(fields)} was raised and must not be, or says something else")
    for alert_id in wanted.keys() - held.keys():
        alert = wanted[alert_id]
        if alert.rule in OVER_TEN_MINUTES and alert.count > FEW:
            beyond += 1
        else:
            different.append(f"{_name(asdict(alert))} is missing")
    return Compared(same=same, beyond=beyond, different=different)


def _is_same(found: reference.Alert, wanted: reference.Alert) -> bool:
    # The last digit of what is measured may be rounded another way.
    is_close = isclose(found.value, wanted.value, rel_tol=1e-6, abs_tol=0.0011)
    return is_close and asdict(found) | {"value": 0} == asdict(wanted) | {"value": 0}


def _name(fields: Mapping[str, Any]) -> str:
    return f"{fields['rule']} of {fields['tx_id']}, card {fields['card_id']}"
