"""Damage to the bytes of a file, whatever they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from verification.hostile.folder import Folder
from verification.hostile.payloads import SNIPPETS


def damage(random: Random, folder: Folder, name: str) -> None:
    """Damage one file in one to three places."""
    text = content(folder, name)
    for _ in range(random.choice((1, 1, 2, 3))):
        text = random.choice(_WAYS)(random, text, content(folder, random.choice(_files(folder))))
    folder[name] = text


def content(folder: Folder, name: str) -> bytes:
    """The bytes of a file; of what is none, none."""
    entry = folder.get(name)
    return entry if isinstance(entry, bytes) else b""


def _files(folder: Folder) -> Sequence[str]:
    return sorted(name for name, entry in folder.items() if isinstance(entry, bytes))


def _place(random: Random, text: bytes) -> int:
    return random.randint(0, len(text))


def _cut(random: Random, text: bytes, _: bytes) -> bytes:
    return text[: _place(random, text)]


def _behead(random: Random, text: bytes, _: bytes) -> bytes:
    return text[_place(random, text) :]


def _insert(random: Random, text: bytes, _: bytes) -> bytes:
    place = _place(random, text)
    return text[:place] + random.choice(SNIPPETS) + text[place:]


def _replace(random: Random, text: bytes, _: bytes) -> bytes:
    place = _place(random, text)
    return text[:place] + random.choice(SNIPPETS) + text[place + random.randint(0, 12) :]


def _flip(random: Random, text: bytes, _: bytes) -> bytes:
    flipped = bytearray(text)
    for _bit in range(random.randint(1, 4) if text else 0):
        flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
    return bytes(flipped)


def _noise(random: Random, text: bytes, _: bytes) -> bytes:
    place = _place(random, text)
    return text[:place] + bytes(random.randrange(256) for _ in range(random.randint(1, 9))) + text[place:]


def _swap(random: Random, text: bytes, _: bytes) -> bytes:
    one, two, three = sorted(_place(random, text) for _ in range(3))
    return text[:one] + text[two:three] + text[one:two] + text[three:]


def _repeat(random: Random, text: bytes, _: bytes) -> bytes:
    one, two = sorted(_place(random, text) for _ in range(2))
    return text[:two] + text[one:two] * random.choice((1, 2, 50)) + text[two:]


def _lines(random: Random, text: bytes, _: bytes) -> bytes:
    lines = text.splitlines(keepends=True) or [b""]
    line, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            lines[line:line] = [lines[other]]
        case 1:
            del lines[line]
        case 2:
            lines[line], lines[other] = lines[other], lines[line]
        case _:
            lines[line] = b" " * random.randint(0, 4) + lines[line].lstrip()
    return b"".join(lines)


def _long(random: Random, text: bytes, _: bytes) -> bytes:
    place = _place(random, text)
    filling = random.choice((b"x", b" ", b"9", b"[", b"{a: ", b"(", b",", b"- ", b"\n", b'"', b"\\", b"-"))
    return text[:place] + filling * random.choice((1_000, 20_000, 200_000)) + text[place:]


def _splice(random: Random, text: bytes, other: bytes) -> bytes:
    return text[: _place(random, text)] + other[_place(random, other) :]


def _ends(random: Random, text: bytes, _: bytes) -> bytes:
    return text.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b"\x0b", b"")))


def _encoded(random: Random, text: bytes, _: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode(
        random.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037")), "replace"
    )


_WAYS: tuple[Callable[[Random, bytes, bytes], bytes], ...] = (
    *(_cut, _behead, _insert, _insert, _replace, _replace, _flip, _flip, _noise, _swap, _repeat),
    *(_lines, _lines, _long, _splice, _ends, _encoded),
)
