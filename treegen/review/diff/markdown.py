"""A diff as a pull-request comment in GitHub's Markdown, which a terminal shows as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from treegen.core.errors import one_line
from treegen.review.diff.changes import Diff, Kind, Line, ModuleChange, Served
from treegen.review.diff.prices import Price, World
from treegen.review.printing import counted, percent

SHOWN = 12
"""The most lines of a module that are shown; the others are counted."""
_PLACES = 4  # of a line
_NAMED = 6  # modules that are the same; more are counted

_MARKUP = re.compile(
    r"[\\`*{}\[\]<|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # GitHub leaves _ within a word alone
    r"|(?P<reference>[@#]|:(?=//)|(?<=www)\.|(?<=[Gg][Hh])-(?=[0-9]))"
)
# GitHub finds mentions, issues and links in unescaped text, too; only another character hides them.
_ZERO_WIDTH_SPACE = "&#8203;"


def markdown(diff: Diff) -> str:
    """The whole comment."""
    title = f"### treegen diff: {code(diff.old)} to {code(diff.new)}"
    parts = [title, "\n".join(f"**{text(line)}**\n" for line in headline(diff)).strip()]
    parts += [text(f"{_served(one)}.") for one in diff.served if not one.differs]
    same = [m for m in diff.modules if m.kind is Kind.SAME and not (m.world or m.note or m.text)]
    for module in diff.modules:
        if module not in same:
            parts += _section(module)
    parts += ["\n".join(f"- {code(path)} changed" for path in diff.files)] if diff.files else []
    if same:
        named = ", ".join(code(f"{module.kernel}/{module.device}") for module in same)
        which = named if len(same) <= _NAMED else counted(len(same), "module")
        parts.append(f"The same before and after: {which}.")
    if any(module.lines for module in diff.modules):
        parts.append(
            "<sub>New over old choice, both by the new table: geometric mean, +- two standard errors of the "
            "table's noise. A table flatters the tree that was fitted to it.</sub>"
        )
    return "\n\n".join(parts) + "\n"


def headline(diff: Diff) -> Iterator[str]:
    """What a reviewer must know, a line each: what breaks callers, what is launched, what regresses."""
    if diff.gone:
        yield f"Callers must change: {'; '.join(diff.gone)}."
    served = [one for one in diff.served if one.differs]
    yield from (f"{_served(one)}." for one in served)
    of = {kind: [module for module in diff.modules if module.kind is kind] for kind in Kind}
    sentences = [f"{_names(of[kind])} {kind}." for kind in (Kind.UNREADABLE, Kind.INCOMPARABLE) if of[kind]]
    unread = bool(sentences)
    whole = not unread and not served and not diff.gone
    tried = " wherever both versions were asked" * bool(of[Kind.TRIED])
    if changed := of[Kind.CHANGED]:
        launch = "launches" if len(changed) == 1 else "launch"
        sentences.append(f"{len(changed)} of {counted(len(diff.modules), 'module')} {launch} differently.")
    if elsewhere := of[Kind.ELSEWHERE]:
        launch = f"launch{'es' * (len(elsewhere) == 1)} another config, but in no measured scenario"
        sentences.append(f"{_names(elsewhere)} {launch}.")
    if others := of[Kind.FALLBACK]:
        have = f"ha{'s' if len(others) == 1 else 've'} another fallback for GPUs without a module"
        tuned = "" if changed or elsewhere or not whole else f"All tuned GPUs get the same configs{tried}. "
        sentences.append(f"{tuned}{', '.join(module.kernel for module in others)} {have}.")
    if whole and not (changed or elsewhere or others):
        fields = f"Nothing else is launched, in a Config with other fields ({'; '.join(diff.fields)})."
        sentences.append(fields if diff.fields else f"All modules launch the same configs{tried}.")
    if worse := [(module, line) for module in diff.modules for line in module.lines if line.regresses]:
        worst, line = max(worse, key=lambda pair: pair[1].worst[1].lost)
        others = [m for m in diff.modules if m.lines and m.regresses and m is not worst]
        more = f", and so do{'es' * (len(others) == 1)} {_names(others)}" if others else ""
        where, price = line.worst
        what = f"{line.old} -> {line.new}{where}, {price}{_forbidden(line)}"
        sentences.append(f"{worst} regresses: {what}{more}.")
    elif changed:
        what = "Nothing else" if any(one.price and one.price.regresses for one in served) else "Nothing"
        what += " that is timed" if unread or any(m.untimed or m.unknown for m in changed) else ""
        sentences.append(f"{what} regresses by more than noise and {percent(diff.threshold, '')}.")
    for module in diff.modules:
        if module.world is not None and module.world.contradicts:
            moved = _moved(*next(iter(module.world.moved.items())))
            sentences.append(f"The tables of {module} contradict each other: {moved}, by the same software.")
    if sentences:
        yield " ".join(sentences)


def _section(module: ModuleChange) -> Iterator[str]:
    how = f": other configs in {module.changed:,} of {module.scenarios:,} scenarios" if module.changed else ""
    yield f"#### {text(f'{module} {module.kind}{how}')}"
    if module.note is not None:
        yield text(f"Note: {module.note}")
    if module.unknown:
        where = counted(module.unknown, "scenario")
        yield text(f"Not compared: in {where} the table lacks a feature about which a module asks.")
    if module.example is not None:
        yield text(f"For example at {' '.join(f'{name}={value}' for name, value in module.example.items())}.")
    if module.overall is not None:
        worst, untimed = module.overall.worst, counted(module.untimed, "scenario")
        more = f"; worst {percent(worst[1])} in {worst[0]}" if worst else ""
        more += f"; not timed by the table in {untimed}" if module.untimed else ""
        yield text(f"The change, by the new table: {module.overall}{more}.")
    lines = [_line(line) for line in module.lines[:SHOWN]]
    if len(module.lines) > SHOWN:
        lines.append(f"- {counted(len(module.lines) - SHOWN, 'more pair')} of configs: see --format json")
    lines += [f"- {text(words)}" for words in module.text[:SHOWN]]
    if len(module.text) > SHOWN:
        lines.append(f"- {counted(len(module.text) - SHOWN, 'more difference')}: see --format json")
    if lines:
        yield "\n".join(lines)
    if module.world is not None:
        yield from _world(module.world)


def _line(line: Line) -> str:
    places = sorted(line.places.items(), key=lambda item: (not item[1].regresses, -abs(item[1].lost)))
    where = [f"{text(place)} {_bold(price)}" if len(places) > 1 else text(place) for place, price in places]
    where = [*where[:_PLACES], *([f"{len(where) - _PLACES} more"] if len(where) > _PLACES else [])]
    pair = text(f"{line.old} -> {line.new}")
    return f"- {pair}, {_bold(line.price)}{text(_forbidden(line))} ({'; '.join(where)})"


def _bold(price: Price) -> str:
    return f"**{text(str(price))}**" if price.regresses else text(str(price))


def _forbidden(line: Line) -> str:
    return f", as {line.forbidden} forbids {line.old}" if line.forbidden else ""


def _served(one: Served) -> str:
    be = "is" if len(one.gpus) == 1 and not one.gpus[0].startswith("other ") else "are"
    start = f"{one.kernel}: {', '.join(one.gpus)} {be} served by {one.now}, no longer by {one.before}"
    if not one.differs:
        return f"{start}, which launches the same"
    return f"{start}, which {f'launches other configs: {one.price}' if one.price else 'may launch others'}"


def _world(world: World) -> Iterator[str]:
    cause = "; ".join(world.cause) or "no cause known: run.yaml tells of the same software and GPU"
    before, after, common = (f"{number:,}" for number in (*world.scenarios, world.common))
    parts = [f"The table is another one ({cause}): {before} scenarios before, {after} now, {common} common."]
    if world.alone is not None and world.alone.ratio:
        parts.append(f"By it, what was launched before takes {world.alone}.")
    if world.launched is not None and world.launched.ratio and world.launched != world.alone:
        parts.append(f"What is launched now takes {world.launched} over what was launched then.")
    if world.moved:
        few = [_moved(*one) for one in [*world.moved.items()][:3]]
        parts.append(f"Moved most: {'; '.join(few)}.")
    if world.lost:
        parts.append(f"{counted(world.lost, 'cell')} that had a time are not measured now.")
    if world.failing:
        parts.append(f"A config fails now in {counted(world.failing, 'cell')}.")
    yield text(" ".join(parts))


def _moved(config: str, moved: tuple[int, float]) -> str:
    return f"{config} {percent(moved[1])} in {counted(moved[0], 'cell')}"


def _names(modules: Sequence[ModuleChange]) -> str:
    return ", ".join(map(str, modules))


def text(plain: str) -> str:
    """Escape text within a line so that nothing in it is markup, a mention, a reference or a link."""

    def escaped(match: re.Match[str]) -> str:
        return f"&#{ord(match.group())};{_ZERO_WIDTH_SPACE if match.group('reference') else ''}"

    return _MARKUP.sub(escaped, one_line(plain))


def code(name: str) -> str:
    """A name from outside as a code span."""
    return f"`{one_line(name).replace('`', chr(39)) or ' '}`"
