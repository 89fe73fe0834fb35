#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers as the clouds' metadata services do, on loopback, for tests/cli/run/preempt.test.sh.

metadata_server.py FOLDER: writes its port into FOLDER/port and answers from the files there, read at each question:
  FOLDER/aws          body of spot/instance-action; no file: 404
  FOLDER/rebalance    body of events/recommendations/rebalance; no file: 404
  FOLDER/gcp          body of instance/preempted; no file: 404
  FOLDER/azure        body of scheduledevents; no file: 404
  FOLDER/code         this code instead of any answer
  FOLDER/delay        seconds before any answer
  FOLDER/asked        one line per question, as it came
AWS wants a token, which is good for 5 questions; the others want their headers.
"""
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

folder = sys.argv[1]
tokens = {}


def read(name):
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read()
    except FileNotFoundError:
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, body=""):
        data = body.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def answer_file(self, name):
        body = read(name)
        self.answer(404 if body is None else 200, body or "")

    def is_disturbed(self):
        with open(os.path.join(folder, "asked"), "a") as file:
            file.write(f"{self.command} {self.path}\n")
        delay, code = read("delay"), read("code")
        if delay:
            time.sleep(float(delay))
        if code:
            self.answer(int(code), "no")
        return bool(code)

    def do_PUT(self):
        if self.is_disturbed():
            return
        if self.path != "/latest/api/token" or not self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
            return self.answer(400)
        token = f"token-{len(tokens)}"
        tokens[token] = 5
        self.answer(200, token)

    def do_GET(self):
        if self.is_disturbed():
            return
        path = self.path
        if path.startswith("/latest/meta-data/"):
            token = self.headers.get("X-aws-ec2-metadata-token", "")
            if tokens.get(token, 0) <= 0:
                return self.answer(401)
            tokens[token] -= 1
            return self.answer_file("rebalance" if path.endswith("rebalance") else "aws")
        if path.startswith("/computeMetadata/"):
            if self.headers.get("Metadata-Flavor") != "Google":
                return self.answer(403)
            return self.answer(200, "NONE") if path.endswith("maintenance-event") else self.answer_file("gcp")
        if path.startswith("/metadata/"):
            if self.headers.get("Metadata") != "true":
                return self.answer(400)
            return self.answer(200, "machine-7") if "compute/name" in path else self.answer_file("azure")
        self.answer(404)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(os.path.join(folder, "port.new"), "w") as file:
    file.write(str(server.server_port))
os.rename(os.path.join(folder, "port.new"), os.path.join(folder, "port"))
server.serve_forever()
