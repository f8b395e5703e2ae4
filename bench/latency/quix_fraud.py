"""The rules of examples/fraud by Quix Streams, whose interpreter runs this: see `--quix` of fraud.py.

    python quix_fraud.py BOOTSTRAP STATE_DIRECTORY MODEL

Transactions and profiles are concatenated and go through one stateful step, with a card's history as the
state of its key. It runs until its input is closed, or SIGTERM.
"""

import sys
import threading
from pathlib import Path
from typing import Any, Final

from quixstreams import Application  # type: ignore[import-not-found]  # it is not installed beside Headrace

from card_reference import read_model
from plain_rules import add_profile, add_transaction, new_card

POLL_S: Final = 0.005
"""With several topics Quix Streams collects for as long as this, and orders what has come by its time. The
default is a second."""


def main() -> None:
    """Judge until told to stop."""
    bootstrap, state_dir, model_file = sys.argv[1:]
    model = read_model(Path(model_file).read_text())

    def judge(value: dict[str, Any], _key: Any, sent_at: int, _headers: Any, state: Any) -> list[Any]:
        card = state.get("card") or new_card()
        add = add_profile if "since" in value else add_transaction
        alerts = add(card, value, sent_at, model)
        state.set("card", card)
        return alerts

    app = Application(
        broker_address=bootstrap,
        consumer_group="quix-fraud",
        auto_offset_reset="earliest",
        state_dir=state_dir,
        consumer_poll_timeout=POLL_S,
        producer_extra_config={"linger.ms": 0},
        loglevel="WARNING",
    )
    transactions = app.dataframe(app.topic("transactions"))
    profiles = app.dataframe(app.topic("card-profiles"))
    judged = transactions.concat(profiles).apply(judge, stateful=True, expand=True, metadata=True)
    judged.to_topic(app.topic("fraud-alerts"), key=lambda alert: alert["alert_id"])
    threading.Thread(target=stop_with_parent, args=(app,), daemon=True).start()
    print("running", flush=True)
    app.run()


def stop_with_parent(app: Any) -> None:
    """The parent holds the other end of our input, and never writes to it."""
    sys.stdin.read()
    app.stop()


if __name__ == "__main__":
    main()
