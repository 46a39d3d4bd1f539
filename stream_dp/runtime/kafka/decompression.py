"""Decompression of Kafka's record batches: whole up to a limit, or piece by piece in constant memory.

A megabyte may decompress to a gigabyte of blanks, so nothing here allocates the size that the bytes claim. Snappy has
no streams; one block decompresses to at most 22 times its own size.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import lz4.frame
from aiokafka import codec as client_codec
from aiokafka.record.default_records import DefaultRecordBatch

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE_BYTES = 1 << 16
"""Size of the pieces of a stream; a block of snappy is one piece."""

_ZLIB_GZIP_BITS = 31
_SNAPPY_MAX_RATIO = 22
"""Most that snappy expands: a copy takes 3 bytes and yields at most 64."""
_XERIAL_HEADER_BYTES = 16
_INITIAL_ROOM_BYTES = 1 << 16
_ROOM_GROWTH = 8
"""lz4 and zstd may leave out the size of their content, so the buffer grows in steps."""


class DamagedError(Exception):
    """Raised when bytes do not follow their format."""


class OversizedError(Exception):
    """Raised when a decompressed payload takes more bytes than the limit."""


def decompress(codec: int, payload: memoryview, prefix: bytearray, limit: int) -> Any:
    """Return a prefix followed by the decompressed payload.

    Args:
        codec: compression type in a batch's attributes, not 0.
        payload: the compressed bytes.
        prefix: bytes to put first.
        limit: largest size of the content in bytes.

    Returns:
        A buffer.

    Raises:
        OversizedError: the content takes more than `limit` bytes.
        Exception: the payload is damaged; the type depends on the codec's library.
    """
    return _WHOLE[codec](payload, prefix, limit)


def stream(codec: int, payload: memoryview) -> Iterator[bytes]:
    """Yield the decompressed content of a payload in pieces.

    Args:
        codec: compression type in a batch's attributes, 0 for none.
        payload: the bytes as they are in the batch.

    Raises:
        DamagedError: the payload is damaged; the pieces before the damage were yielded.
    """
    try:
        yield from _STREAMS[codec](payload)
    except DamagedError:
        raise
    except Exception as error:  # each library raises its own errors, without a common base
        raise DamagedError from error


def _decompress_gzip(payload: memoryview, prefix: bytearray, limit: int) -> bytearray:
    content = prefix[:]
    end = len(prefix) + limit
    rest = bytes(payload)
    while rest:
        member = zlib.decompressobj(wbits=_ZLIB_GZIP_BITS)
        content += member.decompress(rest, end + 1 - len(content))
        if len(content) > end:
            raise OversizedError
        if not member.eof:
            raise DamagedError
        rest = member.unused_data
    return content


def _decompress_snappy(payload: memoryview, prefix: bytearray, limit: int) -> bytearray:
    blocks = list(_snappy_blocks(payload))
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > limit:
        raise OversizedError
    content = prefix[:]
    for block in blocks:
        content += _snappy_content(block)
    return content


def _decompress_into_room(
    decompress_into: Callable[[Any, Any], int],
) -> Callable[[memoryview, bytearray, int], memoryview]:
    def decompress_bounded(payload: memoryview, prefix: bytearray, limit: int) -> memoryview:
        begin = len(prefix)
        size = max(_INITIAL_ROOM_BYTES, _ROOM_GROWTH * len(payload))
        while True:
            room = bytearray(begin + min(size, limit + 1))
            try:
                taken = decompress_into(bytes(payload), memoryview(room)[begin:])
            except cramjam.DecompressionError as error:
                if "whole buffer" not in str(error):
                    raise
                if size > limit:
                    raise OversizedError from None
                size *= _ROOM_GROWTH
                continue
            if taken > limit:
                raise OversizedError
            room[:begin] = prefix
            return memoryview(room)[: begin + taken]

    return decompress_bounded


def _snappy_blocks(payload: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of a payload: Java's client frames them, other clients write a single block."""
    if not client_codec._detect_xerial_stream(payload):
        yield payload
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(payload):
        (size,) = struct.unpack_from("!i", payload, at)
        at += 4
        if not 0 < size <= len(payload) - at:
            raise DamagedError
        yield payload[at : at + size]
        at += size


def _snappy_content(block: memoryview) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > _SNAPPY_MAX_RATIO * len(block):
        raise DamagedError
    return bytes(cramjam.snappy.decompress_raw(block))


def _stream_plain(payload: memoryview) -> Iterator[bytes]:
    for at in range(0, len(payload), PIECE_BYTES):
        yield bytes(payload[at : at + PIECE_BYTES])


def _stream_gzip(payload: memoryview) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=_ZLIB_GZIP_BITS)
    for piece in _stream_plain(payload):
        rest = piece
        while rest:
            if member.eof:
                member = zlib.decompressobj(wbits=_ZLIB_GZIP_BITS)
            content = member.decompress(rest, PIECE_BYTES)
            rest = member.unused_data if member.eof else member.unconsumed_tail
            if content:
                yield content
    content = member.flush()
    if content:
        yield content
    if not member.eof:
        raise DamagedError


def _stream_snappy(payload: memoryview) -> Iterator[bytes]:
    for block in _snappy_blocks(payload):
        yield _snappy_content(block)


def _stream_frames(new_decompressor: Callable[[], Any]) -> Callable[[memoryview], Iterator[bytes]]:
    """Return a stream function for decompressors with the interface of the standard library's `lzma` and `zstd`."""

    def stream_frames(payload: memoryview) -> Iterator[bytes]:
        rest = bytes(payload)
        while rest:
            frame = new_decompressor()
            content = frame.decompress(rest, PIECE_BYTES)
            while content or not frame.eof:
                if content:
                    yield content
                elif frame.needs_input:
                    raise DamagedError
                if frame.eof:
                    break
                content = frame.decompress(b"", PIECE_BYTES)
            rest = frame.unused_data

    return stream_frames


_WHOLE: dict[int, Callable[[memoryview, bytearray, int], Any]] = {
    DefaultRecordBatch.CODEC_GZIP: _decompress_gzip,
    DefaultRecordBatch.CODEC_SNAPPY: _decompress_snappy,
    DefaultRecordBatch.CODEC_LZ4: _decompress_into_room(cramjam.lz4.decompress_into),
    DefaultRecordBatch.CODEC_ZSTD: _decompress_into_room(cramjam.zstd.decompress_into),
}
_STREAMS: dict[int, Callable[[memoryview], Iterator[bytes]]] = {
    DefaultRecordBatch.CODEC_NONE: _stream_plain,
    DefaultRecordBatch.CODEC_GZIP: _stream_gzip,
    DefaultRecordBatch.CODEC_SNAPPY: _stream_snappy,
    DefaultRecordBatch.CODEC_LZ4: _stream_frames(lz4.frame.LZ4FrameDecompressor),
    DefaultRecordBatch.CODEC_ZSTD: _stream_frames(zstd.ZstdDecompressor),
}
