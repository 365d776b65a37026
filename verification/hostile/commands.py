"""The commands that read damaged input, and what each of them may write."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from verification.hostile.payloads import CODE

OUTPUT_FOLDER = "the output folder"


@dataclass(frozen=True)
class Command:
    """words: of the command line. writes: a path below the project, or OUTPUT_FOLDER; None: nothing."""

    words: tuple[str, ...]
    writes: str | None = None


BUILD = Command(("build",), OUTPUT_FOLDER)
_SHAPES = (
    ("rows=16", "columns=32", "heads=2"),
    ("rows=0", "columns=-1", "heads=1_000_000_000_000_000_000"),
    ("rows=16", "columns=32", "heads=2", "--json"),
)


def command_for(random: Random, kind: str) -> Command:
    """A command that reads what this kind of damage hurt: a build, mostly."""
    if "cache" in kind:
        credit = ("--origin", random.choice(CODE[:-1]).replace("\0", "")) if random.random() < 0.3 else ()
        return Command(("import", "dejavu", "caches", "--to", "imported", *credit), "imported")
    choices = {
        BUILD: 70,
        Command(("build", "--check")): 6,
        Command(("build", "--fresh"), OUTPUT_FOLDER): 6,
        Command(("check", "--jobs", "1", "--skip", "code", "--skip", "compile")): 5,
        Command(("explain", "scale", *random.choice(_SHAPES))): 5,
        Command(("diff", "../older", "--format", random.choice(("terminal", "markdown", "json")))): 5,
        Command(("diff", ".", "../older")): 1,
        Command(("report", "--device", "first", "--out", "page.html"), "page.html"): 2,
    }
    return random.choices(list(choices), list(choices.values()))[0]
