# SPDX-License-Identifier: Apache-2.0
"""Asks a server of LOCKSTEP everything that the API promises. Usage: serve.py LOCKSTEP MODEL TEMPLATE"""
import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

LOCKSTEP, MODEL, TEMPLATE = sys.argv[1:4]
failures = []


def check(what, ok, seen=None):
    if not ok:
        failures.append(what)
        print("FAIL:", what, repr(seen)[:600])


class Server:
    def __init__(self, *options, model=MODEL):
        self.process = subprocess.Popen([LOCKSTEP, "serve", model, "--listen", "127.0.0.1:0", "--threads", "2", *options],
                                        stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # whatever goes wrong; nothing once it has ended
        self.line = self.process.stdout.readline()
        self.memory = self.process.stdout.readline()
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.line).group(1))

    def ask(self, path, body=None, method=None, headers=None):
        """(code, object, or the bytes of what is no JSON)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        try:
            c.request(method or ("POST" if data is not None else "GET"), path, data,
                      {"Content-Type": "application/json", **(headers or {})})
        except BrokenPipeError:
            pass  # it answered before it had read all
        r = c.getresponse()
        text = r.read()
        c.close()
        try:
            return r.status, json.loads(text)
        except ValueError:
            return r.status, text

    def complete(self, **body):
        code, answer = self.ask("/v1/completions", {"temperature": 0, **body})
        check(f"200 for {str(body)[:80]}", code == 200, answer)
        return answer

    def texts(self, **body):
        return [c["text"] for c in self.complete(**body)["choices"]]

    def stream(self, path, body):
        code, text = self.ask(path, {**body, "stream": True})
        check("a stream has code 200", code == 200, text)
        events = text.decode("utf-8").split("\n\n")
        check("a stream ends with [DONE]", events[-2:] == ["data: [DONE]", ""], events[-2:])
        return [json.loads(e[len("data: "):]) for e in events[:-2]]

    def refused(self, path, body, code, *words, **more):
        got, answer = self.ask(path, body, **more)
        error = answer.get("error") if isinstance(answer, dict) else None
        text = error.get("message") if isinstance(error, dict) else str(answer)
        check(f"{code} for {str(body)[:60]} {more}", got == code, (got, answer))
        for word in words:
            check(f"'{word}' in the error", word in text, text)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(30)


def test_answers(s):
    check("health", s.ask("/health") == (200, {"status": "ok"}))
    models = s.ask("/v1/models")[1]
    check("the model is named", [(m["id"], m["max_model_len"]) for m in models["data"]] == [("tiny", 192)], models)
    check("the memory is printed", re.match(r"3 slots of 192 tokens: \d", s.memory), s.memory)

    prompts = [f"{'abcdefgh'[i % 8]} text no. {i}" + " and more" * (i % 6) for i in range(100)]
    alone = [s.texts(prompt=p, max_tokens=8)[0] for p in prompts]
    for p, text in list(zip(prompts, alone))[::12]:
        sample = subprocess.run([LOCKSTEP, "sample", MODEL, "-p", p, "-t", "0", "-n", "8"], capture_output=True)
        check(f"as sample does: {p}", (p + text + "\n").encode() == sample.stdout, (text, sample.stdout))
    at_once = [None] * 100

    def client(k):
        for i in range(k, 100, 8):
            at_once[i] = s.texts(prompt=prompts[i], max_tokens=8)[0]

    threads = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check("eight at a time as alone", at_once == alone)
    check("as one batch", s.texts(prompt=prompts, max_tokens=8) == alone)
    ids = [list(p.encode()) for p in prompts[:5]]
    check("as ids", s.texts(prompt=ids, max_tokens=8) == alone[:5])
    check("as one list of ids", s.texts(prompt=ids[0], max_tokens=8) == alone[:1])

    drawn = s.texts(prompt="ab", max_tokens=12, n=4, seed=7, temperature=1.5)
    check("n answers differ", len(set(drawn)) > 1, drawn)
    check("a seed repeats them", drawn == s.texts(prompt="ab", max_tokens=12, n=4, seed=7, temperature=1.5))
    check("answer i has seed + i", s.texts(prompt="ab", max_tokens=12, seed=9, temperature=1.5) == drawn[2:3])
    free = s.texts(prompt=["ab"] * 4, max_tokens=24, n=2, temperature=1.5)
    check("without a seed, equal prompts of a batch differ", len(set(free)) == 8, free)
    a = s.complete(prompt="abc", max_tokens=5)
    check("usage", a["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}, a)
    check("length", a["choices"][0]["finish_reason"] == "length", a)


def test_stops_and_streams(s):
    whole = s.texts(prompt="the ", max_tokens=24)[0]
    for first, last in ((3, 7), (0, 2), (9, 10)):
        stop = whole[first:last]
        want = whole[:whole.index(stop)]
        a = s.complete(prompt="the ", max_tokens=24, stop=["nowhere at all", stop])
        check("the text ends before a stop", a["choices"][0]["text"] == want, (a, stop))
        check("stop", a["choices"][0]["finish_reason"] == "stop", a)
        events = s.stream("/v1/completions", {"prompt": "the ", "max_tokens": 24, "stop": stop, "temperature": 0})
        check("and in a stream", "".join(e["choices"][0]["text"] for e in events) == want, events)
    events = s.stream("/v1/completions", {"prompt": ["the ", "a"], "max_tokens": 9, "temperature": 1.3, "seed": 1, "n": 2,
                                          "stream_options": {"include_usage": True}})
    texts = ["", "", "", ""]
    for e in events[:-1]:
        texts[e["choices"][0]["index"]] += e["choices"][0]["text"]
    check("a stream has the same texts", texts == s.texts(prompt=["the ", "a"], max_tokens=9, temperature=1.3, seed=1, n=2))
    check("usage at the end", events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 36, events[-1])
    check("none before", all(e["usage"] is None for e in events[:-1]))


def test_scores(s):
    ids = list(b"the quick brown fox")
    a = s.complete(prompt=[ids, ids[:7]], max_tokens=1, echo=True, logprobs=2)
    for choice, length in zip(a["choices"], (len(ids), 7)):
        l = choice["logprobs"]
        check("every token is listed", {len(v) for v in l.values()} == {length + 1}, l)
        check("the first has no score", l["token_logprobs"][0] is None and l["top_logprobs"][0] is None)
        check("scores are logarithms", all(p < 0 for p in l["token_logprobs"][1:]))
        for token, p, top in list(zip(l["tokens"], l["token_logprobs"], l["top_logprobs"]))[1:]:
            check("a token is among its likeliest", top[token] == p and 2 <= len(top) <= 3, top)
        check("offsets", [choice["text"][o] for o in l["text_offset"][:7]] == l["tokens"][:7], l)
        check("the text begins with the prompt", choice["text"].startswith("the qui"), choice)
    short, long = a["choices"][1]["logprobs"], a["choices"][0]["logprobs"]
    check("scores do not depend on what follows", short["token_logprobs"][:7] == long["token_logprobs"][:7])
    check("greedy is the likeliest", max(short["top_logprobs"][7], key=short["top_logprobs"][7].get) == short["tokens"][7])
    none = s.complete(prompt=ids, max_tokens=0, echo=True, logprobs=0)["choices"][0]
    check("nothing new", none["text"] == "the quick brown fox" and len(none["logprobs"]["tokens"]) == len(ids), none)
    check("the same scores", none["logprobs"]["token_logprobs"] == long["token_logprobs"][:-1])
    check("echo without scores", s.texts(prompt="abc", max_tokens=2, echo=True)[0].startswith("abc"))


def test_chats(s):
    messages = [{"role": "user", "content": "hello"}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 9}
    code, a = s.ask("/v1/chat/completions", body)
    want = s.texts(prompt="<user>hello\n<assistant>", max_tokens=9)[0]
    check("a chat is its template's prompt", code == 200 and a["choices"][0]["message"] == {"role": "assistant", "content": want}, a)
    events = s.stream("/v1/chat/completions", body)
    check("the role comes first", events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}, events[0])
    check("and the text", "".join(e["choices"][0]["delta"].get("content", "") for e in events) == want, events)
    check("and the reason", events[-1]["choices"][0]["finish_reason"] == "length", events[-1])
    parts = [{"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]
    check("parts are joined", s.ask("/v1/chat/completions", {**body, "messages": parts})[1]["choices"] == a["choices"])
    history = [messages[0], {"role": "assistant", "content": ""}, messages[0]]
    plain = s.ask("/v1/chat/completions", {**body, "messages": history})[1]["choices"]
    history[1] = {"role": "assistant", "content": None, "tool_calls": None}
    check("null is no text", s.ask("/v1/chat/completions", {**body, "messages": history})[1]["choices"] == plain)
    code, b = s.ask("/v1/chat/completions", {**body, "logprobs": True, "top_logprobs": 3})
    content = b["choices"][0]["logprobs"]["content"]
    check("chat scores", len(content) == 9 and all(len(t["top_logprobs"]) == 3 for t in content), content)
    check("the bytes of tokens", bytes(sum((t["bytes"] for t in content), [])).decode("utf-8", "replace") == want, content)
    del body["max_tokens"]
    code, c = s.ask("/v1/chat/completions", {**body, "stop": "\n"})
    check("an answer may take the rest of the context", code == 200 and c["usage"]["total_tokens"] <= 192, c)
    tools = [{"type": "function", "function": {"name": "look"}}]
    code, d = s.ask("/v1/chat/completions", {**body, "tools": tools, "max_tokens": 4})
    check("tools go to the template", d["usage"]["prompt_tokens"] > a["usage"]["prompt_tokens"] + 20, d)
    code, e = s.ask("/v1/chat/completions", {**body, "tools": tools, "tool_choice": "none", "max_tokens": 4})
    check("unless they are not wanted", e["usage"]["prompt_tokens"] == a["usage"]["prompt_tokens"], e)


def test_refusals(s):
    completions, chats = "/v1/completions", "/v1/chat/completions"
    for body, *words in (
            (b"{", "body of the request"), (b"", "body"), (b"[]", "JSON object"), (b'{"prompt": "a", "prompt": "b"}', "prompt"),
            ({}, "prompt"), ({"prompt": ""}, "empty"), ({"prompt": []}, "empty"), ({"prompt": [[]]}, "empty"), ({"prompt": 5}, "prompt"),
            ({"prompt": ["a", 5]}, "prompt"), ({"prompt": [1, "a"]}, "element 1"), ({"prompt": [1, -4]}, "element 1"),
            ({"prompt": [3000]}, "3000", "0 to"), ({"prompt": [1 << 40]}, "not an id"), ({"prompt": "a" * 180}, "context of 192", "180"),
            ({"prompt": "a", "max_tokens": 0}, "max_tokens"), ({"prompt": "a", "max_tokens": 192}, "context"),
            ({"prompt": "a", "max_tokens": 1.5}, "whole number"), ({"prompt": "a", "n": 257}, "n must be"),
            ({"prompt": ["a"] * 200, "n": 2}, "400 answers"), ({"prompt": "a", "temperature": -1}, "temperature"),
            ({"prompt": "a", "temperature": "1"}, "temperature"), ({"prompt": "a", "top_p": 0}, "top_p"),
            ({"prompt": "a", "stop": ""}, "stop"), ({"prompt": "a", "stop": ["a"] * 17}, "16"), ({"prompt": "a", "stop": 3}, "stop"),
            ({"prompt": "a", "stream": "yes"}, "stream"), ({"prompt": "a", "stream_options": {}}, "stream: true"),
            ({"prompt": "a", "logprobs": 21}, "logprobs"), ({"prompt": "a", "logit_bias": {"5": 1}}, "logit_bias", "not supported"),
            ({"prompt": "a", "presence_penalty": 0.5}, "presence_penalty"), ({"prompt": "a", "best_of": 3}, "best_of"),
            ({"prompt": "a", "max_token": 3}, "max_token", "did you mean max_tokens"), ({"prompt": "a", "messages": []}, "messages"),
            ({"prompt": "a", "response_format": {"type": "json_object"}}, "response_format")):
        s.refused(completions, body, 400, *words)
    hi = [{"role": "user", "content": "hi"}]
    for body, *words in (
            ({}, "messages"), ({"messages": []}, "messages"), ({"messages": [5]}, "messages[0]"), ({"messages": [{"content": "a"}]}, "role"),
            ({"messages": [{"role": "user", "content": 5}]}, "content"), ({"messages": hi, "prompt": "a"}, "prompt"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
            ({"messages": hi, "tools": 5}, "tools"), ({"messages": hi, "tool_choice": "required"}, "tool_choice"),
            ({"messages": hi, "top_logprobs": 3}, "logprobs"), ({"messages": [{"role": "user", "content": "a" * 200}]}, "context")):
        s.refused(chats, body, 400, *words)
    s.refused(completions, {"prompt": "a", "model": "gpt-4"}, 404, "gpt-4", "tiny")
    s.refused("/v2", None, 404, "/v1/completions")
    s.refused(completions, None, 405, "POST")
    s.refused("/v1/models", {}, 405, "GET")
    own = {"Host": f"localhost:{s.port}"}
    s.refused(completions, {"prompt": "a"}, 403, "Host", headers={"Host": "evil.example"})
    s.refused(completions, {"prompt": "a"}, 403, "web page", headers={"Origin": "http://evil.example", **own})
    s.refused(completions, {"prompt": "a"}, 415, "Content-Type", headers={"Content-Type": "text/plain"})
    s.refused(completions, b"x" * (9 << 20), 413, "8388608")
    code, _ = s.ask(completions, {"prompt": "a", "user": "u", "frequency_penalty": 0, "logit_bias": {}, "stop": None, "max_tokens": 1},
                    headers={"Authorization": "Bearer anything", **own})
    check("what changes nothing is accepted", code == 200)
    if os.geteuid() == 0:
        other = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "curl", "-s", f"http://127.0.0.1:{s.port}/v1/models"],
                               capture_output=True, text=True)
        check("another user is refused", "only processes of the user" in other.stdout, other)
    else:
        print("skipped: only root can try to connect as another user")


def test_stop_token(s):
    """A token with a text of its own ends an answer, as "\\n" does in many models: the text is not shown."""
    whole = s.texts(prompt="the ", max_tokens=24)[0]
    want = whole[:whole.index(whole[5])]
    subprocess.run([LOCKSTEP, "export", MODEL, "-o", "stops"], check=True, stdout=subprocess.DEVNULL)
    for name in ("stops/config.json", "stops/generation_config.json"):
        config = {**json.load(open(name)), "eos_token_id": ord(whole[5])}
        open(name, "w").write(json.dumps(config))
    stops = Server("--template", TEMPLATE, model="stops")
    a = stops.complete(prompt="the ", max_tokens=24, logprobs=0)["choices"][0]
    check("a stop token has no text", (a["text"], a["finish_reason"]) == (want, "stop"), (a, whole))
    check("but its score", a["logprobs"]["tokens"] == list(want + whole[5]), a)
    events = stops.stream("/v1/completions", {"prompt": "the ", "max_tokens": 24, "temperature": 0})
    check("nor in a stream", "".join(e["choices"][0]["text"] for e in events) == want, events)
    check("the server of stops ended with 0", stops.stop() == 0)


def test_clients_that_leave(s):
    """With one slot: the next client is answered only if the slot is free again."""
    for streams in (True, False):
        c = socket.create_connection(("127.0.0.1", s.port))
        body = json.dumps({"prompt": "a", "max_tokens": 190, "temperature": 0, "stream": streams, "n": 200}).encode()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % (s.port, len(body)) + body)
        if streams:
            c.recv(500)
        c.close()
        begin = time.monotonic()
        s.texts(prompt="b", max_tokens=1)
        print("next client after %.2f s" % (time.monotonic() - begin))
    c = socket.create_connection(("127.0.0.1", s.port))  # half a request stays: others are answered
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
    s.texts(prompt="b", max_tokens=1)
    c.close()


def test_end(s):
    """A signal lets what runs end."""
    result = []
    t = threading.Thread(target=lambda: result.append(s.texts(prompt=["ab"] * 8, max_tokens=150)))
    t.start()
    time.sleep(0.05)
    check("ended with 0", s.stop() == 0)
    t.join()
    check("what ran was answered, or refused with 503", len(result) == 1, result)


def test_token():
    path = os.path.abspath("token")
    s = Server("--token-file", path)
    token = open(path).read().strip()
    check("the file is the owner's", os.stat(path).st_mode & 0o777 == 0o600)
    s.refused("/v1/models", None, 401, "access token")
    s.refused("/v1/models", None, 401, "access token", headers={"Authorization": "Bearer " + "0" * 64})
    s.refused("/v1/models", None, 401, "access token", headers={"Authorization": "Bearer " + token[:-1]})
    check("the token opens", s.ask("/v1/models", headers={"Authorization": "Bearer " + token})[0] == 200)
    check("health is open", s.ask("/health")[0] == 200)
    check("Ctrl-C ends it", s.stop(signal.SIGINT) == 0)


served = Server("--template", TEMPLATE, "--slots", "3", "--name", "tiny")
for test in (test_answers, test_stops_and_streams, test_scores, test_chats, test_refusals, test_stop_token):
    test(served)
test_end(served)
one = Server("--slots", "1")
second = subprocess.run([LOCKSTEP, "serve", MODEL, "--listen", f"127.0.0.1:{one.port}"], capture_output=True, text=True, timeout=60)
check("a port in use is named, with what to do", second.returncode == 1 and "the port is in use; choose another one, or port 0" in second.stderr, second)
check("a model without a template says so", "no chat template" in one.line, one.line)
one.refused("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, 400, "--template FILE")
test_clients_that_leave(one)
one.stop()
test_token()
print(len(failures), "failures")
sys.exit(1 if failures else 0)
