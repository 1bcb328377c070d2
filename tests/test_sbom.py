"""The bill of materials: what CycloneDX asks for, complete, the same each time, with licences that somebody read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from email.message import Message
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _script() -> ModuleType:
    loader = SourceFileLoader("das_sbom", str(ROOT / "scripts" / "sbom"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module  # a dataclass looks its module up
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


sbom = _script()


def run(*arguments: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / "sbom"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    text = run()
    assert run() == text
    content: dict[str, Any] = json.loads(text)
    return content


def test_the_bill_has_the_form_of_cyclonedx(bill: dict[str, Any]) -> None:
    """The rules of the 1.5 schema for the parts that are used here."""
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["specVersion"] == "1.5"
    assert bill["version"] == 1
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill.keys() == {
        "bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies"
    }  # fmt: skip
    for component in [bill["metadata"]["component"], *bill["components"]]:
        assert component["type"] in ("application", "library")
        assert re.fullmatch(r"pkg:[a-z]+/[a-z0-9._-]+@[A-Za-z0-9._+-]+", component["purl"])
        assert component["bom-ref"] == component["purl"]
        (licence,) = component["licenses"]
        assert licence.keys() in ({"expression"}, {"license"})
        assert licence.get("expression") or licence["license"]["name"]
    for component in bill["components"]:
        hashes = [(each["alg"], each["content"]) for each in component["hashes"]]
        assert len(set(hashes)) == len(hashes) > 0
        assert all(alg == "SHA-256" and re.fullmatch("[0-9a-f]{64}", content) for alg, content in hashes)
    refs = [component["bom-ref"] for component in [bill["metadata"]["component"], *bill["components"]]]
    assert len(set(refs)) == len(refs)
    assert sorted(each["ref"] for each in bill["dependencies"]) == sorted(refs)
    assert {ref for each in bill["dependencies"] for ref in each["dependsOn"]} <= set(refs)


def test_the_bill_is_the_lock(bill: dict[str, Any]) -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+) \\$", lock, flags=re.MULTILINE))
    assert {component["name"]: component["version"] for component in bill["components"]} == pinned
    assert sum(len(component["hashes"]) for component in bill["components"]) == lock.count("--hash=sha256:")


def test_every_package_is_needed_by_das(bill: dict[str, Any]) -> None:
    below = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    reached, left = set(), [bill["metadata"]["component"]["bom-ref"]]
    while left:
        ref = left.pop()
        if ref not in reached:
            reached.add(ref)
            left += below[ref]
    assert reached == set(below)


def test_licences_are_permissive_or_have_a_remark(bill: dict[str, Any]) -> None:
    found, problems = sbom.licences(sbom.read_lock((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    assert problems == []
    assert len(found) == len(bill["components"])
    asking = {name for name, licence in found.items() if not sbom.identifiers(licence) <= sbom.PERMISSIVE}
    remarked = {component["name"] for component in bill["components"] if "properties" in component}
    assert asking == {"certifi", "orjson", "pathspec", "tqdm"}  # the Mozilla licence; a new name here is to be read
    assert asking < remarked
    table = run("--licences").splitlines()
    assert len(table) == len(bill["components"])
    assert any(line.startswith("certifi ") and "MPL-2.0" in line and "copyleft" in line for line in table)


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License-Expression": "MIT OR Apache-2.0"}, "MIT OR Apache-2.0"),
        ({"License": "BSD 2-Clause License\n\nCopyright ..."}, "BSD-2-Clause"),
        ({"License": "MPL-2.0 AND MIT"}, "MPL-2.0 AND MIT"),
        ({"License": "Copyright ...", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"License": "GNU General Public License v3"}, ""),
        ({}, ""),
    ],
)
def test_a_licence_is_found_in_metadata(fields: dict[str, str], licence: str) -> None:
    about = Message()
    for name, value in fields.items():
        about[name] = value
    assert sbom.licence_of(about) == licence


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "AGPL-3.0-or-later", "SSPL-1.0", ""])
def test_a_licence_that_nobody_read_is_refused(licence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sbom, "licence_of", lambda about: licence)
    (package, *_) = sbom.read_lock((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    _, problems = sbom.licences([package])
    assert len(problems) == 1
    assert "read it" in problems[0]
