"""How the page of `mcpd preview` looks and is read aloud: names and roles, contrast, narrow screens, many tools."""

from __future__ import annotations

from typing import Any

import pytest
from support.browser import Chromium
from support.preview_page_stage import APP, PageStage, busy_server, opened, schema_server
from support.scripted_server import DISCOVERED, Script

from mcpd import Server
from mcpd.transports.memory import pair

pytestmark = pytest.mark.slow

CONTROLS = {
    "button",
    "checkbox",
    "combobox",
    "dialog",
    "grid",
    "group",
    "Iframe",
    "link",
    "listbox",
    "progressbar",
    "radio",
    "radiogroup",
    "searchbox",
    "separator",
    "slider",
    "spinbutton",
    "splitter",
    "switch",
    "tab",
    "tabpanel",
    "textbox",
}


SEARCHED = """(async () => {
  const search = document.getElementById('search'), shown = [];
  let worst = 0;
  for (const words of ['9876', '']) {
    const began = performance.now();
    search.value = words;
    search.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    worst = Math.max(worst, performance.now() - began);
    shown.push(document.querySelectorAll('[data-key^=tool]').length);
  }
  return { worst, shown };
})()"""

PANES = (("Browse", "#browse"), ("Tool", "#work"), ("App", "#stage"), ("Records", "#records"), ("Host", "#host"))


async def everything(stage: PageStage) -> None:
    """A state with all there is: a View with its details, a result, a form, the host's settings, a question."""
    await stage.pick("tool show")
    await stage.write("city", "Oslo")
    await stage.press("Call")
    await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
    await stage.press("Details")
    await stage.main.evaluate("document.getElementById('host-button').click()")
    await stage.pick("tool interview")
    await stage.press("Call")
    await stage.says("Who are you?")


async def roles_of(stage: PageStage) -> list[tuple[str, str]]:
    """Role and name of all that is in the accessibility tree of the page."""
    told = await stage.page.wire.send("Accessibility.getFullAXTree", stage.page.session)
    nodes: list[dict[str, Any]] = [one for one in told["nodes"] if not one["ignored"]]
    return [(one["role"]["value"], one.get("name", {}).get("value", "").strip()) for one in nodes]


async def unnamed(stage: PageStage) -> list[str]:
    """The controls there without a name; many have to have one."""
    controls = [(role, name) for role, name in await roles_of(stage) if role in CONTROLS]
    assert len(controls) > 20
    return [role for role, name in controls if not name]


@pytest.mark.parametrize("width", [1280, 375])
async def test_long_names_leave_room_for_the_rest(chromium: Chromium, width: int) -> None:
    """Of a server and of a tool: they are cut off, and what stands beside them is seen whole."""
    name = "_".join(["long"] * 25)
    server = Server(name, title=name.replace("_", " "), version="1.2.3-beta.20261127+build.0123456789")
    server.app(name, APP)
    server.add_tool(lambda: "text", name=name, description="Show.", ui=name)
    async with opened(chromium, server, width=width) as stage:
        await stage.pick(f"tool {name}")
        await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
        assert await stage.main.evaluate("looks.wide()") == []
        for beside in ("#version", ".server .chip", ".view-name .chip", ".view-tools"):
            box = f"document.querySelector('{beside}').getBoundingClientRect()"
            inside = (
                f"[1, {box}.width - 1].every((x) => document.elementFromPoint({box}.x + x, {box}.y + {box}.height / 2)"
            )
            assert await stage.main.evaluate(f"{inside}?.closest('{beside}'))"), beside
        assert await stage.main.evaluate("document.getElementById('version').offsetWidth") >= 100


async def test_everything_has_a_name_and_can_be_read_in_both_themes(chromium: Chromium) -> None:
    """Names of all controls, landmarks, one heading of the first rank; text at 4.5:1, borders of fields at 3:1."""
    async with opened(chromium, busy_server()) as stage:
        await everything(stage)
        assert await unnamed(stage) == []
        roles = await roles_of(stage)
        for role in ("banner", "main", "complementary"):
            assert len([one for one, _ in roles if one == role]) == 1, role
        assert ("navigation", "What the server offers") in roles
        assert {("region", "Apps"), ("region", "Records")} <= set(roles)
        assert await stage.main.evaluate("[...document.querySelectorAll('h1')].filter(find.shown).length") == 1

        for theme in ("light", "dark"):
            await stage.page.prefer(theme)
            told = await stage.main.evaluate("looks.faint()")
            assert (told["found"], told["seen"] > 80) == ([], True), theme
        # The page's own switch overrides the system: system, light, dark.
        back = "getComputedStyle(document.querySelector('.top')).backgroundColor"
        dark = await stage.main.evaluate(back)
        await stage.press("Theme: as the system")
        assert await stage.main.evaluate(back) == "rgb(255, 255, 255)"
        await stage.press("Theme: light")
        assert await stage.main.evaluate(back) == dark
        assert not stage.page.errors


# What tells the chosen from the others, by whether it is drawn: with forced colours no background does.
MARKED = """(chosen, other) => [chosen, other].map((at) => {
  const { outlineStyle, outlineWidth, borderTopStyle } = getComputedStyle(document.querySelector(at));
  return outlineStyle !== 'none' && outlineWidth !== '0px' ? 'outline' : borderTopStyle;
})"""


async def test_with_forced_colours_what_is_chosen_is_still_told_apart(chromium: Chromium) -> None:
    """Tabs, entries, switches and choices; the parts have edges, and what can be dragged is seen."""
    async with opened(chromium, busy_server()) as stage:
        await everything(stage)
        await stage.press("requests")
        for scheme in ("light", "dark"):
            await stage.page.prefer(scheme, forced_colors=True)
            assert await stage.main.evaluate("matchMedia('(forced-colors: active)').matches")
            for chosen, other in (
                (".tabs [aria-selected=true]", ".tabs [aria-selected=false]"),
                (".entry[aria-current]", ".entry:not([aria-current])"),
                (".toggle[aria-pressed=true]", ".toggle[aria-pressed=false]"),
                ("#host-button", ".view-tools [aria-expanded=false], .actions .button"),
            ):
                marked, plain = await stage.main.call(MARKED, chosen, other)
                assert marked == "outline", chosen
                assert plain != "outline", other
            canvas = await stage.main.evaluate("getComputedStyle(document.body).backgroundColor")
            for drawn in ("'.view'", "'.button.only'", "'.panes > #stage'", "'.chip'"):
                edge = f"getComputedStyle(document.querySelector({drawn}))"
                told = await stage.main.evaluate(f"[{edge}.borderLeftStyle, {edge}.borderLeftColor]")
                assert told[0] == "solid", drawn
                assert told[1] != canvas, drawn
            grip = "getComputedStyle(document.querySelector('.grip')).backgroundImage"
            assert (canvas not in (told := await stage.main.evaluate(grip)), "gradient" in told) == (True, True)
            assert (await stage.main.evaluate("looks.faint()"))["found"] == []
        assert not stage.page.errors


async def test_a_narrow_screen_shows_one_pane_and_cuts_nothing_off(chromium: Chromium) -> None:
    """400 pixels: each pane by its button, nothing beyond the edge, all controls named; and 320 too."""
    async with opened(chromium, busy_server(), width=400) as stage:
        await everything(stage)
        for width in (400, 320):
            await stage.page.resize(width, 800)
            for at, (pane, inside) in enumerate(PANES):
                await stage.main.evaluate(f"document.querySelectorAll('#panes button')[{at}].click()")
                shown = "[...document.querySelectorAll('.panes > .pane')].filter(find.shown).map(({ id }) => `#${id}`)"
                assert await stage.main.evaluate(shown) == [inside]
                assert await stage.main.evaluate("looks.wide()") == [], (pane, width)
        assert await unnamed(stage) == []


async def test_three_hundred_tools_are_searched_and_an_empty_server_says_so(chromium: Chromium) -> None:
    """One tab stop for the list, the search narrows it, keys go through it; where nothing is the page says so."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    server, _ = schema_server({f"tool_{number}": schema for number in range(300)})
    async with opened(chromium, server) as stage:
        await stage.until("document.querySelectorAll('[data-key^=tool]').length === 300")
        assert await stage.main.evaluate("document.querySelectorAll('[data-key^=tool][tabindex=\"0\"]').length") == 1
        await stage.write("Search tools, resources and prompts", "29")
        assert await stage.main.evaluate("document.querySelectorAll('[data-key^=tool]').length") == 13
        await stage.says("13 of 300")
        await stage.main.evaluate("document.getElementById('search').focus()")
        for key, code in (("ArrowDown", 40), ("End", 35), ("Enter", 13)):
            await stage.page.press(key, code, text="\r" if key == "Enter" else "")
        await stage.until("document.getElementById('tool-title').textContent === 'tool_299'")
        await stage.write("Search tools, resources and prompts", "nothing like it")
        await stage.says("Nothing fits")
        assert not stage.page.errors

    near, far = pair()
    listed = [
        {"name": f"tool_{number}", "description": f"Does {number} things", "inputSchema": {"type": "object"}}
        for number in range(10_000)
    ]
    Script(far, {"server/discover": DISCOVERED, "tools/list": {"resultType": "complete", "tools": listed}})
    async with opened(chromium, near) as stage:
        await stage.until("document.querySelector('[data-key^=tool]') && find.one('9,700 more')")
        took = await stage.main.evaluate(SEARCHED)
        assert took["shown"] == [1, 300]
        # Far more than it takes; with a row for each it was seconds.
        assert took["worst"] < 1000
        await stage.main.evaluate("find.one('9,700 more').scrollIntoView()")
        await stage.until("document.querySelectorAll('[data-key^=tool]').length >= 600")
        assert await stage.main.evaluate("import('/catalogue.js').then(({ choose }) => choose('tool tool_5000'))")
        await stage.until("document.getElementById('tool-title').textContent === 'tool_5000'")
        assert not stage.page.errors

    empty, _ = schema_server({})
    async with opened(chromium, empty) as stage:
        await stage.says("No tools")
        await stage.says("Nothing is chosen")
        assert (await stage.main.evaluate("looks.faint()"))["found"] == []
        assert not stage.page.errors
