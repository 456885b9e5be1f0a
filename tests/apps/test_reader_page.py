"""The page of the reader: results of the tools of documents, pages and the way between them, and hostile ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.apps_scene import Open, Scene
from support.browser import Chromium
from support.folders import opened
from support.hostile_html import HOSTILE, unharmed
from support.page_stage import showing
from support.pages import Pages
from support.views_stage import DARK, HITS, LIGHT, PAGE, data, look, text

from mcpd.apps.host.view.context import HostContext

HOME = {"title": "Handbook", "sections": [{"name": "guides", "title": "Guides", "pages": 2}, {"name": "", "pages": 1},
                                          {"name": "reference", "title": "Reference", "pages": 9}],
        "total_pages": 12, "kinds": ["markdown", "text"]}  # fmt: skip
PAGES = {"section": "guides", "title": "Guides", "pages": [
    {"path": "02-guides/units.md", "title": "Units", "description": "What a unit is."},
    {"path": "02-guides/stacks.md", "title": "Stacks"}]}  # fmt: skip
ASKED = "host.of('tools/call').map((call) => call.params.arguments)"
HEADING = "document.querySelector('.pane :is(h1, h2)')?.textContent"


async def answering(scene: Scene, value: Any) -> None:
    """From now on the server's tool for the reader gives this."""
    await scene.host.call("(result) => { host.answers['tools/call'] = { result }; }", data(value))


async def click(scene: Scene, words: str) -> None:
    """Press the link or button with these words."""
    await scene.view.call(
        "(words) => [...document.querySelectorAll('button, .link')].find((one) => one.textContent === words).click()",
        words,
    )


async def named(scene: Scene, name: str) -> None:
    """Press the button with this name."""
    await scene.view.click(f'[aria-label="{name}"]')


async def test_what_was_found(open_view: Open) -> None:
    """Titles, the way to them, and the words that were found marked, though some letters count twice."""
    async with open_view("reader", data(HITS)) as scene:
        view = scene.view
        assert await view.evaluate(HEADING) == "12 results for “filter units”"
        assert await view.evaluate("[...document.querySelectorAll('.hits h3')].map((one) => one.textContent)") == [
            "Units", "Welcome",
        ]  # fmt: skip
        marks = "[...document.querySelectorAll('.hits mark')].map((one) => one.textContent)"
        assert await view.evaluate(marks) == ["filter", "units", "Units"]
        assert await view.text(".crumbs") == "Guides › Filters"
        assert await view.evaluate("document.querySelector('input').value") == "filter units"
        await answering(scene, {**HITS, "results": [{"path": "x.md", "title": "Third"}], "next_cursor": None})
        await click(scene, "More results")
        await view.until("document.querySelectorAll('.hits li').length === 3")
        assert (await scene.host.evaluate(ASKED))[-1] == {"query": "filter units", "cursor": "c2"}
        await view.until("[...document.querySelectorAll('button')].every((one) => one.textContent !== 'More results')")
        scene.clean()


async def test_results_are_filtered_by_section_and_kind(open_view: Open) -> None:
    async with open_view("reader", data(HITS), answers={"tools/call": {"result": data(HOME)}}) as scene:
        await scene.view.until("document.querySelectorAll('select').length === 2")
        await answering(scene, {**HITS, "results": HITS["results"][:1], "total": 1})
        choose = "(at, value) => { const box = document.querySelectorAll('select')[at]; box.value = value; box.dispatchEvent(new Event('change')); }"  # noqa: E501
        await scene.view.call(choose, 0, "guides")
        await scene.view.until(f"{HEADING}.startsWith('1 result ')")
        assert (await scene.host.evaluate(ASKED))[-1] == {"query": "filter units", "section": "guides"}
        await scene.view.until("document.querySelectorAll('select')[0]?.value === 'guides'")
        await scene.view.call(choose, 1, "markdown")
        await scene.host.until(f"{ASKED}.at(-1).kind === 'markdown'")
        await named(scene, "Back")
        await named(scene, "Back")
        await scene.view.until(f"{HEADING}.startsWith('12 results')")
        scene.clean()


async def test_a_page_and_the_way_between_pages(open_view: Open) -> None:
    """Links open inside, out through the host, and to places; back and forward, and where one was; the model hears."""
    async with open_view("reader", data(HITS)) as scene:
        view = scene.view
        await click(scene, "Units")
        await view.until(f"{HEADING} === 'Units' && document.querySelector('.markdown')")
        assert (await scene.host.evaluate(ASKED))[-1] == {"path": "02-guides/units.md", "anchor": "filters"}
        # At the heading that was found.
        top = "[...document.querySelectorAll('h2')].at(-1).getBoundingClientRect().top"
        assert abs(await view.evaluate(f"{top} - document.querySelector('.pane').getBoundingClientRect().top")) < 30
        assert await view.evaluate("document.activeElement.className") == "pane"
        assert await view.text("figure.code .quiet") == "hcl"
        assert await view.evaluate("document.querySelector('li input').disabled")
        assert await view.evaluate("[...document.querySelectorAll('.toc .link')].map((one) => one.textContent)") == [
            "Units", "Kinds", "Filters",
        ]  # fmt: skip
        [told] = await scene.received("ui/update-model-context")
        assert "02-guides/units.md#filters" in told["params"]["content"][0]["text"]

        # By keyboard: a link in running text is no button.
        below = "[...document.querySelectorAll('.link')].find((one) => one.textContent === 'below')"
        await view.evaluate(f"{below}.focus()")
        await scene.page.press("Enter", 13, text="\r")
        await view.until("document.activeElement.textContent === 'Filters'")
        await click(scene, "the site")
        await scene.host.until("host.of('ui/open-link').length === 1")
        assert (await scene.received("ui/open-link"))[0]["params"] == {"url": "https://example.com/x"}
        await answering(scene, {**PAGE, "path": "02-guides/stacks.md", "title": "Stacks", "html": "<p>Deep.</p>"})
        await click(scene, "stacks")
        await view.until(f"{HEADING} === 'Stacks'")
        assert (await scene.host.evaluate(ASKED))[-1] == {"path": "02-guides/stacks.md", "anchor": "deep"}

        calls = len(await scene.received("tools/call"))
        await named(scene, "Back")
        await view.until(f"{HEADING} === 'Units'")
        await named(scene, "Forward")
        await view.until(f"{HEADING} === 'Stacks'")
        for _ in range(3):
            await view.evaluate("document.querySelector('[aria-label=Back]').click()")
        await view.until(f"{HEADING}.startsWith('12 results')")
        assert await view.evaluate("document.querySelector('[aria-label=Back]').disabled")
        # What was there before is not asked for again.
        assert len(await scene.received("tools/call")) == calls
        scene.clean()


async def test_sections_a_list_and_a_search_of_its_own(open_view: Open) -> None:
    async with open_view("reader", data(HOME)) as scene:
        view = scene.view
        assert await view.evaluate(HEADING) == "Handbook"
        assert await view.evaluate("[...document.querySelectorAll('.places li')].map((one) => one.textContent)") == [
            "Guides2 pages", "Top1 page", "Reference9 pages",
        ]  # fmt: skip
        await answering(scene, PAGES)
        await click(scene, "Guides")
        await view.until("document.querySelectorAll('.places.tall li').length === 2")
        assert (await scene.host.evaluate(ASKED))[-1] == {"section": "guides"}
        await answering(scene, HITS)
        await view.evaluate("document.querySelector('input[type=search]').focus()")
        await view.evaluate("document.querySelector('input[type=search]').value = ' filter units '")
        await scene.page.press("Enter", 13, text="\r")
        await view.until(f"{HEADING}.startsWith('12 results')")
        assert {"query": "filter units"} in await scene.host.evaluate(ASKED)
        await named(scene, "Sections")
        await view.until("document.querySelector('.places:not(.tall)') || document.querySelector('.problem')")
        scene.clean()


async def test_other_results(open_view: Open) -> None:
    examples = [
        {"path": "a.md", "title": "A", "heading": "H", "language": "hcl", "code": "x = 1", "before": "Like so:"}
    ]
    for value, sign in (
        ({"words": "x", "examples": examples, "total": 1}, "figure.code"),
        ({"name": "run-all", "results": [{"path": "a.md", "title": "A", "content": "## run-all\n\nRuns."}]}, "h2"),
        ({"error": "section not found: 'guide'", "near": ["guides"], "path": ""}, ".problem"),
        ({"query": "zz", "results": [], "total": 0, "corrected": "z"}, ".pane h2"),
    ):
        async with open_view("reader", data(value)) as scene:
            await scene.view.until(f"document.querySelector({sign!r})")
            scene.clean()


async def test_names_of_the_author_do_not_hide_ours(open_view: Open) -> None:
    """Structured content may be under other names; the copy in `_meta` is under those that the reader knows."""
    result = {"content": [], "structuredContent": {"found": 1, "items": []}, "_meta": {"mcpd/data": HITS}}
    async with open_view("reader", result) as scene:
        assert await scene.view.evaluate("document.querySelectorAll('.hits li').length") == 2


@pytest.mark.parametrize(
    ("capabilities", "answers"),
    [
        ({"serverTools": None}, None),
        ({}, {"tools/call": {"error": {"code": -32000, "message": "not today"}}}),
        ({}, {"tools/call": {"result": {"isError": True, "content": [{"type": "text", "text": "gone"}]}}}),
    ],
    ids=["no-tools", "refused", "error"],
)
async def test_a_page_that_cannot_be_had_is_shown_as_it_came(open_view: Open, capabilities: Any, answers: Any) -> None:
    given = data({"path": "a.md", "title": "A", "section": "", "text": "# A\n\nas it *came*"})
    async with open_view("reader", given, capabilities=capabilities, answers=answers) as scene:
        await scene.view.until("document.querySelector('.markdown em')?.textContent === 'came'")
        scene.clean()
    async with open_view("reader", text("# Only\n\nwords"), capabilities=capabilities, answers=answers) as scene:
        await scene.view.until("document.querySelector('.markdown h1')?.textContent === 'Only'")


async def test_what_cannot_be_had_later_can_be_tried_again(open_view: Open) -> None:
    answers = {"tools/call": {"error": {"code": -32000, "message": "not today"}}}
    async with open_view("reader", data(HITS), answers=answers) as scene:
        await click(scene, "Units")
        await scene.view.until("document.querySelector('.problem')?.textContent.includes('not today')")
        await answering(scene, PAGE)
        await click(scene, "Try again")
        await scene.view.until(f"{HEADING} === 'Units'")
        await named(scene, "Back")
        await scene.view.until(f"{HEADING}.startsWith('12 results')")


async def test_an_answer_that_comes_late_does_not_take_the_place_of_a_newer_one(open_view: Open) -> None:
    async with open_view("reader", data(HITS), answers={"tools/call": {"result": data(PAGE), "after": 400}}) as scene:
        await click(scene, "Units")
        await answering(scene, HOME)
        await named(scene, "Sections")
        await scene.view.until(f"{HEADING} === 'Handbook'")
        await scene.host.call("() => new Promise((done) => setTimeout(done, 500))")
        assert await scene.view.evaluate(HEADING) == "Handbook"


async def test_pages_of_others_do_nothing(open_view: Open) -> None:
    links = (
        '<a href="#" data-page="javascript:window.hacked=1">p</a><a href="javascript:window.hacked=1">q</a>'
        '<a href="//evil.example/">r</a><a href="/etc/passwd">s</a><a href="#%zz">t</a><a name="main">u</a>'
    )
    page = {"path": HOSTILE[0], "title": HOSTILE[1], "section": HOSTILE[2], "html": links + "".join(HOSTILE),
            "toc": [{"level": 1e9, "title": HOSTILE[0], "anchor": "__proto__"}] * 5, "next": {"path": HOSTILE[4]},
            "previous": "no"}  # fmt: skip
    hits = {"query": HOSTILE[0], "total": -5, "corrected": HOSTILE[1], "next_cursor": 5, "results": [
        {"path": HOSTILE[0], "title": HOSTILE[1], "section": HOSTILE[2], "heading": HOSTILE[3], "snippet": HOSTILE[4],
         "highlights": [[0, 1e9], [-5, 3], [2, 1], "x", None, [1.5, 2]]}, 7, None, {}]}  # fmt: skip
    async with open_view("reader", data(hits), answers={"tools/call": {"result": data(page)}}) as scene:
        await unharmed(scene)
        await scene.view.evaluate("document.querySelector('.hits .link').click()")
        await scene.view.until("document.querySelector('.markdown')")
        for words in ("p", "q", "r", "s", "t"):
            press = "(words) => [...document.querySelectorAll('.markdown button, .markdown span')].find((one) => one.textContent === words).click()"  # noqa: E501
            await scene.view.call(press, words)
            await scene.view.until("document.querySelector('.markdown')")
        await unharmed(scene)


async def test_a_folder_of_documents_in_our_host(chromium: Chromium, pages: Pages, tmp_path: Path) -> None:
    """From a search of the model's to a page, by a link to the next one, and to what the user looks for."""
    server = opened(tmp_path, {
        "mcpd.toml": '[docs]\nindex = "memory"\n',
        "docs/a.md": "# Alpha\n\nOn to [the other](b.md#end).\n",
        "docs/b.md": "# Beta\n\n" + "Words.\n\n" * 60 + "## End\n\nThe last words.\n",
    })  # fmt: skip
    async with showing(chromium, pages, server) as show:
        view = await show.view(await show.host.call_tool("search_docs", {"query": "alpha"}))
        frame = await show.page.frame("/view")
        assert await view.live()
        scene = Scene(show.page, show.page.main, frame)
        await frame.until("document.querySelector('.hits button')")
        await click(scene, "Alpha")
        await frame.until("document.querySelector('.markdown')")
        await click(scene, "the other")
        await frame.until(f"{HEADING} === 'Beta'")
        assert await frame.evaluate("document.querySelector('.pane').scrollTop") > 200
        await frame.evaluate("document.querySelector('input[type=search]').value = 'last words'")
        await frame.click('[aria-label="Search"]')
        await frame.until(f"{HEADING}.includes('for “last words”')")
        # The model heard of the page before the server heard of the search.
        [update] = show.host.conversation.take_context()
        assert "b.md#end" in str(update)
        for scheme in (LIGHT, DARK):
            view.change_context(HostContext(theme=scheme))
            for width in (320, 1280):
                await show.page.resize(width, 700)
                await frame.until(f"innerWidth === {width}")
                await look(frame, scheme)
        scene.clean()
