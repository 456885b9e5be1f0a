"""PDF files that are small and cost without end: a huge number of pages, circles, depth, streams that explode."""

from __future__ import annotations

import zlib

__all__ = ["BOMBS"]


def obj(number: int, body: bytes) -> bytes:
    return b"%d 0 obj\n%b\nendobj\n" % (number, body)


def stream(number: int, said: bytes, data: bytes) -> bytes:
    return obj(number, b"<<%b/Length %d>>\nstream\n%b\nendstream" % (said, len(data), data))


def whole(objects: list[bytes]) -> bytes:
    """A file of these, the first of which is the catalog."""
    out, places = b"%PDF-1.7\n", []
    for each in objects:
        places.append(len(out))
        out += each
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    table = b"xref\n0 %d\n0000000000 65535 f \n%b" % (len(objects) + 1, rows)
    end = b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(out))
    return out + table + end


def page(contents: bytes = b"5 0 R", more: bytes = b"") -> bytes:
    resources = b"/Resources<</Font<</F 4 0 R>>%b>>" % more
    return obj(3, b"<</Type/Page/Parent 2 0 R%b/MediaBox[0 0 9 9]/Contents %b>>" % (resources, contents))


def flate(number: int, size: int, rounds: int = 1) -> bytes:
    data = b" " * size
    for _ in range(rounds):
        data = zlib.compress(data, 9)
    return stream(number, b"/Filter[%b]" % (b"/FlateDecode" * rounds), data)


def in_a_circle(data: bytes) -> bytes:
    """Its table says that the one before it is itself."""
    place = data.rsplit(b"startxref\n", 1)[1].split()[0]
    return data.replace(b"/Root 1 0 R", b"/Root 1 0 R/Prev " + place)


CAT = obj(1, b"<</Type/Catalog/Pages 2 0 R>>")
PAGES = obj(2, b"<</Type/Pages/Kids[3 0 R]/Count 1>>")
FONT = obj(4, b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
TEXT = b"BT /F 9 Tf (Hello) Tj ET\n"
FORM = b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 6 0 R>>>>"

BOMBS: dict[str, bytes] = {
    "kids are their parents": whole(
        [CAT, obj(2, b"<</Type/Pages/Kids[2 0 R 3 0 R 2 0 R]/Count 9>>"), page(), FONT, stream(5, b"", TEXT)]
    ),
    "doubling kids": whole(
        [
            CAT,
            *[obj(n, b"<</Type/Pages/Kids[%d 0 R %d 0 R]/Count 2>>" % (n + 1, n + 1)) for n in range(2, 40)],
            obj(40, b"<</Type/Page/MediaBox[0 0 9 9]>>"),
        ]
    ),
    "deep arrays": whole([CAT, PAGES, page(b"[" * 200000 + b"]" * 200000), FONT]),
    "explodes": whole([CAT, PAGES, page(), FONT, flate(5, 100_000_000)]),
    "explodes as text": whole(
        [CAT, PAGES, page(), FONT, stream(5, b"/Filter/FlateDecode", zlib.compress(TEXT * 2_000_000, 9))]
    ),
    "forms in a circle": whole(
        [
            CAT,
            PAGES,
            page(b"5 0 R", b"/XObject<</X 6 0 R>>"),
            FONT,
            stream(5, b"", b"/X Do " * 5),
            stream(6, FORM, b"/X Do " * 20),
        ]
    ),
    "references in a circle": whole([CAT, PAGES, page(b"6 0 R"), FONT, obj(5, b"6 0 R"), obj(6, b"5 0 R")]),
    "tables in a circle": in_a_circle(whole([CAT, PAGES, page(), FONT, stream(5, b"", TEXT)])),
    "huge length": whole(
        [CAT, PAGES, page(), FONT, obj(5, b"<</Length 999999999999>>\nstream\n" + TEXT + b"\nendstream")]
    ),
    "huge size of the table": whole([CAT, PAGES, page(), FONT, stream(5, b"", TEXT)]).replace(
        b"xref\n0 6", b"xref\n0 999999999"
    ),
    "predictor": whole(
        [
            CAT,
            PAGES,
            page(),
            FONT,
            stream(
                5, b"/Filter/FlateDecode/DecodeParms<</Predictor 12/Columns 999999999>>", zlib.compress(TEXT * 1000)
            ),
        ]
    ),
    "huge count": whole(
        [CAT, obj(2, b"<</Type/Pages/Kids[3 0 R]/Count 2000000000>>"), page(), FONT, stream(5, b"", TEXT)]
    ),
}
