"""Files edited in place: what is put in comes out again byte for byte, whatever somebody has written round it."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from mcpd.cli.install.formats import drop, format_named, put
from mcpd.errors import ConfigurationError

ENTRY = {
    "command": "/opt/my env/bin/mcpd",
    "args": ["serve", "--stdio", "C:\\s é\x7f.py"],
    "env": {"A": 'q"\n', "b.c": ""},
}
JSON, TOML, YAML = map(format_named, ("jsonc", "toml", "yaml"))

# ------------------------------------------------------------------------------------ by hand

JSONC = """\
// of mine
{
    "theme": "dark", // why not
    "servers": {
        "other": {"command": "x", "args": []} /* last */
        // "old": {}
    },
}
"""


def test_json_with_comments() -> None:
    made = put(JSON, JSONC, ("servers", "new"), {"command": "/m", "args": ["a"]}, "f")
    assert made == JSONC.replace(
        "[]} /* last */\n",
        '[]}, /* last */\n        "new": {\n            "command": "/m",\n            "args": ["a"]\n        }\n',
    )
    assert drop(JSON, made, ("servers", "new"), "f") == JSONC


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "k": {\n    "n": 1\n  }\n}\n'),
        ("{}", '{\n  "k": {\n    "n": 1\n  }\n}'),
        ("{\r\n}\r\n", '{\r\n  "k": {\r\n    "n": 1\r\n  }\r\n}\r\n'),
        ('{"k":{}}', '{"k":{"n": 1}}'),
        ('{"a":1}', '{"a":1, "k": {"n": 1}}'),
        ('{\n\t"k": {}\n}', '{\n\t"k": {\n\t\t"n": 1\n\t}\n}'),
        ('{\n  "k": {\n    // none\n  }\n}', '{\n  "k": {\n    // none\n    "n": 1\n  }\n}'),
        ('{\n  "k": {"a": 1}\n}', '{\n  "k": {"a": 1, "n": 1}\n}'),
        ('{\n  "k": {\n    "a": 1,\n  },\n}', '{\n  "k": {\n    "a": 1,\n    "n": 1,\n  },\n}'),
        ('{\n  "k": null, "x": 1\n}', '{\n  "k": {\n    "n": 1\n  }, "x": 1\n}'),
        ('{"k": {"a": 0}, "k": {\n "b": "}"}}', '{"k": {"a": 0}, "k": {\n "b": "}",\n "n": 1}}'),
    ],
)
def test_where_a_member_goes(before: str, after: str) -> None:
    made = put(JSON, before, ("k", "n"), 1, "f")
    assert made == after
    assert put(JSON, made, ("k", "n"), 1, "f") == made
    assert "n" not in JSON.parse(drop(JSON, made, ("k", "n"), "f"), "f")["k"]


CODEX = """\
model = "o4"  # mine
notify = ["a",
  "b # no comment", ]
\"\"\"[quoted]\"\"\" = 1

[mcp_servers.docs]
command = "npx"
args = ['-y', '''x
[mcp_servers.no]
''']
# tail

# about the next
[mcp_servers.docs.env]
A = "b"

[[profiles]]
name = "x"
""".replace('"""[quoted]""" = 1', '"[quoted]" = 1')


def test_toml() -> None:
    made = put(TOML, CODEX, ("mcp_servers", "my server"), ENTRY, "f")
    assert made.startswith(f'{CODEX}\n[mcp_servers."my server"]\ncommand = "/opt/my env/bin/mcpd"\n')
    assert tomllib.loads(made)["mcp_servers"]["my server"] == ENTRY

    # Whoever writes behind our table keeps what he wrote, the comment of his table too.
    more = made + "\n# of the next\n[tui]\nx = 1\n"
    assert drop(TOML, more, ("mcp_servers", "my server"), "f") == CODEX + "\n# of the next\n[tui]\nx = 1\n"

    # Another's table goes with its own lines only.
    left = drop(TOML, CODEX, ("mcp_servers", "docs"), "f")
    assert "# tail" not in left  # it stood between its two tables
    assert left.startswith('model = "o4"  # mine\n')
    assert left.endswith('[[profiles]]\nname = "x"\n')


@pytest.mark.parametrize(
    "before",
    [
        "",
        "a = 1",
        "a = 1\r\n",
        "# c\n",
        "a = 1\n\n\n",
        "[mcp_servers]\nx = {command = 'a'}\n",
        "mcp_servers.x.command = 'a'\n",
    ],
)
def test_a_table_comes_and_goes(before: str) -> None:
    made = put(TOML, before, ("mcp_servers", "n"), {"command": "/m"}, "f")
    assert tomllib.loads(made)["mcp_servers"]["n"] == {"command": "/m"}
    assert drop(TOML, made, ("mcp_servers", "n"), "f") == before


def test_a_table_on_one_line() -> None:
    before = "mcp_servers = { x = { command = 'a' } } # all\n"
    made = put(TOML, before, ("mcp_servers", "n"), {"command": "/m"}, "f")
    assert tomllib.loads(made)["mcp_servers"]["n"] == {"command": "/m"}
    assert made.endswith(" # all\n")
    assert "n" not in tomllib.loads(drop(TOML, made, ("mcp_servers", "n"), "f"))["mcp_servers"]


GOOSE = """\
# of mine
GOOSE_MODEL: 'x'   # quoted so
extensions:
    developer:   # four spaces here
        enabled: true
        args:
        - a
        - "b"
        text: |
          many: lines

    # about memory
    memory: &m {enabled: yes, cmd: x}
    again: *m

# the rest
other: ~
"""


def test_yaml() -> None:
    made = put(YAML, GOOSE, ("extensions", "new"), {"cmd": "/m", "args": ["yes", "a b"], "enabled": True}, "f")
    lines = '    new:\n      cmd: /m\n      args:\n        - "yes"\n        - "a b"\n      enabled: true\n'
    assert made == GOOSE.replace("again: *m\n", f"again: *m\n{lines}")
    assert drop(YAML, made, ("extensions", "new"), "f") == GOOSE
    assert "about memory" in drop(YAML, made, ("extensions", "developer"), "f")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "k:\n  z:\n    a: 1\n"),
        ("# c\n", "# c\nk:\n  z:\n    a: 1\n"),
        ("x: 1", "x: 1\nk:\n  z:\n    a: 1"),
        ("x: 1\r\nk:\r\n", "x: 1\r\nk:\r\n  z:\r\n    a: 1\r\n"),
        ("k: {} # none\nx: 1\n", "k:\n  z:\n    a: 1 # none\nx: 1\n"),
        ("k: {b: 1}\n", 'k: {b: 1, "z": {"a": 1}}\n'),
        ('{"k": {}}\n', '{"k": {"z": {"a": 1}}}\n'),
        ("---\nk:\n b: |\n  text\n\n\n", "---\nk:\n b: |\n  text\n z:\n   a: 1\n\n\n"),
    ],
)
def test_where_a_mapping_goes(before: str, after: str) -> None:
    made = put(YAML, before, ("k", "z"), {"a": 1}, "f")
    assert made == after
    assert not drop(YAML, made, ("k", "z"), "f").count("z:") - before.count("z:")


def test_a_list_of_servers() -> None:
    before = "name: me\nmcpServers:\n- name: other\n  command: x # his\n\nrules: []\n"
    entry = {"name": "new", "command": "/m", "args": ["a"]}
    made = put(YAML, before, ("mcpServers", "new"), entry, "f", in_list=True)
    assert made == before.replace("his\n", "his\n- name: new\n  command: /m\n  args:\n    - a\n")
    assert put(YAML, made, ("mcpServers", "new"), entry, "f", in_list=True)
    assert drop(YAML, made, ("mcpServers", "new"), "f") == before
    fresh = put(YAML, "name: me\n", ("mcpServers", "new"), entry, "f", in_list=True)
    assert YAML.parse(fresh, "f")["mcpServers"] == [entry]


@pytest.mark.parametrize("name", ["jsonc", "toml", "yaml"])
def test_members_of_an_entry(name: str) -> None:
    """Ours become others, the user's own stay."""
    format, keys = format_named(name), ("servers", "n")
    text = put(format, "", keys, {"url": "http://a/", "timeout": 5, "env": {"A": "b"}}, "f")
    text = drop(format, text, (*keys, "url"), "f")
    text = put(format, text, (*keys, "env"), {"A": "c", "B": "d"}, "f")
    text = put(format, text, (*keys, "args"), ["x"], "f")
    assert format.parse(text, "f") == {"servers": {"n": {"timeout": 5, "env": {"A": "c", "B": "d"}, "args": ["x"]}}}


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("jsonc", '{\n  "a": 1\n  "b": 2\n}', "line 3, column 3"),
        ("jsonc", "{,}", "column 2"),
        ("jsonc", '{"a": NaN}', "NaN"),
        ("jsonc", "{'a': 1}", "line 1, column 2"),
        ("jsonc", "[]", "must contain an object"),
        ("toml", "a = 1\nb = \n", "line 2"),
        ("yaml", "a: 1\nb: c: d\n", "line 2, column 5"),
        ("yaml", "- a\n", "must contain a mapping"),
    ],
)
def test_what_cannot_be_read_is_not_written(name: str, text: str, where: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^f.*{where}"):
        put(format_named(name), text, ("k", "n"), {}, "f")


def test_what_would_say_something_else_is_refused() -> None:
    """An alias repeats the table, with what is added to it."""
    with pytest.raises(ConfigurationError, match=r"^f cannot be edited safely.*--print"):
        put(YAML, "k: &x\n  a: 1\nj: *x\n", ("k", "new"), {"cmd": "/m"}, "f")


# --------------------------------------------------------------------------------- by machine

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)
names = st.one_of(st.sampled_from(["a", "b", "n", "k"]), st.text("abcXYZ019_- .#é\"'", min_size=1, max_size=6))
values = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-9, 10**9),
        words,
        st.sampled_from(["// x", "/* y", "# z", "}", "]", "{", "a: b", "- c", "|"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=8,
)
documents = st.fixed_dictionaries(
    {
        "before": values,
        "k": st.dictionaries(names.filter(lambda name: name != "new"), values, min_size=1, max_size=3),
        "behind": values,
    }
)
line_ends = st.sampled_from(["\n", "\r\n"])


@st.composite
def json_texts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A document, as somebody may have written it."""
    document, nl = draw(documents), draw(line_ends)
    space = st.sampled_from(["", " ", "\t", nl, f"{nl}  ", f" // c }}{nl}", "/* , */", f"{nl}/* a{nl} b */{nl}    "])
    trailing = draw(st.booleans())

    def write(value: Any) -> str:
        def gap() -> str:
            return draw(space)

        if isinstance(value, dict):
            items = [f"{gap()}{json.dumps(key)}{gap()}:{gap()}{write(each)}{gap()}" for key, each in value.items()]
        elif isinstance(value, list):
            items = [f"{gap()}{write(each)}{gap()}" for each in value]
        else:
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        return opening + ",".join(items) + ("," if items and trailing else "") + gap() + closing

    return draw(space) + write(document) + draw(space), document


@given(json_texts())
@settings(max_examples=60, deadline=None)
def test_any_json(made: tuple[str, dict[str, Any]]) -> None:
    text, document = made
    assert JSON.parse(text, "f") == document
    longer = put(JSON, text, ("k", "new"), ENTRY, "f")
    assert JSON.parse(longer, "f")["k"]["new"] == ENTRY
    assert put(JSON, longer, ("k", "new"), ENTRY, "f") == longer
    assert drop(JSON, longer, ("k", "new"), "f") == text


@given(json_texts(), st.sampled_from(["before", "k", "behind"]))
@settings(max_examples=40, deadline=None)
def test_any_member_of_json_can_go(made: tuple[str, dict[str, Any]], key: str) -> None:
    text, document = made
    left = drop(JSON, text, (key,), "f")
    assert JSON.parse(left, "f") == {name: each for name, each in document.items() if name != key}
    notes = re.compile(r'"(?:[^"\\]|\\.)*"|(//[^\r\n]*|/\*.*?\*/)', re.DOTALL)
    assert {note.strip() for note in notes.findall(left)} <= {note.strip() for note in notes.findall(text)}


@st.composite
def toml_texts(draw: st.DrawFn) -> str:
    nl = draw(line_ends)
    note = st.sampled_from(["", "", " # [c] = 1", "\t# 'x"])
    value = st.one_of(
        st.integers().map(str),
        words.map(lambda text: json.dumps(text, ensure_ascii=False).replace("\x7f", "")),
        st.sampled_from(
            [
                "'#'",
                "[1, # x\n 2,\n]",
                '"""\n[no]\na = "b" \\\n"""',
                "'''x\n[mcp_servers.new]'''",
                "{ a = { b = 1 } }",
                "1979-05-27",
            ]
        ),
    )

    def pairs(prefix: str) -> list[str]:
        return [f"{prefix}{at} = {draw(value)}{draw(note)}" for at in range(draw(st.integers(0, 3)))]

    lines = pairs("top")
    for at in range(draw(st.integers(0, 4))):
        filler = st.lists(st.sampled_from(["", "# note", "  "]), max_size=2)
        lines += [
            *draw(filler),
            f"[{draw(st.sampled_from(['mcp_servers', 'other']))}.s{at}]{draw(note)}",
            *pairs("  v"),
        ]
        lines += draw(filler)
    return "\n".join(lines).replace("\n", nl) + draw(st.sampled_from(["", nl, nl * 2]))


@given(toml_texts())
@settings(max_examples=60, deadline=None)
def test_any_toml(text: str) -> None:
    longer = put(TOML, text, ("mcp_servers", "new"), ENTRY, "f")
    assert put(TOML, longer, ("mcp_servers", "new"), ENTRY, "f") == longer
    assert drop(TOML, longer, ("mcp_servers", "new"), "f") == text
    for name in tomllib.loads(text).get("mcp_servers", {}):
        assert name not in tomllib.loads(drop(TOML, text, ("mcp_servers", name), "f")).get("mcp_servers", {})


@st.composite
def yaml_texts(draw: st.DrawFn) -> str:
    nl, step = draw(line_ends), draw(st.integers(1, 4))
    note = st.sampled_from(["", "", " # c: d", "   # x"])
    filler = st.lists(st.sampled_from(["", "# note", "      # deep", "  "]), max_size=2)
    scalar = st.one_of(
        st.integers(0, 99).map(str),
        words.map(lambda text: json.dumps(text, ensure_ascii=True)),
        st.sampled_from(["a b", "'it''s'", "{x: [1, 2], y: z}", "[]", "~", "yes"]),
    )

    def write(indent: int, depth: int) -> list[str]:
        lines: list[str] = []
        for at in range(draw(st.integers(1, 3))):
            lead = " " * indent
            kind = draw(st.sampled_from(["scalar", "map", "list", "text", "none"] if depth else ["scalar", "none"]))
            if kind == "map":
                lines += [f"{lead}m{at}:{draw(note)}", *write(indent + step, depth - 1)]
            elif kind == "list":
                lines += [f"{lead}l{at}:", *(f"{lead}- {draw(scalar)}{draw(note)}" for _ in range(2))]
            elif kind == "text":
                lines += [f"{lead}t{at}: |", f"{lead}    one # no comment", f"{lead}    k: two"]
            else:
                lines.append(f"{lead}s{at}: {draw(scalar)}{draw(note)}" if kind == "scalar" else f"{lead}s{at}:")
            if kind != "text":  # it would be of that text
                lines += draw(filler)
        return lines

    lines = [*draw(filler), *write(0, 1), "k:", *write(step, 2)]
    if draw(st.booleans()):
        lines += ["after: 1", *draw(filler)]
    return nl.join(lines) + draw(st.sampled_from(["", nl, nl * 2]))


@given(yaml_texts())
@example("k:\n t0: |\n     one\n m1:\n  t2: |\n      one # no comment\n      k: two\n      # deep")
@example("k:\n t0: >2\n   one")
@settings(max_examples=40, deadline=None)
def test_any_yaml(text: str) -> None:
    """Even a file that ends within a text: that text then gets a mark which keeps it without a line end."""
    longer = put(YAML, text, ("k", "new"), ENTRY, "f")
    assert YAML.parse(longer, "f")["k"]["new"] == ENTRY
    assert put(YAML, longer, ("k", "new"), ENTRY, "f") == longer
    shorter = drop(YAML, longer, ("k", "new"), "f")
    assert YAML.parse(shorter, "f") == YAML.parse(text, "f")
    assert re.sub(r"(: [|>]2?)-", r"\1", shorter) == text


def test_the_last_server_is_removed_below_a_text() -> None:
    text = "k:\n a:\n  t: |\n   one\n b: 1"
    assert drop(YAML, text, ("k", "b"), "f") == "k:\n a:\n  t: |\n   one\n"
