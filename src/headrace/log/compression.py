"""The codecs of a record batch, as Kafka's clients write and read them.

    gzip     RFC 1952
    snappy   raw, or in blocks behind the header of Java's snappy library; written in such blocks
    lz4      a frame; written with independent blocks, the only ones that Kafka's Java client reads
    zstd     a frame

    blocks of Java's snappy library:  82 53 4e 41 50 50 59 00, two int32 versions, then per block an int32
                                      length and that many bytes of raw snappy

A few bytes can inflate to gigabytes, so inflating is bounded: whoever asks says how much may come out, and
gets CorruptBatch when more would. No more memory than that is ever taken.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import cramjam

from headrace.config import KIB, MIB
from headrace.errors import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    Inflate = Callable[[memoryview, int], bytes]

INFLATED_BYTES_MAX: Final = 128 * MIB
"""What the records of one batch may come to: eight times the largest batch that is taken."""

GZIP_LEVEL: Final = 6
_FIRST_GUESS_BYTES: Final = 64 * KIB
_FIRST_GUESS_RATIO: Final = 4
_GROWTH: Final = 4
_TOO_SMALL: Final = "failed to write whole buffer"
"""What cramjam says when the output does not fit; a test holds every codec to it."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * KIB
_INT32: Final = struct.Struct(">i")


def deflate(codec: str, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Compress; without a level, with that which Kafka has by default."""
    if codec == "none":
        return bytes(data)
    if codec == "gzip":
        return bytes(cramjam.gzip.compress(data, GZIP_LEVEL if level in {None, -1} else level))
    if codec == "snappy":
        return _deflate_xerial(memoryview(data))
    if codec == "lz4":
        compressor = cramjam.lz4.Compressor(9 if level is None else level, False, False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    if codec == "zstd":
        return bytes(cramjam.zstd.compress(data, 3 if level is None else level))
    raise CorruptBatch(f"there is no codec {codec}")


def inflate(codec: str, data: bytes | memoryview, *, size_bytes_max: int = INFLATED_BYTES_MAX) -> bytes:
    """Decompress; CorruptBatch when the data is damaged or would come to more than the maximum."""
    view = memoryview(data)
    if codec == "none":
        return bytes(view)
    if codec not in _INFLATE:
        raise CorruptBatch(f"there is no codec {codec}")
    try:
        return _INFLATE[codec](view, size_bytes_max)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"records compressed with {codec} can't be read: {error}") from error


def _inflate_guessing(decompress_into: Callable[[memoryview, bytearray], int]) -> Inflate:
    """Decompress into a buffer that is made larger, up to the maximum, until all fits."""

    def inflate_(data: memoryview, size_bytes_max: int) -> bytes:
        size_bytes = min(max(len(data) * _FIRST_GUESS_RATIO, _FIRST_GUESS_BYTES), size_bytes_max)
        while True:
            buffer = bytearray(size_bytes)
            try:
                count = decompress_into(data, buffer)
            except cramjam.DecompressionError as error:
                if _TOO_SMALL not in str(error):
                    raise
                if size_bytes >= size_bytes_max:
                    raise _too_large(size_bytes_max) from error
                size_bytes = min(size_bytes * _GROWTH, size_bytes_max)
            else:
                return bytes(memoryview(buffer)[:count])

    return inflate_


def _inflate_snappy(data: memoryview, size_bytes_max: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _inflate_raw_snappy(data, size_bytes_max)
    parts = []
    inflated_bytes = 0
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + _INT32.size > len(data):
            raise CorruptBatch("the length of a snappy block is cut short")
        (length,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 < length <= len(data) - position:
            raise CorruptBatch(f"a snappy block says that it has {length} bytes")
        part = _inflate_raw_snappy(data[position : position + length], size_bytes_max, inflated_bytes)
        inflated_bytes += len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _inflate_raw_snappy(data: memoryview, size_bytes_max: int, inflated_bytes: int = 0) -> bytes:
    if inflated_bytes + cramjam.snappy.decompress_raw_len(data) > size_bytes_max:
        raise _too_large(size_bytes_max)
    return bytes(cramjam.snappy.decompress_raw(data))


def _deflate_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _too_large(size_bytes_max: int) -> CorruptBatch:
    return CorruptBatch(
        f"the records of a batch come to more than {size_bytes_max} bytes once they are decompressed"
    )


_INFLATE: Final[dict[str, Inflate]] = {
    "gzip": _inflate_guessing(cramjam.gzip.decompress_into),
    "snappy": _inflate_snappy,
    "lz4": _inflate_guessing(cramjam.lz4.decompress_into),
    "zstd": _inflate_guessing(cramjam.zstd.decompress_into),
}
