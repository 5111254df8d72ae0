"""Frames of HTTP/2, and what an answer of them says, by hand: what no client library sends."""

import pathlib
import select
import struct
import time

import hpack


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def text(value):
    """A string of HPACK. Source: RFC 7541, 5.2."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    length, rest = b"\x7f", len(value) - 127
    while rest > 127:
        length += bytes([rest & 127 | 128])
        rest >>= 7
    return length + bytes([rest]) + value


def literal(name, value):
    return b"\0" + text(name) + text(value)


def header_frames(stream, block, flags=4):
    """HEADERS, and CONTINUATION where a frame cannot hold them."""
    parts = [block[at:at + 16384] for at in range(0, len(block), 16384)]
    first, *rest = parts
    if not rest:
        return frame(1, flags, stream, first)
    return (frame(1, flags & ~4, stream, first) + b"".join(frame(9, 0, stream, part) for part in rest[:-1])
            + frame(9, 4, stream, rest[-1]))


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")


def waiting_bytes(server_port, client_port):
    """What the client has sent and the server not read. Linux: proc(5), /proc/net/tcp."""
    waiting = 0
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        ports = int(local.split(":")[1], 16), int(remote.split(":")[1], 16)
        sent, received = (int(queue, 16) for queue in queues.split(":"))
        if ports == (client_port, server_port):
            waiting += sent
        elif ports == (server_port, client_port):
            waiting += received
    return waiting


def headers_of(method):
    return (literal(b":method", b"POST") + literal(b":scheme", b"http") + literal(b":authority", b"x")
            + literal(b":path", b"/" + method.encode()) + literal(b"content-type", b"application/grpc")
            + literal(b"te", b"trailers"))


HEADERS = headers_of("inference.GRPCInferenceService/ServerLive")


def trailers(client):
    """The headers that end the first stream of a connection which does."""
    stream, decoder = client.makefile("rb"), hpack.Decoder()
    while True:
        head = stream.read(9)
        kind, flags, payload = head[3], head[4], stream.read(int.from_bytes(head[:3], "big"))
        if kind == 1:
            found = decoder.decode(payload, raw=True)
            if flags & 1:
                return found


SILENT, CLOSED = "silent", "closed"


def outcomes(client, quiet=0.5, longest=60, last=None):
    """What becomes of each stream until the server closes, is silent for so long, or has ended the last of them: its last headers, "reset"; of
    stream 0 whether it was closed, and of "goaway" its error."""
    found, unread, decoder, end = {0: SILENT}, b"", hpack.Decoder(), time.monotonic() + longest
    ended = set()
    while last not in ended and time.monotonic() < end and select.select([client], [], [], quiet)[0]:
        try:
            chunk = client.recv(1 << 16)
        except ConnectionError:
            chunk = b""
        if not chunk:
            found[0] = CLOSED
            break
        unread += chunk
        while len(unread) >= 9 and len(unread) >= (size := 9 + int.from_bytes(unread[:3], "big")):
            kind, flags, stream, payload = unread[3], unread[4], int.from_bytes(unread[5:9], "big"), unread[9:size]
            if kind == 3 or kind < 2 and flags & 1:
                ended.add(stream)
            unread = unread[size:]
            if kind == 1:
                found[stream] = {**found.get(stream, {}), **{name.decode(): value.decode() for name, value in decoder.decode(payload, raw=True)}}
            elif kind == 3:
                found.setdefault(stream, "reset")
            elif kind == 7:
                found["goaway"] = int.from_bytes(payload[4:8], "big")
    return found
