#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A hub of models on loopback, with faults, for tests/cli/models/pull.test.sh.

hub_server.py FOLDER: writes its port into FOLDER/port and serves FOLDER/repos/ORG/NAME/*. Large files (*.safetensors) are redirected to
a second host (another port), whose requests must not carry a token. Read at each request, if they exist:
  FOLDER/faults   lines "NAME FAULT [COUNT]"; a fault happens COUNT times (default 1), then the file is served well. NAME is a file or "list".
                  cut BYTES: the connection ends after so many bytes    code N: this answer    busy: 429 with Retry-After: 1
                  size: one byte more than listed    flip: the first byte is another    norange: Range is ignored
                  circle: redirected to itself    downgrade: redirected to ftp://    hold: answered when FOLDER/go exists, at most 20 s later
                  on "list": vast: weights of 2^63 - 1 bytes, three times    unlisted: no sizes
                  on weights: endless: the answer has no end
  FOLDER/commit   the commit of the list, if not 01234567...
  FOLDER/token    requests without it get 401; with it, repositories named gated* get 403
  FOLDER/asked    one line per request: host path range token
"""
import hashlib, json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

folder, lock, used = sys.argv[1], threading.Lock(), {}
ports = []

def read(name):
    try:
        return open(os.path.join(folder, name)).read()
    except FileNotFoundError:
        return None

def fault(name):
    """The fault for this request, as a list of words; [] for none."""
    with lock:
        for line in (read("faults") or "").splitlines():
            words = line.split() or [""] * 2
            arguments = 1 if words[1] in ("cut", "code") else 0
            count = int(words[2 + arguments]) if len(words) > 2 + arguments else 1
            if words[0] == name and used.get(line, 0) < count:
                used[line] = used.get(line, 0) + 1
                return words[1:2 + arguments]
    return []

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path, token = self.path.split("?")[0], self.headers.get("Authorization", "-")
        host = "main" if self.server.server_port == ports[0] else "storage"
        with lock, open(os.path.join(folder, "asked"), "a") as f:
            f.write(f"{host} {path} {self.headers.get('Range', '-')} {token}\n")
        parts = path.strip("/").split("/")
        name = "list" if parts[0] == "api" else parts[-1]
        repository = "/".join(parts[2:4] if parts[0] == "api" else parts[0:2])
        now = [] if host == "main" and name.endswith(".safetensors") else fault(name)
        if now[:1] == ["code"]:
            return self.answer(int(now[1]), b"no")
        if now == ["busy"]:
            return self.answer(429, b"slow down", Retry_After="1")
        if now == ["circle"]:
            return self.answer(302, Location=self.path)
        if now == ["downgrade"]:
            return self.answer(302, Location="ftp://127.0.0.1/x")
        end = time.monotonic() + 20
        while now == ["hold"] and read("go") is None and time.monotonic() < end:
            time.sleep(0.02)
        wanted = read("token")
        if host == "main" and wanted and token != f"Bearer {wanted.strip()}":
            return self.answer(401, b"{}")
        if host == "main" and "gated" in repository:
            return self.answer(403, b"{}", X_Error_Message="Access to this model is restricted \x1b[31m")
        place = os.path.join(folder, "repos", repository)
        if not os.path.isdir(place):
            return self.answer(404, b"{}")
        if parts[0] == "api":
            return self.list(place, now)
        self.file(place, name, host, now)

    def list(self, place, now):
        siblings = []
        for name in sorted(os.listdir(place)):
            data = open(os.path.join(place, name), "rb").read()
            entry = {"rfilename": name, "size": len(data), "blobId": "0" * 40}
            if name.endswith((".safetensors", ".bin")):
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        if now == ["vast"]:
            siblings = [s for s in siblings if s["rfilename"] != "model.safetensors"]
            siblings += [{"rfilename": f"model-0000{i}-of-00003.safetensors", "size": 2**63 - 1} for i in (1, 2, 3)]
        if now == ["unlisted"]:
            siblings = [{"rfilename": s["rfilename"]} for s in siblings]
        commit = (read("commit") or "0123456789abcdef" * 2 + "01234567").strip()
        self.answer(200, json.dumps({"id": "x", "sha": commit, "siblings": siblings}).encode())

    def file(self, place, name, host, now):
        if name.endswith(".safetensors") and host == "main":
            return self.answer(302, Location=f"http://127.0.0.1:{ports[1]}{self.path}")
        data = open(os.path.join(place, name), "rb").read()
        if now == ["size"]:
            data += b"x"
        if now == ["flip"]:
            data = bytes([data[0] ^ 1]) + data[1:]
        if now == ["endless"]:
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(1 << 20))
            except OSError:
                self.close_connection = True
                return None
        asked, headers, code, total = self.headers.get("Range"), {}, 200, len(data)
        if asked and now != ["norange"]:
            first = int(asked.split("=")[1].split("-")[0])
            if first >= total:
                return self.answer(416)
            data, code = data[first:], 206
            headers["Content-Range"] = f"bytes {first}-{total - 1}/{total}"
        if now[:1] == ["cut"]:
            self.send_response(code)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:int(now[1])])
            self.wfile.flush()
            self.close_connection = True
            return self.connection.close()
        self.answer(code, data, **headers)

    def log_message(self, *arguments):
        pass

servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
ports[:] = [server.server_port for server in servers]
for server in servers:
    server.daemon_threads = True
threading.Thread(target=servers[1].serve_forever, daemon=True).start()
with open(os.path.join(folder, "port.new"), "w") as f:
    f.write(str(ports[0]))
os.rename(os.path.join(folder, "port.new"), os.path.join(folder, "port"))
servers[0].serve_forever()
