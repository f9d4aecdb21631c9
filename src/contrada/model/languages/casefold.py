"""Case folding for `nocase`: Unicode's simple folding, statuses C and S, pinned.

The table is part of the protocol: every process must fold alike, whatever the Unicode version of
its interpreter. It is that of `UNICODE_VERSION` (the folding of a character if that is one
character, else its lower case if that is one); a test compares it. Folding maps one character to
one character. Bytes that are not UTF-8 remain unchanged.
"""

from functools import cache
from typing import Final

from contrada.model.languages.work_budget import spend

UNICODE_VERSION: Final = "14.0.0"

_FOLDINGS: Final = """
+1 100-12e/2 132-136/2 139-147/2 14a-176/2 179-17d/2 182-184/2 187 18b 191 198 1a0-1a4/2 1a7 1ac 1af
1b3-1b5/2 1b8 1bc 1c5 1c8 1cb-1db/2 1de-1ee/2 1f2-1f4/2 1f8-21e/2 222-232/2 23b 241 246-24e/2
370-372/2 376 3c2 3d8-3ee/2 3f7 3fa 460-480/2 48a-4be/2 4c1-4cd/2 4d0-52e/2 1e00-1e94/2 1ea0-1efe/2
2183 2c60 2c67-2c6b/2 2c72 2c75 2c80-2ce2/2 2ceb-2ced/2 2cf2 a640-a66c/2 a680-a69a/2 a722-a72e/2
a732-a76e/2 a779-a77b/2 a77e-a786/2 a78b a790-a792/2 a796-a7a8/2 a7b4-a7c2/2 a7c7-a7c9/2 a7d0
a7d6-a7d8/2 a7f5 -8 13f8-13fd 1f08-1f0f 1f18-1f1d 1f28-1f2f 1f38-1f3f 1f48-1f4d 1f59-1f5f/2
1f68-1f6f 1f88-1f8f 1f98-1f9f 1fa8-1faf 1fb8-1fb9 1fd8-1fd9 1fe8-1fe9 +32 41-5a c0-d6 d8-de 391-3a1
3a3-3ab 410-42f ff21-ff3a 118a0-118bf 16e40-16e5f +2 1c4 1c7 1ca 1f1 +39 10570-1057a 1057c-1058a
1058c-10592 10594-10595 -9 1fbc 1fcc 1ffc +218 1a6 1a9 1ae +7264 10a0-10c5 10c7 10cd -7 3f9 1fec +40
10400-10427 104b0-104d3 -48 3f1 a7c4 +48 531-556 2c00-2c2f +64 38c 10c80-10cb2 +116 345 37f -130 220
3fd-3ff +205 189-18a 193 +211 196 19c -3008 1c90-1cba 1cbd-1cbf -42308 a7aa a7ae +8 3cf -15 3d5 +15
4c0 +16 2160-216f -22 3d6 -25 3d1 +26 24b6-24cf +28 2132 -30 3d0 +34 1e900-1e921 +37 388-38a +38 386
-54 3f0 -56 1f7 -58 1e9b -60 3f4 +63 38e-38f -64 3f5 +69 244 +71 245 -74 1fba-1fbb +79 18e +80
400-40f -86 1fc8-1fcb -97 1f6 -100 1fda-1fdb -112 1fea-1feb -121 178 -126 1ffa-1ffb -128 1ff8-1ff9
-163 23d -195 243 +202 18f +203 190 +206 186 +207 194 +209 197 +210 181 +213 19d +214 19f +217
1b1-1b2 +219 1b7 -268 17f +775 b5 +928 a7b3 -3814 2c63 -6180 1c87 -6204 1c86 -6210 1c83-1c84 -6211
1c85 -6212 1c82 -6221 1c81 -6222 1c80 -7173 1fbe -7517 2126 -7615 1e9e -8262 212b -8383 212a -10727
2c64 -10743 2c62 -10749 2c6e -10780 2c6d -10782 2c70 -10783 2c6f +10792 23e +10795 23a -10815
2c7e-2c7f +35267 1c88 -35332 a77d -35384 a7c6 -38864 ab70-abbf -42258 a7b0 -42261 a7b2 -42280 a78d
-42282 a7b1 -42305 a7ad -42307 a7c5 -42315 a7ac -42319 a7ab
"""
"""Differences to the folded code point, each before its characters: hexadecimal codes, and ranges
of codes or of every second one (`/2`)."""

_BYTES_PER_STEP: Final = 10  # Bytes of other than ASCII that are folded in a step of work


def _read_table() -> dict[int, int]:
    table: dict[int, int] = {}
    offset = 0
    for token in _FOLDINGS.split():
        if token[0] in "+-":
            offset = int(token)
            continue
        ends, _, step = token.partition("/")
        first, _, last = ends.partition("-")
        codes = range(int(first, 16), int(last or first, 16) + 1, int(step or "1"))
        table |= {code: code + offset for code in codes}
    return table


TABLE: Final = _read_table()
"""Code point to folded code point, where they differ. Serves `str.translate`."""


def fold(text: bytes) -> bytes:
    """Returns the text with every character folded. Cost: linear."""
    if text.isascii():
        return text.lower()
    if len(text) > _BYTES_PER_STEP:
        spend(len(text) // _BYTES_PER_STEP)
    unfolded = text.decode("utf-8", "surrogateescape")
    return unfolded.translate(TABLE).encode("utf-8", "surrogateescape")


def spellings(character: str) -> tuple[bytes, ...]:
    """Returns the UTF-8 of all characters that fold to the same as this one, in order."""
    folded = ord(character.translate(TABLE))
    return tuple(chr(code).encode() for code in characters_by_fold().get(folded, (folded,)))


@cache
def characters_by_fold() -> dict[int, list[int]]:
    """Returns all characters that fold to a character, in order, where there are several."""
    found: dict[int, list[int]] = {}
    for code, folded in TABLE.items():
        found.setdefault(folded, [folded]).append(code)
    return {folded: sorted(codes) for folded, codes in found.items()}
