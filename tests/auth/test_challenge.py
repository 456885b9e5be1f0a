"""`WWW-Authenticate`, built and read."""

from time import process_time

import pytest

from mcpd.transports.challenge import Challenge, build, parse


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("Bearer", [("Bearer", {}, "")]),
        ('Bearer realm="x"', [("Bearer", {"realm": "x"}, "")]),
        ("bearer ERROR=invalid_token", [("bearer", {"error": "invalid_token"}, "")]),
        ('Bearer realm = "a b" ,\tscope ="x"', [("Bearer", {"realm": "a b", "scope": "x"}, "")]),
        # Commas and equals signs in quotes, escapes, and a scope that is only spoken of.
        (
            r'Bearer error_description="say scope=\"all\", please", scope="a b"',
            [("Bearer", {"error_description": 'say scope="all", please', "scope": "a b"}, "")],
        ),
        # Several challenges, of which some have nothing, and one a token68.
        (
            'Basic, Negotiate dG9rZW4=, DPoP algs="ES256", Bearer scope="a", error="e"',
            [
                ("Basic", {}, ""),
                ("Negotiate", {}, "dG9rZW4="),
                ("DPoP", {"algs": "ES256"}, ""),
                ("Bearer", {"scope": "a", "error": "e"}, ""),
            ],
        ),
        (", ,Bearer ,, a=b,,", [("Bearer", {"a": "b"}, "")]),
        ("Bearer a=1, A=2", [("Bearer", {"a": "1"}, "")]),
        # What cannot be read is skipped; what belongs to no challenge too.
        ('scope="stray", Bearer a="1"', [("Bearer", {"a": "1"}, "")]),
        ('Bearer a="1" junk "x, y=z", b=2', [("Bearer", {"a": "1", "b": "2"}, "")]),
        ('Bearer a="1", b="never closed, c=3', [("Bearer", {"a": "1"}, "")]),
        ('Bearer b=2, a=, =c, "d", ;e', [("Bearer", {"b": "2"}, "")]),
        ("Bearer a=\xe4\xf6, b=2", [("Bearer", {"b": "2"}, "")]),
    ],
)
def test_what_is_read(line, expected):
    """AUTH-160, H24: several challenges in a line, quoted commas, any scheme's parameters."""
    assert [(found.scheme, dict(found.params), found.token68) for found in parse([line])] == expected


def test_several_lines_are_one_list():
    found = parse(['Bearer scope="b a b"', 'DPoP algs="ES256"'])
    assert [challenge.scheme for challenge in found] == ["Bearer", "DPoP"]
    assert found[0].scopes == ("b", "a")
    assert found[0].is_of("BEARER")
    assert not found[1].is_of("Bearer")
    assert found[1].scopes == ()


@pytest.mark.parametrize(
    "line",
    [
        'Bearer a="' + '\\"' * 30_000,
        "Bearer " + ", ".join(f"p{number}=1" for number in range(1_000)),
        "Bearer " + '"x" ' * 15_000,
        "a " * 30_000,
        "a=" * 30_000,
        "Bearer " + "=" * 60_000,
        ", " * 30_000 + "Bearer",
        'B "' * 20_000,
    ],
)
def test_a_hostile_line_takes_linear_time(line):
    """H24: 64 KiB of anything are read, or ignored, in less than what anybody would notice."""
    began = process_time()
    found = parse([line])
    assert process_time() - began < 5  # of what is quadratic it would be minutes
    assert len(found) <= 64


def test_what_is_longer_is_ignored():
    assert parse(["Bearer a=1", "x" * 64 * 1024, "DPoP"]) == [Challenge("Bearer", {"a": "1"})]


def test_what_is_built_is_read_again():
    """AUTH-020: values are quoted and escaped."""
    params = {"resource_metadata": "https://a.example/x", "scope": 'a"b \\c', "error": None}
    line = build("Bearer", params)
    assert line == r'Bearer resource_metadata="https://a.example/x", scope="a\"b \\c"'
    assert [dict(found.params) for found in parse([line])] == [{k: v for k, v in params.items() if v is not None}]
    assert build("Bearer", {}) == "Bearer"


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "\x00", "ä", "\x7f"])
def test_what_fits_into_no_header_is_refused(value):
    with pytest.raises(ValueError, match="printable ASCII"):
        build("Bearer", {"realm": value})


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not a parameter name"):
        build("Bearer", {"a b": "c"})
