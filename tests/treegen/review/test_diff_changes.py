"""What a diff says of single edits of a spec, a table or the output folder."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from treegen_builders import (
    DEVICE,
    KERNEL,
    build,
    error_of,
    grid,
    planted,
    spec,
    write_project,
    write_spec,
)
from treegen_diffs import BEST, MEDIUM, NARROW, WIDE, Ask, compared, of_device, project, write_modules

from treegen.core.spec import FALLBACK_DEVICE, Config
from treegen.read.spec import read_spec
from treegen.review.diff.changes import Kind
from treegen.review.diff.markdown import headline, markdown
from treegen.review.diff.snapshots import read_snapshot
from treegen.write.modules import Module, read_modules

SHARED = f"generated/{KERNEL}/__init__.py", f"generated/{KERNEL}/config.py"


def _slower(row):
    return [1.3 * time for time in planted(row)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("CUDA graph replay; " * 10, "CUDA graph replay; " * 10 + "with a flush of L2"),
        ({"how": "graph", "repeats": 3}, {"how": "events", "repeats": 3}),
    ],
)
def test_any_difference_of_the_timing_may_explain_other_times(tmp_path, before, after):
    project(tmp_path / "old", timing=before)
    other = compared(tmp_path / "old", project(tmp_path / "new", timing=after, times=_slower))
    same = compared(tmp_path / "old", project(tmp_path / "again", timing=before, times=_slower))
    worlds = [of_device(diff).world for diff in (other, same)]
    assert [world is not None and world.contradicts for world in worlds] == [False, True]
    (cause,) = worlds[0].cause if worlds[0] else ("",)
    assert "timing" in cause and ("events" in cause) == isinstance(after, dict)


@pytest.mark.parametrize(
    ("parameters", "is_other"),
    [
        ({"block": "BM", "warps": "W"}, False),
        ({"warps": "W", "block": "B"}, False),
        ({"block": "B", "warps": {"letter": "W", "default": 4}}, False),
        ({"block": "B", "warps": "W", "stages": {"letter": "S", "default": 3}}, True),
    ],
)
def test_a_fallback_is_another_one_by_its_values_and_not_by_its_name(tmp_path, parameters, is_other):
    """The last kernel had 2 stages by default, so old and new configs have the same constants."""
    old = dict(parameters, stages={"letter": "S", "default": 2}) if is_other else {"block": "B", "warps": "W"}
    for name, known, stages in (("old", old, 2), ("new", parameters, 3)):
        values = {"block": 128, "warps": 8, "stages": stages}
        tree = Config("plain", tuple((parameter, values[parameter]) for parameter in known))
        project(tmp_path / name, tree, spec(config={"variants": ["plain"], "parameters": known}))
    diff = compared(tmp_path / "old", tmp_path / "new")
    found, changed = of_device(diff, FALLBACK_DEVICE), of_device(diff)
    assert (found.kind is Kind.FALLBACK) == is_other == any("fallback" in line for line in headline(diff))
    assert any("fallback" in words for words in changed.text) == is_other == bool(changed.lines)
    assert all(line.old != line.new for line in changed.lines)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"warps": "W", "block": "B"}, "warps, block"),
        ({"block": {"letter": "B", "default": 16}, "warps": "W"}, "warps, block"),
        ({"block": "B", "warps": {"letter": "W", "default": 4}}, ""),
        ({"more": {"letter": "X", "default": 1}, "block": "B", "warps": "W"}, "more"),
    ],
)
def test_the_order_of_fields_is_told_to_programs_that_unpack_a_config(tmp_path, parameters, told):
    """Those without a default come first, so a default may change the order."""
    for name, known in (("old", {"block": "B", "warps": "W"}), ("new", parameters)):
        values = {"block": 128, "warps": 8, "more": 1}
        tree = Config("plain", tuple((parameter, values[parameter]) for parameter in known))
        project(tmp_path / name, tree, spec(config={"variants": ["plain"], "parameters": known}))
    diff = compared(tmp_path / "old", tmp_path / "new")
    (said,) = headline(diff)
    assert not diff.breaks and (told in said if told else said.startswith("All modules"))
    assert len(diff.fields) == bool(told)


def test_words_of_parameters_are_part_of_what_is_launched(tmp_path):
    """What `2` stands for is what the kernel is launched with."""
    for name, words in {"old": {"low": 2, "high": 4}, "new": {"low": 4, "high": 2}}.items():
        project(tmp_path / name, content=spec(values={"warps": words}))
    diff = compared(tmp_path / "old", tmp_path / "new")
    assert diff.breaks and ["low" in diff.gone[0], "high" in diff.gone[1]] == [True, True]


def test_a_gpu_without_a_stated_architecture_is_served_by_that_of_its_table(tmp_path):
    """As `for_device` is asked with the architecture that the driver reports."""
    content = spec({"other": {"names": ["Other"], "arch": "sm_90", "vendor": "nvidia"}})
    content["devices"][DEVICE].pop("arch")
    path = write_project(tmp_path / "old", content)
    write_modules(path, {(KERNEL, DEVICE): BEST, (KERNEL, "other"): WIDE})
    content["kernels"][KERNEL]["tables"].pop(DEVICE)
    write_modules(write_project(tmp_path / "new", content), {(KERNEL, "other"): WIDE})
    (served,) = compared(tmp_path / "old", tmp_path / "new").served
    assert (served.gpus, served.before, served.now) == (("NVIDIA H100",), DEVICE, "other") and served.differs


@pytest.mark.parametrize("edited", SHARED)
@pytest.mark.parametrize("edit", [lambda path: path.write_text("choose = None\n"), Path.unlink])
def test_nothing_is_known_of_modules_beside_edited_files(tmp_path, edited, edit):
    project(tmp_path / "old")
    edit(project(tmp_path / "new") / edited)
    diff = compared(tmp_path / "old", tmp_path / "new")
    assert {module.kind for module in diff.modules} == {Kind.UNREADABLE} and diff.regresses
    assert not any("launch" in line for line in headline(diff))
    assert edited in error_of(read_modules, read_spec(tmp_path / "new/treegen.yaml"))


def test_a_device_that_was_not_built_serves_no_gpu(tmp_path):
    project(tmp_path / "old")
    content = spec({"other": {"names": ["Other"], "arch": "sm_100", "vendor": "nvidia"}})
    write_project(project(tmp_path / "new"), content)
    diff = compared(tmp_path / "old", tmp_path / "new")
    assert not diff.served and diff.regresses and not any("launch" in line for line in headline(diff))


def test_an_old_module_is_not_read_by_a_spec_that_is_newer_than_it(tmp_path):
    """Unless another treegen printed it, whose text this one cannot compare."""
    path = write_project(tmp_path)
    assert build(path) == 0
    write_spec(tmp_path, spec(constraints=["block <= 64"]))

    def read():
        with ExitStack() as stack:
            return read_snapshot(str(tmp_path), None, stack, older=True).modules[KERNEL, DEVICE]

    assert isinstance(read(), str)
    lock, config = tmp_path / "generated/treegen.lock", tmp_path / SHARED[1]
    texts = lock.read_text(), config.read_text()
    lock.write_text(texts[0].replace('"treegen": "', '"treegen": "0.'))
    assert isinstance(read(), Module)
    lock.write_text(texts[0])
    config.write_text(f"{texts[1]}# as an older printer has it\n")
    assert isinstance(read(), Module)


@pytest.mark.parametrize("output", ["modules", "inner/generated"])
def test_an_output_folder_elsewhere_is_told(tmp_path, output):
    project(tmp_path / "old")
    content = {**spec(), "output": output}
    diff = compared(tmp_path / "old", project(tmp_path / "new", content=content))
    assert diff.breaks and output in " ".join(diff.gone)


def test_an_output_folder_behind_a_link_has_the_name_of_the_link(tmp_path):
    project(tmp_path / "old")
    new = project(tmp_path / "new")
    (new / "generated").rename(new / "real")
    (new / "generated").symlink_to("real")
    assert not compared(tmp_path / "old", new).gone


def test_scenarios_are_the_same_by_what_was_measured(tmp_path):
    """And not by what the two specs derive from it."""
    project(tmp_path / "old")
    content = spec(derived={"area": "2 * rows * columns"})
    diff = compared(tmp_path / "old", project(tmp_path / "new", content=content, times=_slower))
    world = of_device(diff).world
    assert world is not None and world.common == len(grid())


@pytest.mark.parametrize(("rows", "told"), [(7, False), (63, True)])
def test_a_constraint_is_the_reason_where_it_forbids_most(tmp_path, rows, told):
    """Of the nine scenarios that go from WIDE to MEDIUM, three have one row, and three have eight."""
    rule = f"block <= 64 or rows > {rows}"
    project(tmp_path / "old", WIDE)
    content = spec(constraints=["block >= heads", rule])
    (line,) = of_device(compared(tmp_path / "old", project(tmp_path / "new", MEDIUM, content))).lines
    assert line.price.scenarios == 9 and (line.forbidden == rule) == told


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        (
            {"constraints": ["block >= heads", "block <= 64 or rows * columns * heads % 100_003 != 7"]},
            Kind.TRIED,
        ),
        ({"derived": {"area": "max(rows, 0 - rows) * columns"}}, Kind.ELSEWHERE),
        ({"derived": {"area": "rows * columns", "more": "2 * rows"}}, Kind.SAME),
    ],
)
def test_what_was_tried_is_not_proved(tmp_path, changes, kind):
    """The first kernels differ at one shape in 100,000, and the second ones at negative sizes."""
    tree = Ask("area", 100_000, NARROW, WIDE)
    project(tmp_path / "old", tree)
    diff = compared(tmp_path / "old", project(tmp_path / "new", tree, spec(**changes)))
    assert of_device(diff).kind is kind
    assert ("wherever" in next(headline(diff))) == (kind is Kind.TRIED)


def test_equal_texts_may_name_configs_of_other_defaults(tmp_path):
    """The fallback leaves its stages to the default, and is launched where heads are many."""
    tree = Config("plain", (("block", 128), ("warps", 8), ("stages", 4)))
    for name, stages in (("old", 2), ("new", 3)):
        parameters = {"block": "B", "warps": "W", "stages": {"letter": "S", "default": stages}}
        project(tmp_path / name, tree, spec(config={"variants": ["plain"], "parameters": parameters}))
    found = of_device(compared(tmp_path / "old", tmp_path / "new"))
    assert found.kind is Kind.ELSEWHERE and found.example is not None and found.example["heads"] > 128


def test_each_module_is_named_in_one_place(tmp_path):
    """As the same, or under a heading that says what its spec or table says differently."""
    project(tmp_path / "old")
    content = spec(config={"variants": ["plain"], "parameters": {"block": "B", "warps": "W"}})
    content["kernels"][KERNEL]["derived"] = {"area": "rows * columns", "more": "2 * rows"}
    comment = markdown(compared(tmp_path / "old", project(tmp_path / "new", content=content)))
    (same,) = (line for line in comment.splitlines() if line.startswith("The same"))
    assert "default" in same and DEVICE not in same and f"#### {KERNEL} on {DEVICE}" in comment


def test_headlines_tell_of_launches_without_a_scenario_beside_those_with_one(tmp_path):
    content = spec({"other": {"names": ["Other"], "arch": "sm_100", "vendor": "nvidia"}})
    path = write_project(tmp_path / "old", content)
    write_modules(path, {(KERNEL, DEVICE): BEST, (KERNEL, "other"): BEST})
    content["kernels"][KERNEL]["fallback"] = {"variant": "plain", "block": 128, "warps": 8}
    far = Ask("area", 64, NARROW, Ask("rows", 5000, WIDE, MEDIUM))
    path = write_project(tmp_path / "new", content)
    write_modules(path, {(KERNEL, DEVICE): far, (KERNEL, "other"): NARROW})
    (said,) = headline(compared(tmp_path / "old", tmp_path / "new"))
    assert f"{KERNEL} on {DEVICE}" in said and "1 of 3 modules" in said and "fallback" in said


@pytest.mark.parametrize("timed", [True, False])
def test_a_fallback_without_a_time_is_noted(tmp_path, capsys, timed):
    """The fallback is the second of the three configs."""
    without = [["s001", 1, 10.0, "", 30.0], ["s002", 1, 10.0, "", 30.0]]
    assert build(write_project(tmp_path, rows=None if timed else without)) == 0
    assert ("no table holds a time of the fallback" in capsys.readouterr().out) != timed


def test_what_cannot_be_written_or_read_is_told_before_a_fit(tmp_path, refusal, monkeypatch):
    monkeypatch.setattr("treegen.build.build", None)
    monkeypatch.chdir(write_project(tmp_path).parent)
    (tmp_path / "generated").write_text("a file")
    assert "generated" in refusal(tmp_path, "build")
    assert "folder" in refusal(tmp_path, "diff", ".")
    (tmp_path / "treegen.yaml").unlink()
    (tmp_path / "treegen.yaml").mkdir()
    assert "is a folder" in refusal(tmp_path, "build")
    shutil.rmtree(tmp_path / "treegen.yaml")
    assert "no such" in refusal(tmp_path, "build")
