"""What YAML can do beside plain data."""

from __future__ import annotations

from random import Random

from verification.hostile.bytewise import content
from verification.hostile.folder import Folder

_LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [{f'*a{k - 1}, ' * 9}]\n" for k in range(1, 12))
_BLOCKS = (
    _LAUGHS,
    "a: &a [*a]\n",
    "a: &a {b: *a}\n",
    "<<: {output: elsewhere}\n",
    "a: &a {output: x}\n<<: *a\n",
    "---\noutput: elsewhere\n",
    "...\n---\n{}\n",
    "%YAML 1.1\n---\n",
    "%TAG ! tag:yaml.org,2002:python/\n---\na: !object/apply:os.system [touch pwned]\n",
    "a: !!python/object/apply:os.system ['touch pwned']\n",
    "!!python/name:os.system : 1\n",
    "a: !!binary aGk=\n",
    "a: !!timestamp 2026-13-45\n",
    "a: 2026-99-99\n",
    "a: !!set {b}\n",
    "a: !!omap [b: 1]\n",
    "? [a, b]\n: 1\n",
    "? {a: 1}\n: 1\n",
    "? a\n",
    "format: 1\nformat: 1\n",
    "'format': 2\n",
    '"f\\u006frmat": 2\n',
    "output: /tmp\n",
    f"a: {'[' * 300}{']' * 300}\n",
    f"a: {'{a: ' * 2000}{'}' * 2000}\n",
    f"a: {'[' * 50_000}\n",
    f"a: {'- ' * 3000}\n",
    "".join(f"{' ' * k}a:\n" for k in range(400)),
    f"a: 1{':30' * 20_000}\n",
    f"a: 1{':30' * 20_000}.5\n",
    f"a: 0x{'f' * 100_000}\n",
    f"a: {'9' * 100_000}\n",
    f"a: 0b{'1_' * 50_000}\n",
    f"a: .{'9' * 100_000}\n",
    f"a: 1e{'9' * 1000}\n",
    f"a: [{'x, ' * 30_000}]\n",
    f"features: [{', '.join(f'f{k}' for k in range(30_000))}]\n",
    "".join(f"k{k}: {k}\n" for k in range(20_000)),
    'a: "\\ud800\\x00\\e[2J\\u202e\\L\\P"\n',
    'a: "\\U0010ffff\\N\\_"\n',
    'a: "\\U99999999"\n',
    "a: |\n  b\n   c\n d\n",
    "a: >+999\n  b\n",
    "a: 'b\n\n\n  c'\n",
    "a: &x !!str &y b\n",
    "a: yes\nb: NO\nc: off\nd: ~\ne: .NaN\nf: -.inf\ng: 0o17\nh: 017\ni: 1_000\n",
    "a:\tb\n",
    "\ta: b\n",
    "a: b: c\n",
    "@a: 1\n",
    "a: `b`\n",
    "# " + "x" * 100_000 + "\n",
    "\ufeffa: 1\n",
)


def damage(random: Random, folder: Folder, name: str) -> None:
    """One trick at the beginning, at the end, between two lines, or in place of a value."""
    lines = content(folder, name).splitlines(keepends=True) or [b""]
    block = random.choice(_BLOCKS).encode("utf-8", "surrogatepass")
    place = random.choice((0, len(lines), random.randrange(len(lines) + 1)))
    indent = b" " * random.choice((0, 0, 0, 2, 4))
    if random.random() < 0.3:
        line = random.randrange(len(lines))
        head, colon, _ = lines[line].partition(b": ")
        lines[line] = head + (colon or b": ") + block.partition(b": ")[2]
    else:
        lines[place:place] = [indent + part for part in block.splitlines(keepends=True)]
    folder[name] = b"".join(lines)
