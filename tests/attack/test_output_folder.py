"""Links, modes, owners and parents planted around a run: each is closed or refused before anything is read."""

from __future__ import annotations

import grp
import json
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import das
import das.storage.permissions as permissions
from das.demo.starter import write_starter
from das.errors import BudgetError, UsageError
from das.noise.stream import RunKey
from das.plan.plan import Plan
from das.runner import find_runner
from das.storage.files import make_private, write_atomically
from das.storage.handles import open_within, read_within
from das.storage.key_file import destroy_key, read_key, write_key
from das.storage.layout import Layout
from das.storage.permissions import secure
from das.storage.staging import Staging


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return das.load(write_starter(tmp_path / "input"))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A folder as a run leaves it between two stages."""
    layout = Layout(tmp_path / "out")
    layout.root.mkdir(mode=0o755)
    layout.release.path.mkdir(mode=0o755)
    make_private(layout.confidential.path)
    write_atomically(layout.run, b"{}", mode=0o644)
    write_atomically(layout.log, b"")
    write_key(layout.confidential.key, RunKey.generate())
    write_atomically(layout.confidential.salt, bytes(32))
    write_atomically(layout.confidential.origin, b"{}")
    with Staging(layout.confidential.histograms) as staging:
        staging.write("block.parquet/part-00000-of-00002.parquet", b"counts")
        staging.commit({})
    return layout


INSIDE = ("run.key", "commitment.salt", "whereabouts.json", "histograms", "histograms/block.parquet", ".")


def test_a_folder_in_order_is_left_alone(layout: Layout) -> None:
    before = {path: mode_of(path) for path in layout.root.rglob("*")}
    assert secure(layout) == []
    assert {path: mode_of(path) for path in layout.root.rglob("*")} == before
    layout.root.chmod(0o700)  # a user may close more than das does
    assert secure(layout) == []
    assert mode_of(layout.root) == 0o700


@pytest.mark.parametrize("name", [*INSIDE, "histograms/block.parquet/part-00000-of-00002.parquet"])
@pytest.mark.parametrize("opened", [0o004, 0o040, 0o022])
def test_a_mode_that_was_opened_between_stages_is_closed_and_told(
    name: str, opened: int, layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    path = layout.confidential.path / name
    kept = mode_of(path)
    folders = [layout.confidential.path / folder for folder in (".", "histograms", "histograms/block.parquet")]
    path.chmod(kept | opened)
    with caplog.at_level(logging.WARNING, "das.storage"):
        assert bool(secure(layout)) == (name == "."), "nobody comes to what lies in a closed folder"
        assert mode_of(path) == kept
        for folder in folders:
            folder.chmod(0o711)
        path.chmod(kept | opened)
        lines = secure(layout)
    assert mode_of(path) == kept
    (line,) = (line for line in lines if line.startswith(f"{path}: was open to others (mode {kept | opened:04o})"))
    assert line in layout.log.read_text()
    assert caplog.records[-1].getMessage().startswith(lines[0])
    assert {mode_of(folder) for folder in folders} == {0o700}
    assert mode_of(layout.log) == 0o600


def test_what_is_public_may_be_read_and_not_written_by_others(layout: Layout) -> None:
    for path in (layout.root, layout.run, layout.release.path):
        path.chmod(mode_of(path) | 0o022)
    assert len(secure(layout)) == 3
    assert [mode_of(path) for path in (layout.root, layout.run, layout.release.path)] == [0o755, 0o644, 0o755]


@pytest.mark.parametrize("name", [*INSIDE[:-1], "../run.json", "../run.log", "../release", "../confidential"])
def test_a_symbolic_link_is_refused(name: str, layout: Layout, tmp_path: Path) -> None:
    path, elsewhere = layout.confidential.path / name, tmp_path / "elsewhere"
    Path(os.path.normpath(path)).rename(elsewhere)
    os.symlink(elsewhere, os.path.normpath(path))
    before = mode_of(elsewhere)
    with pytest.raises(UsageError, match="is a symbolic link") as caught:
        secure(layout)
    assert str(Path(os.path.normpath(path))) in str(caught.value)
    assert mode_of(elsewhere) == before, "what a planted link leads to is not touched"


@pytest.mark.parametrize("name", ["run.key", "commitment.salt", "histograms/_committed.json", "../run.json"])
def test_a_second_hard_link_is_refused(name: str, layout: Layout, tmp_path: Path) -> None:
    os.link(layout.confidential.path / name, tmp_path / "copy")
    with pytest.raises(UsageError, match=r"second name \(a hard link\)"):
        secure(layout)


def test_every_problem_is_named_at_once(layout: Layout, tmp_path: Path) -> None:
    os.link(layout.confidential.key, tmp_path / "copy")
    (layout.confidential.histograms / "planted").symlink_to(tmp_path)
    os.mkfifo(layout.confidential.path / "pipe")
    with pytest.raises(UsageError) as caught:
        secure(layout)
    assert [Path(problem.where).name for problem in caught.value.problems] == ["planted", "pipe", "run.key"]
    assert all(problem.remedy for problem in caught.value.problems)


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator can give files to another user")
@pytest.mark.parametrize("name", [".", "run.key", "histograms/block.parquet", "../run.json", ".."])
def test_a_file_of_another_user_is_refused(name: str, layout: Layout) -> None:
    os.chown(layout.confidential.path / name, 65534, 65534)
    with pytest.raises(UsageError, match="belongs to another user"):
        secure(layout)


def test_another_users_folder_is_refused_without_any_right(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without the administrator's rights: whoever asks is another user than the owner."""
    monkeypatch.setattr(permissions.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        secure(layout)


@pytest.mark.parametrize("opened", [0o777, 0o757])
def test_a_parent_that_others_may_write_is_refused(opened: int, layout: Layout, tmp_path: Path) -> None:
    layout.confidential.key.chmod(0o644)
    tmp_path.chmod(opened)
    with pytest.raises(UsageError, match="others may write it"):
        secure(layout)
    assert mode_of(layout.confidential.key) == 0o644, "nothing below a folder of theirs is trusted, nor touched"
    tmp_path.chmod(0o1000 | opened)  # with the sticky bit they cannot rename what is not theirs
    assert secure(layout) == []
    assert mode_of(layout.confidential.key) == 0o600


def test_a_parent_that_a_group_may_write_is_refused_unless_it_is_the_users_own(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o775)
    gid = tmp_path.stat().st_gid
    own = permissions.pwd.getpwuid(os.geteuid()) if _is_known(os.geteuid()) else None
    monkeypatch.setattr(permissions.grp, "getgrgid", lambda _: grp.struct_group(("staff", "x", gid, ["ann", "bob"])))
    with pytest.raises(UsageError, match="others may write it"):
        secure(layout)
    if own is not None and own.pw_gid == gid:
        monkeypatch.setattr(permissions.grp, "getgrgid", lambda _: grp.struct_group((own.pw_name, "x", gid, [])))
        assert secure(layout) == []


def _is_known(user: int) -> bool:
    try:
        return bool(permissions.pwd.getpwuid(user))
    except KeyError:
        return False


# -- opening -----------------------------------------------------------------------------------------------------------


def test_no_link_at_or_below_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "real" / "below" / "file").write_bytes(b"abc")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "real" / "link").symlink_to("below")
    (tmp_path / "real" / "below" / "alias").symlink_to("file")
    assert read_within(tmp_path / "real", "below/file") == b"abc"
    for folder, name in (("folder", "below/file"), ("real", "link/file"), ("real", "below/alias")):
        with pytest.raises(UsageError, match="is a symbolic link"):
            read_within(tmp_path / folder, name)
    with pytest.raises(FileNotFoundError, match="absent"):
        open_within(tmp_path / "real", "below/absent", os.O_RDONLY)
    with pytest.raises(UsageError, match="is a symbolic link"):
        write_atomically(tmp_path / "folder" / "new", b"")
    with pytest.raises(UsageError, match="is a symbolic link"):
        make_private(tmp_path / "folder")
    assert mode_of(tmp_path / "real") & 0o055, "the mode of what the link leads to stays"


@pytest.mark.parametrize("spoil", ["link", "second name", "mode", "length"])
def test_a_key_that_others_may_have_is_not_read(spoil: str, tmp_path: Path) -> None:
    key, other = tmp_path / "run.key", tmp_path / "other"
    write_key(key, RunKey.for_testing("t"))
    spoilers: dict[str, Callable[[], object]] = {
        "link": lambda: (key.rename(other), key.symlink_to(other)),
        "second name": lambda: os.link(key, other),
        "mode": lambda: key.chmod(0o640),
        "length": lambda: key.write_bytes(b"short"),
    }
    assert read_key(key) == RunKey(RunKey.for_testing("t").secret)
    spoilers[spoil]()
    with pytest.raises(BudgetError if spoil == "length" else UsageError):
        read_key(key)


# -- whole runs --------------------------------------------------------------------------------------------------------


def test_a_link_planted_at_the_key_is_neither_written_nor_read(plan: Plan, tmp_path: Path) -> None:
    """Before, a run began in such a folder, and replaced the links."""
    out, theirs = tmp_path / "out", tmp_path / "theirs"
    theirs.write_bytes(b"precious")
    (out / "confidential").mkdir(parents=True)
    for name in ("run.key", "commitment.salt"):
        (out / "confidential" / name).symlink_to(theirs)
    with pytest.raises(UsageError, match="is a symbolic link"):
        find_runner().run(plan, out, upto="measure")
    assert theirs.read_bytes() == b"precious"
    assert not (plan.folder / "ledger.sqlite").exists()


def test_a_hard_link_planted_at_the_key_does_not_destroy_what_it_names(plan: Plan, tmp_path: Path) -> None:
    out, theirs = tmp_path / "out", tmp_path / "theirs"
    theirs.write_bytes(b"precious")
    (out / "confidential").mkdir(parents=True)
    os.link(theirs, out / "confidential" / "run.key")
    with pytest.raises(UsageError, match="second name"):
        find_runner().run(plan, out, upto="measure")
    assert theirs.read_bytes() == b"precious"


def test_a_confidential_folder_that_leads_elsewhere_is_refused(plan: Plan, tmp_path: Path) -> None:
    """Before, the histograms were written where the link led."""
    out, theirs = tmp_path / "out", tmp_path / "theirs"
    out.mkdir()
    theirs.mkdir(mode=0o755)
    (out / "confidential").symlink_to(theirs)
    with pytest.raises(UsageError, match="is a symbolic link"):
        find_runner().run(plan, out, upto="tabulate")
    assert list(theirs.iterdir()) == []


def test_what_was_opened_between_two_commands_is_closed_and_what_was_moved_is_refused(
    plan: Plan, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    find_runner().run(plan, out, upto="tabulate")
    for path in (out / "confidential", out / "confidential" / "histograms"):
        path.chmod(0o777)
    (out / "confidential" / "histograms" / "village.parquet").chmod(0o666)
    find_runner().run(plan, out, upto="measure")
    for path in (out / "confidential").rglob("*"):
        assert mode_of(path) == (0o700 if path.is_dir() else 0o600), path
    assert (out / "run.log").read_text().count("was open to others") == 3
    (out / "confidential" / "histograms").rename(tmp_path / "moved")
    (out / "confidential" / "histograms").symlink_to(tmp_path / "moved")
    with pytest.raises(UsageError, match="is a symbolic link"):
        find_runner().run(plan, out, upto="estimate")


def test_modes_are_looked_at_before_each_stage_of_one_command(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.confidential_stages import ConfidentialStages

    tabulate, out = ConfidentialStages.tabulate, tmp_path / "out"

    def opened(run: ConfidentialStages) -> None:
        tabulate(run)
        (out / "confidential" / "histograms").chmod(0o755)

    monkeypatch.setattr(ConfidentialStages, "tabulate", opened)
    find_runner().run(plan, out, upto="measure")
    assert mode_of(out / "confidential" / "histograms") == 0o700


def test_a_linked_output_folder_is_looked_up_once_and_its_target_checked(plan: Plan, tmp_path: Path) -> None:
    real, link = tmp_path / "disk" / "real", tmp_path / "out"
    real.mkdir(parents=True)
    link.symlink_to(real)
    real.parent.chmod(0o777)
    with pytest.raises(UsageError, match="others may write it"):
        find_runner().run(plan, link, upto="tabulate")
    real.parent.chmod(0o755)
    find_runner().run(plan, link, upto="tabulate")
    assert (real / "confidential" / "histograms" / "_committed.json").exists()


def test_parents_that_das_makes_are_not_open_to_others_under_any_umask(plan: Plan, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        find_runner().run(plan, tmp_path / "a" / "b" / "out", upto="tabulate")
    finally:
        os.umask(before)
    assert {mode_of(tmp_path / "a"), mode_of(tmp_path / "a" / "b")} == {0o755}


def test_a_folder_that_is_no_run_is_refused_and_not_touched(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "home" / "confidential").mkdir(parents=True)
    (tmp_path / "home" / "letter").touch()
    (tmp_path / "home" / "confidential").chmod(0o755)
    with pytest.raises(UsageError, match="is not empty and holds no run"):
        find_runner().run(plan, tmp_path / "home", upto="tabulate")
    assert mode_of(tmp_path / "home" / "confidential") == 0o755


def test_the_input_may_lie_in_the_confidential_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = write_starter(out / "confidential" / "input")
    find_runner().run(das.load(config), out, upto="measure")
    assert json.loads((out / "run.json").read_bytes())["release"] == "example"
    for path in (out / "confidential").rglob("*"):
        assert path.name == "ledger.sqlite" or mode_of(path) & 0o077 == 0, path


def test_the_key_is_gone_after_the_measurements_and_its_second_name_is_told(tmp_path: Path) -> None:
    write_key(tmp_path / "run.key", RunKey.generate())
    os.link(tmp_path / "run.key", tmp_path / "copy")
    with pytest.raises(UsageError, match="contents are still there"):
        destroy_key(tmp_path / "run.key")
    assert not (tmp_path / "run.key").exists()
    destroy_key(tmp_path / "run.key")
