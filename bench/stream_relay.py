#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A relay for requests without bodies, between a client and an S3 server: stream_relay.py SERVER_PORT PORT_FILE CONTROL_FILE.

CONTROL_FILE holds "RATE LATENCY FAILURES": bytes per second that answers may take together (0: any), seconds before a request is passed on, and
the share of requests that are answered with 503. It is read again whenever it changes. Prints "REQUESTS BYTES FAILED" when it ends (SIGTERM)."""
import asyncio, os, random, signal, sys

server_port, port_file, control_file = int(sys.argv[1]), sys.argv[2], sys.argv[3]
state = {"stamp": 0, "rate": 0.0, "latency": 0.0, "failures": 0.0, "free": 0.0, "requests": 0, "bytes": 0, "failed": 0}
tasks = set()
random.seed(1)


def settings():
    stamp = os.stat(control_file).st_mtime_ns
    if stamp != state["stamp"]:
        rate, latency, failures = map(float, open(control_file).read().split())
        state.update(stamp=stamp, rate=rate, latency=latency, failures=failures)


async def pace(count):
    """Waits until `count` bytes may pass."""
    state["bytes"] += count
    if state["rate"] > 0:
        now = asyncio.get_running_loop().time()
        at = max(now, state["free"])
        state["free"] = at + count / state["rate"]
        await asyncio.sleep(state["free"] - now)


async def body(server, client, length):
    while length > 0:
        part = await server.read(min(length, 16384))
        if not part:
            raise ConnectionError
        length -= len(part)
        await pace(len(part))
        client.write(part)
        await client.drain()


async def answer(server, client, has_body):
    head = await server.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    await pace(len(head))
    client.write(head)
    if not has_body:
        return
    if fields.get(b"transfer-encoding", b"").strip() != b"chunked":
        await body(server, client, int(fields.get(b"content-length", 0)))
        return
    length = 1
    while length > 0:
        line = await server.readline()
        length = int(line, 16)
        client.write(line)
        await body(server, client, length + 2)


async def serve(client_in, client_out):
    tasks.add(asyncio.current_task())
    server_out = None
    try:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", server_port)
        while True:
            head = await client_in.readuntil(b"\r\n\r\n")
            settings()
            state["requests"] += 1
            if state["latency"] > 0:
                await asyncio.sleep(state["latency"])
            if random.random() < state["failures"]:
                state["failed"] += 1
                client_out.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
                continue
            server_out.write(head)
            await answer(server_in, client_out, not head.startswith(b"HEAD"))
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        client_out.close()
        if server_out:
            server_out.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    with open(port_file + ".new", "w") as file:
        file.write(str(server.sockets[0].getsockname()[1]))
    os.rename(port_file + ".new", port_file)
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    await end.wait()
    print(state["requests"], state["bytes"], state["failed"], flush=True)
    os._exit(0)


asyncio.run(main())
