"""Apps that get each thing wrong, tried in a real Chromium: each check has to say so. One run for all of them.

Rules APP-V-01 to APP-V-06.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.browser import find_chromium

from mcpd import Server, ViewResult, view_result
from mcpd.apps.verdict import run, trial
from mcpd.apps.verdict.report import AppReport, AppsReport, Check, TryOptions, skipped
from mcpd.apps.verdict.run import try_apps

pytestmark = [pytest.mark.slow, pytest.mark.covered]

HEAD = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A</title>'

# Shakes hands, and does nearly everything wrong that can be done after it.
RUDE = f"""{HEAD}<style>
  body {{ background: #fff; color: #bbb }}
  #wide {{ width: 900px; height: 10px; background: #eee }}
  button:focus {{ outline: none }}
</style></head><body>
<p>Hardly to be read</p><div id="wide"></div><p id="said"></p><p id="why"></p>
<button style="color:#000;background:#fff"></button><input style="color:#000">
<div role="button" style="color:#000">no stop</div>
<script>
  const send = (message) => parent.postMessage({{ jsonrpc: "2.0", ...message }}, "*");
  const appInfo = {{ name: "rude", version: "1" }}, appCapabilities = {{ tools: {{}} }};
  const params = {{ appInfo, appCapabilities, protocolVersion: "2026-01-26" }};
  send({{ id: 0, method: "ui/initialize", params }});
  send({{ id: 1, method: "tools/call", params: {{ name: "rude", arguments: {{}} }} }});
  addEventListener("message", ({{ data, source }}) => {{
    if (data.id === 0 && data.result) {{ send({{ method: "ui/notifications/initialized" }}); grow(100); }}
    if (data.method === "ui/notifications/tool-result") said.textContent = data.params.content[0].text;
    if (data.method === "mcpd/no-such-method") send({{ id: data.id, result: {{}} }});
  }});
  const grow = (height) => {{
    send({{ method: "ui/notifications/size-changed", params: {{ width: 300, height }} }});
    setTimeout(grow, 40, height + 1);
  }};
  console.error("something is odd");
  setTimeout(() => {{ throw new Error("nobody caught me"); }}, 10);
  fetch("https://api.example/rows").catch(() => 0);
  try {{ new Function("return 1")(); }} catch (error) {{ why.textContent = error.message; console.error(error); }}
  document.body.append(Object.assign(new Image(), {{ src: "http://127.0.0.1:1/declared.png" }}));
  document.body.append(Object.assign(new Image(), {{ src: "https://img.example/x.png" }}));
  document.body.append(Object.assign(new Image(), {{ src: "beside/logo.png" }}));
</script></body></html>"""

# Correct in a host that does all as it should, and in no other.
FRAIL = f"""{HEAD}</head><body>
<script>
  const send = (message) => parent.postMessage({{ jsonrpc: "2.0", ...message }}, "*");
  let hasInput = false, isLive = false;
  addEventListener("message", ({{ data, source }}) => {{
    if (source !== window.parent) return;
    if (data.id === 0) {{
      localStorage.setItem("seen", "yes");
      if (!document.body.clientWidth) throw new Error("no width");
      setTimeout(() => {{ isLive = true; send({{ method: "ui/notifications/initialized" }}); }}, 30);
    }} else if (data.method === "ping" || data.method === "ui/resource-teardown") send({{ id: data.id, result: {{}} }});
    else if (data.id !== undefined) send({{ id: data.id, error: {{ code: -32601, message: "no" }} }});
    if (data.method === "ui/notifications/tool-input") {{
      if (!isLive) throw new Error("too early");
      hasInput = true;
    }}
    if (data.method === "ui/notifications/tool-result" && hasInput) {{
      if (window.openai) throw new Error("what host is this?");
      if (data.params.isError) {{
        console.error("it said that it failed", data.params.content);
        return console.error("not mine", new TypeError("no such member"));
      }}
      const text = data.params._meta.note.text + data.params.structuredContent.rows.length;
      document.body.append(text);
    }}
  }});
  const params = {{ appInfo: {{ name: "frail", version: "1" }}, appCapabilities: {{}}, protocolVersion: "2026-01-26" }};
  send({{ id: 0, method: "ui/initialize", params }});
</script></body></html>"""

# Says nothing, and goes elsewhere.
LEAVING = f'{HEAD}</head><body>I say nothing<script>location.href = "https://elsewhere.example/"</script></body></html>'


# Waits for a script that it declares, and that is not there.
WAITING = (
    f'{HEAD}<script src="http://127.0.0.1:1/lib.js"></script></head><body><script>lib.start()</script></body></html>'
)


def make_server() -> Server:
    server = Server("odd", version="1")
    for name, html in (("rude", RUDE), ("frail", FRAIL), ("leaving", LEAVING), ("waiting", WAITING)):
        is_loading = name in ("rude", "waiting")
        server.app(name, html, csp={"resourceDomains": ["http://127.0.0.1:1"]} if is_loading else None)

        def answer() -> ViewResult:
            return view_result("words", {"rows": [1]}, meta={"note": {"text": "noted"}})

        server.add_tool(answer, name=name, ui=name)
    return server


def test_what_apps_get_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run for all of them, with pictures; the functions below say what was found."""
    if find_chromium() is None:
        pytest.skip("needs Chromium: apt-get install chromium")

    # Quirks are tried on the frail one: of one that does everything wrong they say nothing more.
    quirk_checks = run._quirk_checks

    async def tried(trials: Any, names: tuple[str, ...], known: frozenset[str]) -> list[Check]:
        if trials.call.name == "rude":
            return [skipped(f"quirk-{name}", "A quirk", "not here") for name in names]
        return await quirk_checks(trials, names, known)

    monkeypatch.setattr(run, "_quirk_checks", tried)
    options = TryOptions(browser=find_chromium(), timeout=8, screenshots=str(tmp_path))
    report = asyncio.run(try_apps(make_server(), options))
    what_a_rude_app_does_is_named(report)
    each_quirk_of_other_hosts_is_survived_or_named(report)
    one_that_says_nothing_and_leaves_is_named(report)
    an_address_that_cannot_be_reached_is_the_cause(report)


def said(app: AppReport, name: str, status: str = "failure") -> str:
    check = app.check(name)
    assert check.status == status, check
    return "\n".join(finding.text for finding in check.findings)


def what_a_rude_app_does_is_named(report: AppsReport) -> None:
    """APP-V-01, APP-V-02, APP-V-03, APP-V-04, APP-V-06; WCAG 1.4.3, 1.4.10, 2.1.1, 2.4.7, 4.1.2."""
    app = report.app("rude")
    assert app.check("handshake").status == "ok"
    assert "before it listens" in said(app, "listens-first")
    assert "tools/call: a request before ui/notifications/initialized" in app.check("rules").text
    assert "ping is not answered" in said(app, "ping")
    assert "with a result" in said(app, "unknown-request")
    assert "does not answer tools/list" in said(app, "own-tools")
    assert "did not come from its parent" in said(app, "forged-messages")
    assert "ui/resource-teardown is not answered" in said(app, "teardown")
    assert "new size" in said(app, "resize")
    assert "nobody caught me" in said(app, "console")
    assert "something is odd" in said(app, "console")
    assert "an error on the console: EvalError" in said(app, "console")
    assert "http://127.0.0.1:1/declared.png could not be loaded: net::ERR" in said(app, "console")
    assert "/beside/logo.png could not be loaded: 404" in said(app, "console")
    assert "too wide for 320 px; <div#wide> stick out" in said(app, "layout-320", "warning")
    assert app.check("layout-1280").status == "ok"
    assert "'Hardly to be read' in <p>: #bbbbbb on #ffffff is 1.9" in said(app, "contrast-light", "warning")
    assert "<button> has no name" in said(app, "names", "warning")
    assert "<div> (no stop) is not reached by Tab" in said(app, "keyboard", "warning")
    assert "looks the same with the focus" in said(app, "keyboard", "warning")
    assert "shows the browser's refusal: Evaluating a string as JavaScript" in said(app, "policy")
    blocked = {finding.domain: finding.field for finding in app.check("policy").findings if finding.domain}
    assert blocked == {"https://api.example": "connectDomains", "https://img.example": "resourceDomains"}
    assert {Path(shot).name for shot in app.screenshots} == {
        f"odd-rude-{width}-{scheme}.png" for width in (1280, 320) for scheme in ("light", "dark")
    }
    assert all(Path(shot).read_bytes().startswith(b"\x89PNG") for shot in app.screenshots)


def each_quirk_of_other_hosts_is_survived_or_named(report: AppsReport) -> None:
    """APP-V-05."""
    app = report.app("frail")
    for name in ("handshake", "listens-first", "ping", "unknown-request", "forged-messages", "teardown", "policy"):
        assert app.check(name).status == "ok", app.check(name)
    assert "without _meta" in said(app, "quirk-drop-meta")
    assert "without structuredContent" in said(app, "quirk-drop-structured")
    assert "nothing is visible" in said(app, "quirk-no-tool-input")
    assert "too early" in said(app, "quirk-early-input")
    assert "no width" in said(app, "quirk-hidden")
    assert "localStorage" in said(app, "quirk-opaque")
    assert "nothing is visible" in said(app, "quirk-error-result")
    # That it says so on the console is no fault, if it is not one of its script.
    of_error = app.check("quirk-error-result").findings
    assert [finding.severity for finding in of_error if "not mine" in finding.text] == ["failure"]
    assert [finding.severity for finding in of_error if "it said that" in finding.text] == ["note"]
    assert "what host is this?" in said(app, "quirk-openai")


def one_that_says_nothing_and_leaves_is_named(report: AppsReport) -> None:
    """APP-V-03."""
    app = report.app("leaving")
    assert "it has left its place" in said(app, "handshake")
    assert "the app tries to navigate to https://elsewhere.example" in said(app, "policy")
    assert app.check("layout-1280").status == "skipped"
    assert "quirk-opaque" not in {check.name for check in app.checks}
    assert [Path(shot).name for shot in app.screenshots] == ["odd-leaving-1280-light.png"]
    assert report.browser is not None
    assert report.browser.startswith("Chromium ")


def an_address_that_cannot_be_reached_is_the_cause(report: AppsReport) -> None:
    """It is named in place of the handshake that did not come, and once."""
    app = report.app("waiting")
    assert app.verdict == "does not work"
    (unreachable,) = (cause for cause in app.causes if "127.0.0.1:1/lib.js" in cause.text)
    assert "it does not start: http://127.0.0.1:1/lib.js could not be loaded: net::ERR" in unreachable.text
    assert unreachable.checks == ["handshake", "console"]
    assert "ui/initialize" not in "".join(app.failures)
    assert "localhost:" not in "".join(app.failures)


def test_one_that_never_stops_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless loop stops the whole page: the run comes to its end all the same."""
    if find_chromium() is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    monkeypatch.setattr(trial, "UNRESPONSIVE_SECONDS", 2.0)
    server = Server("endless")
    loop = "addEventListener('message', ({ data }) => { if (data.id === 0) for (;;); });"
    server.app("loop", RUDE.replace("<script>", f"<script>{loop}", 1))

    @server.tool(ui="ui://endless/loop")
    async def loop_tool() -> str:
        return "once"

    async def tried() -> AppsReport:
        async with asyncio.timeout(120):
            return await try_apps(server, TryOptions(browser=find_chromium(), timeout=10))

    (app,) = asyncio.run(tried()).apps
    assert "its page stood still for 2 s" in said(app, "handshake")
