"""Codecs: what goes in comes out, damage is named, and a bomb takes no memory."""

from __future__ import annotations

import gzip
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import MIB
from headrace.errors import CorruptBatch
from headrace.log.compression import deflate, inflate

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COMPRESSING = CODECS[1:]


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.integers(1, 2000))
def test_what_was_compressed_comes_back(codec: str, part: bytes, times: int) -> None:
    data = part * times
    assert inflate(codec, deflate(codec, data)) == data


@pytest.mark.parametrize("codec", COMPRESSING)
def test_what_compresses_well_comes_back_though_its_size_can_not_be_guessed(codec: str) -> None:
    data = bytes(5 * MIB)
    assert inflate(codec, memoryview(deflate(codec, data))) == data


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_refused_with_no_more_memory_than_is_allowed(codec: str) -> None:
    bomb = deflate(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="more than 1048576 bytes once they are decompressed"):
            inflate(codec, bomb, size_bytes_max=MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSING)
def test_what_fits_exactly_is_not_too_large(codec: str) -> None:
    assert inflate(codec, deflate(codec, bytes(100_000)), size_bytes_max=100_000) == bytes(100_000)
    with pytest.raises(CorruptBatch):
        inflate(codec, deflate(codec, bytes(100_001)), size_bytes_max=100_000)


@given(st.sampled_from(COMPRESSING), st.binary(max_size=60))
def test_garbage_is_refused_or_read_but_never_breaks_anything(codec: str, garbage: bytes) -> None:
    try:
        inflate(codec, garbage)
    except CorruptBatch:
        return


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_that_is_cut_short_is_refused(codec: str) -> None:
    with pytest.raises(CorruptBatch):
        inflate(codec, deflate(codec, b"the whole of it" * 1000)[:-3])


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="there is no codec 7"):
        inflate("7", b"x")
    with pytest.raises(CorruptBatch, match="there is no codec 7"):
        deflate("7", b"x")


def test_gzip_of_others_is_read_and_ours_is_read_by_others() -> None:
    assert inflate("gzip", gzip.compress(b"abc" * 100)) == b"abc" * 100
    assert gzip.decompress(deflate("gzip", b"abc" * 100, -1)) == b"abc" * 100


def test_snappy_is_read_raw_and_in_the_blocks_of_the_java_library() -> None:
    assert inflate("snappy", bytes(cramjam.snappy.compress_raw(b"raw" * 50))) == b"raw" * 50
    blocks = deflate("snappy", b"0123456789" * 10_000)
    assert blocks.startswith(bytes.fromhex("82 53 4e 41 50 50 59 00 00000001 00000001"))
    assert inflate("snappy", blocks) == b"0123456789" * 10_000


@pytest.mark.parametrize("length", [-1, 0, 99, 2**31 - 1])
def test_a_snappy_block_that_can_not_be_as_long_as_it_says_is_refused(length: int) -> None:
    header = deflate("snappy", b"")
    with pytest.raises(CorruptBatch, match=f"a snappy block says that it has {length} bytes"):
        inflate("snappy", header + length.to_bytes(4, "big", signed=True) + b"abc")
    with pytest.raises(CorruptBatch, match="cut short"):
        inflate("snappy", header + b"\x00")


def test_lz4_blocks_are_independent_since_the_java_client_reads_no_others() -> None:
    flags = deflate("lz4", b"x" * 1000)[4]
    assert flags & 0b0010_0000


@pytest.mark.parametrize(("codec", "levels"), [("gzip", (-1, 1, 9)), ("lz4", (1, 17)), ("zstd", (-7, 22))])
def test_every_level_makes_what_can_be_read(codec: str, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert inflate(codec, deflate(codec, b"level" * 100, level)) == b"level" * 100
