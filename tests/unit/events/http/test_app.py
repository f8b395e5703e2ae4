"""Commands in, queries out: every answer of the HTTP application, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import httpx
import pytest

from headrace.errors import ConfigError, StoreUnavailable, UnreadableEvents
from headrace.events import Decider, EventStore, MemoryJournal, Recorded, Refused, decider
from headrace.events.http import Settings, create_app, loopback_hosts, query
from headrace.events.projections import MemoryPlace, MemoryWork, Poison, ReadModels, projection
from headrace.testing.waiting import eventually

HOST = "127.0.0.1:8000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """Put money in."""

    cents: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposited:
    cents: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    cents: int = 0


@decider("account")
class Account:
    initial = Balance()

    @staticmethod
    def decide(state: Balance, command: Deposit | Withdraw) -> list[Deposited | Withdrawn]:
        if isinstance(command, Deposit):
            return [Deposited(cents=command.cents, note=command.note)]
        if command.cents > state.cents:
            raise Refused(f"insufficient funds: the balance is {state.cents}")
        return [Withdrawn(cents=command.cents)]

    @staticmethod
    def evolve(state: Balance, event: Deposited | Withdrawn) -> Balance:
        sign = 1 if isinstance(event, Deposited) else -1
        return Balance(cents=state.cents + sign * event.cents)


@projection("balances", types=(Deposited, Withdrawn))
def balances(work: MemoryWork, event: Recorded) -> None:
    rows = work.tables["balances"]
    sign = 1 if isinstance(event.data, Deposited) else -1
    rows[event.stream] = rows.get(event.stream, 0) + sign * event.data.cents


@dataclass(frozen=True, slots=True, kw_only=True)
class ByAccount:
    account: str
    least: int = 0


class Bank:
    """A store, its read model, and the application over both."""

    def __init__(self) -> None:
        self.store = EventStore(MemoryJournal(), deciders=[cast("Decider", Account)])
        self.place = MemoryPlace()
        self.models = ReadModels(self.store, self.place, [balances])

        @query("balance", projection="balances")
        def balance(asked: ByAccount) -> Balance | None:
            cents = self.place.tables("balances").get("balances", {}).get(asked.account)
            return None if cents is None or cents < asked.least else Balance(cents=cents)

        settings = Settings(hosts=loopback_hosts(8000), body_bytes_max=1000, wait_s=0)
        self.app = create_app(
            self.store,
            settings,
            read_models=self.models,
            queries=[balance],
            actor_of=lambda request: request.headers.get("x-user"),
        )

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())

    def post(self, command: str, body: Any, id_: str = "1", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", f"/commands/account/{id_}/{command}", json=body, headers=named)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.ask(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )


@pytest.fixture
def bank() -> Bank:
    return Bank()


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = response.json()
    assert told["status"] == status
    return told


def test_a_command_is_executed_and_its_state_read_back_with_its_version(bank: Bank) -> None:
    made = bank.post("Deposit", {"cents": 50, "note": "hello"}, X_User="eve")
    assert made.status_code == 200
    assert made.headers["etag"] == '"1"'
    assert made.json() == {
        "stream": "account-1",
        "version": 1,
        "position": 1,
        "events": [{"type": "Deposited", "data": {"cents": 50, "note": "hello"}}],
        "is_repeat": False,
    }
    read = bank.get("/streams/account-1")
    assert (read.status_code, read.headers["etag"]) == (200, '"1"')
    assert read.json() == {"stream": "account-1", "version": 1, "type": "Balance", "state": {"cents": 50}}
    (event,) = bank.get("/streams/account-1/events").json()["events"]
    assert (event["type"], event["actor"], event["data"]) == (
        "Deposited",
        "eve",
        {"cents": 50, "note": "hello"},
    )


def test_a_command_with_a_known_key_is_not_executed_again(bank: Bank) -> None:
    first = bank.post("Deposit", {"cents": 50}, Idempotency_Key="k1", If_None_Match="*")
    again = bank.post("Deposit", {"cents": 50}, Idempotency_Key="k1", If_None_Match="*")
    assert again.json() == {**first.json(), "is_repeat": True}
    assert bank.store.load("account-1").state == Balance(cents=50)
    told = problem(bank.post("Deposit", {"cents": 51}, Idempotency_Key="k1"), 422)
    assert "another command" in told["detail"]
    assert (
        problem(bank.post("Deposit", {"cents": 1}, Idempotency_Key="k" * 201), 400)["field"]
        == "Idempotency-Key"
    )


def test_no_key_of_a_client_uses_up_the_command_id_of_a_process(bank: Bank) -> None:
    bank.post("Deposit", {"cents": 50}, Idempotency_Key="k1")
    bank.store.execute("account-1", Deposit(cents=7), command_id="k1")
    assert bank.store.load("account-1").state == Balance(cents=57)


def test_a_command_at_another_version_is_refused_with_what_is_newer(bank: Bank) -> None:
    bank.post("Deposit", {"cents": 50})
    assert bank.post("Deposit", {"cents": 5}, If_Match='"1"').status_code == 200
    late = bank.post("Withdraw", {"cents": 5}, If_Match='"1"')
    told = problem(late, 412)
    assert late.headers["etag"] == '"2"'
    assert [event["version"] for event in told["newer"]] == [2]
    problem(bank.post("Deposit", {"cents": 5}, If_None_Match="*"), 412)
    assert bank.store.load("account-1").version == 2
    for wrong in ("1", 'W/"1"', '"1", "2"', "*", '"x"'):
        assert problem(bank.post("Deposit", {"cents": 5}, If_Match=wrong), 400)["field"] == "If-Match"


def test_a_refusal_says_why_and_changes_nothing(bank: Bank) -> None:
    bank.post("Deposit", {"cents": 50})
    told = problem(bank.post("Withdraw", {"cents": 51}), 409)
    assert (told["title"], told["detail"]) == ("Refused", "insufficient funds: the balance is 50")
    assert bank.store.load("account-1").version == 1


@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
        (b'{"cents": "5"}', "cents", "Expected `int`, got `str` (cents)"),
        (b'{"note": "x"}', "cents", "missing required field `cents`"),
        (b'{"cents": 5, "nte": "x"}', "nte", "Deposit has no field 'nte'; it has cents, note"),
        (b"[1]", None, "Expected `object`, got `array`"),
        (b'{"cents": 5', None, "the body is no JSON that can be read"),
        (b"\xff", None, "the body is no JSON that can be read"),
        (b"[" * 900, None, "Expected `object`"),
        (b'{"cents": 5, "note": ' + b"[" * 900, "note", "Expected `str`"),
        (b"", "cents", "missing required field `cents`"),
    ],
)
def test_a_body_that_does_not_fit_is_answered_with_the_field(
    bank: Bank, body: bytes, field: str | None, told: str
) -> None:
    response = bank.ask(
        "POST", "/commands/account/1/Deposit", content=body, headers={"content-type": "application/json"}
    )
    answer = problem(response, 400)
    assert answer.get("field") == field
    assert told in answer["detail"]
    assert bank.store.journal.head() == 0


def test_a_body_that_is_too_large_or_not_json_is_refused(bank: Bank) -> None:
    problem(bank.post("Deposit", {"cents": 5, "note": "x" * 1000}), 413)
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = bank.ask(
            "POST", "/commands/account/1/Deposit", content=b'{"cents": 5}', headers={"content-type": kind}
        )
        problem(response, 415)
    assert bank.store.journal.head() == 0


def test_what_is_not_there_is_404_and_says_what_is(bank: Bank) -> None:
    assert "there are Deposit, Withdraw" in problem(bank.post("Steal", {}), 404)["detail"]
    assert "there are none" in problem(bank.ask("POST", "/commands/shop/1/Buy", json={}), 404)["detail"]
    problem(bank.get("/streams/account-9"), 404)
    problem(bank.get("/streams/account-9/events"), 404)
    problem(bank.get("/elsewhere"), 404)
    problem(bank.get("/commands/account/1/Deposit"), 405)
    problem(bank.get("/streams/shop-1"), 400)
    problem(bank.get("/queries/elsewhere"), 404)


def test_a_state_that_is_known_is_not_sent_again(bank: Bank) -> None:
    bank.post("Deposit", {"cents": 50})
    for known in ('"1"', 'W/"1"', '"0", "1"', "*"):
        response = bank.get("/streams/account-1", If_None_Match=known)
        assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", '"1"')
    assert bank.get("/streams/account-1", If_None_Match='"0"').status_code == 200


def test_the_past_is_asked_for_by_time_version_or_position(bank: Bank) -> None:
    bank.post("Deposit", {"cents": 50})
    bank.post("Deposit", {"cents": 7})
    bank.post("Deposit", {"cents": 1}, id_="2")

    def cents(parameters: str) -> int:
        return int(bank.get(f"/streams/account-1?{parameters}").json()["state"]["cents"])

    assert cents("version=1") == 50
    assert cents("position=1") == 50
    assert cents("position=3") == 57
    now = datetime.now(UTC)
    assert cents(f"as_of={(now + timedelta(days=1)).strftime('%Y-%m-%dT%H:%M:%SZ')}") == 57
    problem(bank.get("/streams/account-1?as_of=2020-03-01T00:00:00Z"), 404)
    assert problem(bank.get("/streams/account-1?as_of=yesterday"), 400)["field"] == "as_of"
    assert "without a time zone" in problem(bank.get("/streams/account-1?as_of=2026-03-01"), 400)["detail"]
    assert problem(bank.get("/streams/account-1?version=1&position=2"), 400)["field"] == "position"
    assert problem(bank.get("/streams/account-1?version=-1"), 400)["field"] == "version"


def test_events_come_in_pages(bank: Bank) -> None:
    for number in range(5):
        bank.post("Deposit", {"cents": number})
    first = bank.get("/streams/account-1/events?limit=3").json()
    assert ([event["version"] for event in first["events"]], first["next"]) == ([1, 2, 3], 3)
    second = bank.get(f"/streams/account-1/events?limit=3&after={first['next']}").json()
    assert [event["version"] for event in second["events"]] == [4, 5]
    assert bank.get("/streams/account-1/events?after=5").json()["events"] == []
    for wrong in ("limit=0", "limit=1001", "limit=x", "after=-1", "limit=٣"):
        problem(bank.get(f"/streams/account-1/events?{wrong}"), 400)


def test_a_query_reads_what_a_command_did_once_its_projection_has_seen_it(bank: Bank) -> None:
    position = bank.post("Deposit", {"cents": 50}).json()["position"]
    late = bank.get(f"/queries/balance?account=account-1&position={position}")
    assert "is at position 0, and did not come to 1" in problem(late, 503)["detail"]
    assert late.headers["retry-after"] == "1"
    assert bank.get("/projections").json()["projections"][0]["behind"] == 1
    bank.models.catch_up()
    read = bank.get(f"/queries/balance?account=account-1&position={position}&least=3")
    assert (read.status_code, read.json()) == (200, {"cents": 50})
    problem(bank.get("/queries/balance?account=account-9"), 404)
    problem(bank.get("/queries/balance?account=account-1&least=51"), 404)
    problem(bank.get("/queries/balance"), 400)
    assert problem(bank.get("/queries/balance?account=a&colour=red"), 400)["field"] == "colour"
    assert problem(bank.get("/queries/balance?account=a&position=x"), 400)["field"] == "position"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8000"},
        {"host": "127.0.0.1:9999"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
    ],
)
def test_pages_of_others_and_names_that_are_not_ours_are_refused(bank: Bank, headers: dict[str, str]) -> None:
    problem(bank.ask("POST", "/commands/account/1/Deposit", json={"cents": 5}, headers=headers), 403)
    problem(bank.ask("GET", "/openapi.json", headers=headers), 403)
    assert bank.store.journal.head() == 0


def test_every_answer_forbids_sniffing_and_no_other_origin_is_allowed(bank: Bank) -> None:
    for response in (bank.get("/openapi.json"), bank.get("/elsewhere"), bank.get("/", host="x")):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in response.headers


def test_the_description_names_every_command_state_and_query_with_its_types(bank: Bank) -> None:
    told = bank.get("/openapi.json").json()
    assert told["openapi"] == "3.1.0"
    deposit = told["paths"]["/commands/account/{id}/Deposit"]["post"]
    schema = deposit["requestBody"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/Deposit"}
    assert told["components"]["schemas"]["Deposit"]["properties"]["cents"] == {"type": "integer"}
    assert told["components"]["schemas"]["Deposit"]["required"] == ["cents"]
    assert set(deposit["responses"]) >= {"200", "400", "409", "412", "422"}
    assert set(told["paths"]) == {
        "/commands/account/{id}/Deposit",
        "/commands/account/{id}/Withdraw",
        "/streams/account-{id}",
        "/streams/account-{id}/events",
        "/queries/balance",
        "/projections",
    }
    parameters = {each["name"]: each for each in told["paths"]["/queries/balance"]["get"]["parameters"]}
    assert parameters["account"]["required"] is True
    assert parameters["least"]["schema"] == {"type": "integer", "default": 0}
    assert _references(told) <= {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}


def _references(node: object) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(_references(each) for each in node.values()))
    return set().union(*(_references(each) for each in node)) if isinstance(node, list) else set()


def test_a_store_that_does_not_answer_is_503_and_a_fault_of_ours_tells_nothing(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(error: Exception) -> Callable[..., None]:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        return fail

    monkeypatch.setattr(bank.store, "load", failing(StoreUnavailable("no answer of me@db.internal")))
    response = bank.get("/streams/account-1")
    problem(response, 503)
    assert "db.internal" not in response.text
    # The server's own log has it.
    assert "no answer of me@db.internal" in caplog.text
    for error in (RuntimeError("password=hunter2"), UnreadableEvents("hunter2 is stored")):
        monkeypatch.setattr(bank.store, "load", failing(error))
        response = bank.get("/streams/account-1")
        problem(response, 500)
        assert "hunter2" not in response.text


def test_of_what_has_stopped_a_projection_only_the_kind_is_told(bank: Bank) -> None:
    def fail(work: MemoryWork, event: Recorded) -> None:
        raise ValueError("hunter2")

    poison = Poison(attempt_count_max=1)
    models = ReadModels(bank.store, MemoryPlace(), [replace(balances, handle=fail, poison=poison)])
    bank.app = create_app(bank.store, Settings(hosts=loopback_hosts(8000)), read_models=models)
    bank.post("Deposit", {"cents": 5})
    with models.running():
        eventually(lambda: models.status()[0].stopped is not None, "the stop")
    (told,) = bank.get("/projections").json()["projections"]
    assert (told["stopped"], told["unavailable"], told["behind"]) == ("ProjectionStopped", None, 1)


def test_settings_and_queries_that_can_not_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="name the hosts"):
        Settings(hosts=frozenset())
    with pytest.raises(ConfigError, match="body_bytes_max is 0"):
        Settings(hosts=loopback_hosts(1), body_bytes_max=0)
    with pytest.raises(ConfigError, match="can't be called 'a/b'"):
        query("a/b")
    with pytest.raises(ConfigError, match="needs one argument, and hints"):
        query("a")(lambda asked: asked)

    @query("q", projection="p")
    def asking(asked: ByAccount) -> int:
        return asked.least

    with pytest.raises(ConfigError, match="query q waits for p: give read_models"):
        create_app(EventStore(MemoryJournal()), Settings(hosts=loopback_hosts(1)), queries=[asking])
