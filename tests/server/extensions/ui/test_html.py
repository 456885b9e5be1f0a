"""What has to be true of a View's HTML (APP-S-04)."""

from __future__ import annotations

import pytest

from mcpd.server.extensions.ui.assets import MAX_HTML_BYTES, WARN_HTML_BYTES, html_problems

GOOD = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>x</title></head><body>é</body></html>'


@pytest.mark.parametrize(
    "html",
    [
        GOOD,
        "\ufeff" + GOOD,
        " \r\n\t<!-- a comment --> <!-- another --><!DOCTYPE HTML>\n<meta charset=UTF-8>",
        "<!DOCTYPE html SYSTEM \"about:legacy-compat\"><meta charset='utf-8'>",
        "<!doctype   html  ><meta  charset = utf-8 />",
        '<!doctype html><meta name=x><META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=utf8">',
        '<!doctype html><head data-x="<!--"><meta charset="utf-8"/>',
    ],
)
def test_good_documents(html: str) -> None:
    assert html_problems("app x", html) == []


@pytest.mark.parametrize(
    ("html", "reason"),
    [
        ("", "the HTML is empty"),
        (" \n<!-- only this -->\n", "the HTML is empty"),
        ("<!-- never closed <!doctype html>", "the HTML is empty"),
        ("<html></html>", "no doctype"),
        ("hello", "no doctype"),
        ('<?xml version="1.0"?><!doctype html>', "no doctype"),
        ("<!doctype svg>", "an older doctype"),
        ('<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x.dtd">', "an older doctype"),
        ("<!doctype html", ""),
        ("<!doctypehtml>", ""),
    ],
)
def test_documents_that_are_none(html: str, reason: str) -> None:
    errors = [problem for problem in html_problems("app x", html) if problem.is_error]
    assert [problem.where for problem in errors] == (["app x"] if reason else [])
    if reason:
        assert reason in errors[0].text


@pytest.mark.parametrize(
    ("html", "reason"),
    [
        ("<!doctype html><title>x</title>", "no <meta charset"),
        (f"<!doctype html><!--{'x' * 1024}--><meta charset=utf-8>", "within the first 1024 bytes"),
        ("<!doctype html><meta charset=latin-1>", "declares charset latin-1"),
        ('<!doctype html><meta content="text/html; charset=windows-1252">', "declares charset windows-1252"),
        ("<!doctype html><meta charset=>", "no <meta charset"),
        ("<!doctype html><meta name='charset'>", "no <meta charset"),
        (GOOD + "x" * WARN_HTML_BYTES, "apps over 1048576 start slowly"),
    ],
    ids=["none", "too late", "latin-1", "http-equiv", "empty", "only a name", "large"],
)
def test_what_works_but_not_everywhere(html: str, reason: str) -> None:
    (problem,) = html_problems("app x", html)
    assert not problem.is_error
    assert reason in problem.text


def test_limits_are_in_bytes() -> None:
    """Hosts count UTF-8 bytes, not characters."""
    assert html_problems("app x", GOOD + "é" * (WARN_HTML_BYTES // 2))
    (problem,) = html_problems("app x", GOOD + "é" * (MAX_HTML_BYTES // 2))
    assert problem.is_error
    assert "hosts refuse more than 16777216" in problem.text
    (problem,) = html_problems("app x", GOOD + "x" * (MAX_HTML_BYTES - len(GOOD.encode())))
    assert not problem.is_error


def test_half_of_a_surrogate_pair() -> None:
    (problem,) = html_problems("app x", GOOD + "\udc00")
    assert "cannot be written as UTF-8" in problem.text
