"""HTML that means harm, and what has to be so of a page that was given it.

Lives here: what the pages that show HTML of others are tried with. Never here: fixtures.
"""

from __future__ import annotations

from support.apps_scene import Scene

__all__ = ["HOSTILE", "unharmed"]

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<svg onload='window.hacked = 1'><script>window.hacked = 1</script></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=window.hacked=1&gt;'>",
    "<a href='javascript:window.hacked=1'>a</a><a href='data:text/html,<script>x</script>'>b</a>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe><object data='x'></object><embed src='x'>",
    "<meta http-equiv='refresh' content='0;url=https://evil.example/'><base href='https://evil.example/'>",
    "<link rel=stylesheet href='https://evil.example/x.css'><style>body { display: none }</style>",
    "<form action='https://evil.example/'><button formaction='javascript:x'>go</button></form>",
    "<p style='position: fixed; inset: 0; background: url(https://evil.example/p.png)' onclick='window.hacked=1'>p</p>",
    "<details ontoggle='window.hacked=1' open><summary>s</summary></details><marquee onstart='hacked=1'>m</marquee>",
    "<img src='https://evil.example/p.png'><video src='https://evil.example/v'></video><p id='spec' name='body'>",
    "<template><img src=x onerror='window.hacked=1'></template><noscript><p title='</noscript><img src=x onerror=x>'>",
    "<table background='https://evil.example/b.png'><tr><td colspan=99999999 rowspan=99999999>cell</td></tr></table>",
]
_BAD = """(() => {
  const tags = /^(script|iframe|object|embed|link|meta|base|style|form|video|template|a)$/;
  const says = ({ name, value }) => name.startsWith("on") || name === "id"
    || (name === "style" && !/^width: \\d+px;$/.test(value))
    || (name !== "title" && /javascript:|evil\\.example/.test(value));
  const bad = (node) => tags.test(node.localName) || [...node.attributes].some(says);
  return [...document.querySelectorAll("main *")].filter(bad).map((node) => node.outerHTML.slice(0, 200));
})()"""


async def unharmed(scene: Scene) -> None:
    """Nothing of it ran, loaded, hid the page or was opened, and nothing is in the page that could."""
    assert await scene.view.evaluate("window.hacked") is None
    assert await scene.view.evaluate(_BAD) == []
    assert await scene.view.evaluate("document.body.checkVisibility()")
    assert not await scene.received("ui/open-link")
    scene.clean()
