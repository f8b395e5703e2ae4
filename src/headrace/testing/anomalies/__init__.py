"""Finds in a history what a log must never do: the anomalies of Jepsen's Kafka workload, and some more.

    anomalies = find_anomalies(history.operations)
    assert not anomalies, "\\n".join(map(str, anomalies))

Everything that is reported is certain: an operation whose outcome is unknown counts as one that may have
happened or not, and whatever can be explained by either is no anomaly. What nobody has read can't be judged,
so let somebody read everything at the end, and say so with a `Drained`.
"""

from headrace.testing.anomalies.check import find_anomalies
from headrace.testing.anomalies.kinds import Anomaly, AnomalyKind

__all__ = ["Anomaly", "AnomalyKind", "find_anomalies"]
