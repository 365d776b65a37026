"""What hostile input is made of: names, texts, numbers, cells, expressions, paths."""

from __future__ import annotations


def words(text: str) -> list[str]:
    return text.split()


NAMES = (
    *words("class match lambda None True print max min int __import__ __init__ __class__ __dict__"),
    *words("_asdict"),
    *words("_fields _ self cls mro bit_length variant choose config default for_device Config MODULES"),
    *words("_Choose count index name arch vendor known typing collections os sys generated scale"),
    *words("treegen"),
    *words("a-b a.b a/b ../a /etc/passwd ~ 0a con nul A 1e3 =1+1 rows block first area x1 parameter"),
    *words("null"),
    *("a b", "a\nb", "a'b", 'a"b', "a\\b", "a\0b", "", "a" * 64, "a" * 65, "a" * 5000, "true", "yes"),
    *("\u00e9", "r\u043ews", "rows\u200b", "\ufb01", "\U0001d42bows", "\uff52ows", "a\u202eb"),
    *("[bold]a[/bold]", "\x1b[2J", "{{a}}", "<b>", "a|b", "`a`"),
)
"""For features, parameters, variants, kernels, devices, ids."""

CODE = (
    '"); import os; os.system("touch pwned") #',
    "'); import os; os.system('touch pwned') #",
    '"""\nimport os\nos.system("touch pwned")\n"""',
    "'''\nimport os\nos.system('touch pwned')\n'''",
    '\nimport os; os.system("touch pwned")\n',
    "__import__('os').system('touch pwned')",
    "open('pwned', 'w')",
    "{{ 7 * 7 }}{{ cycler.__init__.__globals__.os.system('touch pwned') }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{% endfor %}",
    "{# comment #}{% raw %}",
    "{kernel.name!r} {0.__class__} %s %(a)s ${HOME} `touch pwned` $(touch pwned)",
    "\\N{BULLET} \\x22 \\u0022 \\42 \\",
    'a\\\nb\\"',
    "# type: ignore\n*/ --> ]]> </script><script>alert(1)</script>",
    "\u202eevil\u2066 \u2028import os\u2029 \x85 \x0c \x0b \r import os",
    "\ud800 \udfff \ufeff \0",
    "a\tb",
    "[/x][bold]7[/bold][link=file:///etc/passwd]x[/link] \x1b[2Jgone",
    "| a | b |\n<img src=x onerror=alert(1)> ![](javascript:alert(1)) `a``",
    "=cmd|' /C calc'!A0",
    "x" * 100_000,
)
"""Texts that would be code, markup or a command if anything took them for more than text."""

NUMBERS: tuple[float | int | bool | None, ...] = (
    *(float("nan"), float("inf"), float("-inf"), 1e308, 5e-324, -0.0, 0.5, 1.5, True, False, None),
    *(-1, 0, 1, 2, 33, 1025, 2**31 - 1, 2**31, 2**62, 2**62 + 1, -(2**62), 2**63, -(2**63), 2**64),
    *(10**18, -(10**18), 10**30, 10**400, 10**4000),
)

CELLS = (
    *words("nan NaN inf -inf Infinity 0 -0 -1 1 2 1e99 1e-99 1e11 0.001 0.0009 999999999999 0x10 1_0"),
    *words("+5"),
    *words("5. .5 1.5 4611686018427387904 -4611686018427387904 4611686018427387905 9223372036854775808"),
    *("", "9" * 19, "9" * 30, "9" * 5000, " 5", "True", "None", "\u0663", "\uff15", "\u00b2", "s001", "s999"),
    *("../s001", "/", "a,b", 'a"b', '"', "a\nb", "a\rb", "a\0b", "=1+1", "b16", "x" * 200_000, "\u202e1"),
)

SNIPPETS = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b" ", b"'", b'"', b",", b":", b"- ", b"#", b"{"),
    *(b"]", b"&a ", b"*a", b"!!int ", b"!!bool ", b"!!python/name:os.system ", b"|\n", b"---\n", b"...\n"),
    *b"%,@,\\,~,nan,inf,-1,0,1e99,1e999,0x10,1_0,(),1or 2,\\\\d,true,null,../..,lambda,rows,**,//".split(
        b","
    ),
    *(b"<<: ", b"? ", b"9" * 30, b"0x" + b"f" * 5000, b"a" * 300, b"__import__", b"import os\n"),
    *(b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xe2\x80\xae", b"/etc/passwd"),
)

EXPRESSIONS = (
    *("*".join(["rows"] * 60), "*".join(["9"] * 60), "-" * 290 + "rows", "(" * 140 + "rows" + ")" * 140),
    *("-(rows" * 40 + ")" * 40, "next_power_of_2(" * 17 + "rows" + ")" * 17),
    *("max(" * 50 + "rows" + ",1)" * 50,),
    *("rows // columns", "rows // 0", "rows // max(0, rows)", "rows // -1", "rows // next_power_of_2(rows)"),
    *("rows ** 9", "9 ** 9 ** 9", "1 << rows", "1 << 9999999", "rows % 3", "rows / 2", "not rows"),
    *("rows if 1",),
    *("lambda: 0", "(rows := 5)", "[rows for rows in (1,)]", "rows.real", "rows[0]", "f'{rows}'", "'a' * 9"),
    *("__import__('os').system('touch pwned')", "max(rows)", "max(*rows)", "max(rows, key=columns)"),
    *("1.5 * rows", "True", "None", "...", "1_000 * rows", "1or 2", "0xfor rows", "1if 2else 3"),
    *("'\\d'", "b''"),
    *("rows * area", "share * share", "block >= rows * columns", "block >= -rows", "rows <= rows", "1 <= 2"),
    *("2 <= 1", "block >= heads * heads", "heads >= 1 - block", "rows <= 1 <= 2", "rows == 1", "memory", "0"),
    *("", " rows", "rows\n+ 1", "rows #", "rows; 1", "\u212aows", str(2**62), str(2**63), "9" * 299),
)
"""For derived features, constraints, weights and regimes."""

PATHS = (
    *words(".. ../outside ../../.. / /etc /tmp/pwned . ./ ~ ~root tables tables/measured -rf"),
    *words("generated/../.."),
    *words("tables/../tables/measured tables/link link generated/scale caches treegen.yaml new/folder"),
    *("", "a" * 300, "a/" * 2000, "a\0b", "a\nb", "\udc80", "C:\\x", "file:///etc", "generated\u200b"),
)
"""For folders that the spec names."""

LINK_TARGETS = (
    *words("/dev/zero /dev/null /dev/full /dev/stdin /proc/self/mem /etc/passwd /nowhere .. ."),
    *words("../outside"),
    *("../../outside/other.py", "notes.txt", "x" * 300),
)

MODULE_LINES = (
    'import os\nos.system("touch pwned")',
    'PLAIN_B16_W2 = Config(__import__("os").system("touch pwned"))',
    "    while True:\n        pass",
    "    return rows",
    "    if rows <= 9**9**9:\n        return PLAIN_B16_W2",
    "    if rows <= 0x" + "f" * 5000 + ":\n        return PLAIN_B16_W2",
    "    rows = 5",
    "    if rows <= " + "(" * 300 + "1" + ")" * 300 + ":",
    "# comment",
    "class Config: pass",
)
"""For modules of an earlier build."""

YAML_BLOCKS = (
    "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [{f'*a{k - 1}, ' * 9}]\n" for k in range(1, 12)),
    "a: &a [*a]\n",
    "a: &a {output: x}\n<<: *a\n",
    "<<: {output: elsewhere}\n",
    "---\noutput: elsewhere\n",
    "...\n---\n{}\n",
    "%YAML 1.1\n---\n",
    "%TAG ! tag:yaml.org,2002:python/\n---\na: !object/apply:os.system [touch pwned]\n",
    "a: !!python/object/apply:os.system ['touch pwned']\n",
    "a: !!binary aGk=\n",
    "a: !!timestamp 2026-13-45\n",
    "a: !!set {b}\n",
    "? [a, b]\n: 1\n",
    "format: 1\nformat: 1\n",
    '"f\\u006frmat": 2\n',
    "output: /tmp\n",
    f"a: {'[' * 300}{']' * 300}\n",
    f"a: {'[' * 50_000}\n",
    f"a: {'- ' * 3000}\n",
    "".join(f"{' ' * k}a:\n" for k in range(400)),
    f"a: 1{':30' * 20_000}\n",
    f"a: 0x{'f' * 100_000}\n",
    f"a: {'9' * 100_000}\n",
    f"a: 1e{'9' * 1000}\n",
    f"features: [{', '.join(f'f{k}' for k in range(30_000))}]\n",
    "".join(f"k{k}: {k}\n" for k in range(20_000)),
    'a: "\\ud800\\x00\\e[2J\\u202e\\L\\P"\n',
)
"""What YAML can express beside plain data."""
