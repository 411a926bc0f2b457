"""A headless Chromium driven through its DevTools pipe: enough to look at one page."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
_PATIENCE = 60.0


class Browser:
    """One tab with the network cut; a context manager."""

    def __enter__(self) -> Browser:
        assert EXECUTABLE is not None
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        (read_command, self._to), (self._from, write_reply) = os.pipe(), os.pipe()

        def wire() -> None:  # Chromium reads commands from descriptor 3 and answers on 4
            command, reply = os.dup(read_command), os.dup(write_reply)
            os.dup2(command, 3), os.dup2(reply, 4)

        self._process = subprocess.Popen(
            [EXECUTABLE, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            preexec_fn=wire,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_command), os.close(write_reply)
        self._count, self._buffer, self._session = 0, b"", None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.requests: list[str] = []
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")
        self.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to), os.close(self._from)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; requests seen meanwhile are noted."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == self._count:
                assert "error" not in reply, reply
                return dict(reply["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], _PATIENCE)
            chunk = os.read(self._from, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError("Chromium gave no answer")
            self._buffer += chunk
        head, self._buffer = self._buffer.split(b"\0", 1)
        reply: dict[str, Any] = json.loads(head)
        if reply.get("method") == "Network.requestWillBeSent":
            self.requests.append(reply["params"]["request"]["url"])
        return reply

    def open(self, path: Path, width: int = 1000, scheme: str = "light") -> None:
        """Show a file at that width, in the light or the dark scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        url = path.resolve().as_uri()
        self.call("Page.navigate", url=url)
        while self.evaluate("[location.href, document.readyState]") != [url, "complete"]:
            time.sleep(0.01)

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key: str) -> None:
        code = {"Tab": 9, "ArrowRight": 39, "Enter": 13}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, whole: bool = False) -> bytes:
        """PNG bytes of what is seen, or of the whole page."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])
