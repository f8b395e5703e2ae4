"""Whatever bytes come: an answer or a closed connection, within bounds, and the broker serves as before.

`make soak` tries more. A failure names its seed.
"""

from __future__ import annotations

from struct import pack

import pytest

from headrace.errors import ProtocolError
from headrace.testing.fuzz.checks import (
    all_versions,
    check_decoder,
    check_frame_reader,
    check_garbage,
    check_handlers,
    check_memory,
    decode,
)

VERSIONS = list(all_versions())


def test_frames_come_out_as_they_went_in_however_the_stream_is_split() -> None:
    for seed in range(1_000):
        check_frame_reader(seed)


def test_garbage_is_refused_or_read_and_nothing_else() -> None:
    for seed in range(3_000):
        check_garbage(seed)


@pytest.mark.parametrize("seed", range(20))
def test_every_decoder_reads_or_refuses_whatever_comes(seed: int) -> None:
    for api_key, version in VERSIONS:
        check_decoder(api_key, version, seed)


def test_decoding_takes_memory_in_proportion_to_what_came() -> None:
    for api_key, version in VERSIONS:
        check_memory(api_key, version, seed=0)


@pytest.mark.parametrize("seed", range(20))
def test_every_handler_answers_odd_requests_or_closes_their_connection(seed: int) -> None:
    check_handlers(seed, rounds=1)


def test_a_decoder_that_raised_anything_else_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(frame: bytes) -> object:
        if frame.endswith(b"\xff\xff"):
            raise IndexError
        return decode(frame)

    def check_all() -> None:
        for seed in range(20):
            for api_key, version in VERSIONS:
                check_decoder(api_key, version, seed)

    monkeypatch.setattr("headrace.testing.fuzz.checks.decode", planted)
    with pytest.raises(IndexError):
        check_all()


def test_a_frame_that_is_no_request_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode(pack(">hhih", 0, 9, 1, 1_000))
