# SPDX-License-Identifier: Apache-2.0
"""Drives headless Chromium over its debugging pipe, with the standard library alone.

    with Browser() as browser:
        page = browser.open("http://127.0.0.1:7601/", width=1440, height=900)
        page.wait("document.querySelectorAll('canvas').length > 0")
        page.click("a[href='/compare']")
        page.screenshot("compare.png")

page.value(js) is the value of an expression; page.wait(js) waits until it is true. Whatever a page logs as an
error, and every exception that its script throws, is in page.errors.
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

DEADLINE_S = 60


class Browser:
    def __init__(self):
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        if not path:
            raise FileNotFoundError("chromium is not installed")
        self.home = tempfile.mkdtemp(prefix="browser-")
        to_read, to_write = os.pipe(), os.pipe()  # what it reads, what it writes
        self.send_fd, self.read_fd = to_read[1], to_write[0]

        def wire():
            # Both ends first out of the way of 3 and 4, which the browser expects.
            ends = [os.dup2(to_read[0], 100), os.dup2(to_write[1], 101)]
            for fd, end in zip((3, 4), ends):
                os.dup2(end, fd)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-dev-shm-usage", "--proxy-server=direct://", f"--user-data-dir={self.home}", "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.home})
        os.close(to_read[0])
        os.close(to_write[1])
        self.buffer, self.number, self.answers, self.pages = b"", 0, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        os.close(self.send_fd)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_fd)
        shutil.rmtree(self.home, ignore_errors=True)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.send_fd, json.dumps(message).encode() + b"\0")
        wanted, until = self.number, time.monotonic() + DEADLINE_S
        while wanted not in self.answers:
            self.take(until)
        answer = self.answers.pop(wanted)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def take(self, until):
        """Waits for messages and sorts them: answers by number, events to their page."""
        import select
        if not select.select([self.read_fd], [], [], max(0, until - time.monotonic()))[0]:
            raise TimeoutError("the browser does not answer")
        data = os.read(self.read_fd, 1 << 20)
        if not data:
            raise EOFError("the browser has ended")
        *messages, self.buffer = (self.buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].hear(message["method"], message["params"])

    def open(self, url, width=1440, height=900, dark=False, script=True):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(domain + ".enable")
        page.resize(width, height)
        if not script:
            page.call("Emulation.setScriptExecutionDisabled", value=True)
        page.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.go(url)
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.errors, self.bytes, self.requests, self.loaded = [], 0, 0, False

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def hear(self, method, data):
        if method == "Runtime.exceptionThrown":
            details = data["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and data["entry"]["level"] == "error":
            self.errors.append(data["entry"]["text"])
        elif method == "Network.dataReceived":
            self.bytes += max(data["encodedDataLength"], data["dataLength"])
        elif method == "Network.requestWillBeSent":
            self.requests += 1
        elif method == "Page.loadEventFired":
            self.loaded = True

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 500)

    def go(self, url):
        self.loaded = False
        self.call("Page.navigate", url=url)
        self.until(lambda: self.loaded, f"{url} to load")

    def until(self, is_true, what):
        until = time.monotonic() + DEADLINE_S
        while not is_true():
            if time.monotonic() > until:
                raise TimeoutError(f"waited {DEADLINE_S} s for {what}")
            try:
                self.browser.take(min(until, time.monotonic() + 0.02))
            except TimeoutError:
                pass

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", expression))
        return answer["result"].get("value")

    def wait(self, expression):
        self.until(lambda: self.value(f"(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"), expression)

    def place(self, selector):
        """The middle of an element, after scrolling it into view."""
        return self.value(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();
            return [r.left + r.width / 2, r.top + r.height / 2, r.width, r.height]; }})()""")

    def mouse(self, kind, x, y, buttons=0, count=1):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, buttons=buttons, clickCount=count,
                  button="left" if kind != "mouseMoved" or buttons else "none")

    def click(self, selector):
        x, y, *_ = self.place(selector)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseReleased", x, y)

    def follow(self, selector, then):
        """Clicks a link of a part that may be replaced at any moment, until `then` is true."""
        until = time.monotonic() + DEADLINE_S
        while not self.value(f"(() => {{ try {{ return Boolean({then}); }} catch {{ return false; }} }})()"):
            if time.monotonic() > until:
                raise TimeoutError(f"clicked {selector} for {DEADLINE_S} s, and never: {then}")
            if self.value(f"document.querySelector({json.dumps(selector)}) !== null"):
                self.click(selector)
            time.sleep(0.5)

    def drag(self, selector, from_share, to_share):
        """Drags along the middle of an element, from and to a share of its width."""
        x, y, width, _ = self.place(selector)
        left = x - width / 2
        self.mouse("mouseMoved", left + from_share * width, y)
        self.mouse("mousePressed", left + from_share * width, y, 1)
        self.mouse("mouseMoved", left + to_share * width, y, 1)
        self.mouse("mouseReleased", left + to_share * width, y)

    def press(self, key):
        text = {"text": key} if len(key) == 1 else {}
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=codes.get(key, 0), **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=codes.get(key, 0))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
