"""MkDocs hooks: pages that are generated, files of the repository that are pages too, and mathematics as MathML."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import reference
import typeset

ROOT = Path(__file__).resolve().parents[2]
NAMED = {
    "das/GLOSSARY.md": "glossary.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
}
LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^)\s]+)\)")
NOTE_SPAN = re.compile(r"(?<![\[`])`([\w./-]+\.md)`(?![\]`])")
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)


def site_pages() -> dict[str, str]:
    """Files of the repository outside of docs/ that are pages of the site: path to address."""
    pages = {name: uri for name, uri in NAMED.items() if name != "README.md"}
    for path in sorted((ROOT / "das").rglob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        if name in pages:
            continue
        inside = path.parent.relative_to(ROOT / "das").as_posix()
        pages[name] = (
            f"packages/{inside.replace('/', '-')}.md" if path.stem == "README" else f"proofs/{inside}/{path.name}"
        )
    return pages


PAGES = site_pages()
SOURCES = {uri: name for name, uri in PAGES.items()}
IMAGES = {f"das/report/{name}": f"images/{name}" for name in ("privacy-desktop.png", "privacy-phone.png")}


def title_of(path: Path) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1).replace("`", "") if found else path.stem


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere in the repository, those that are generated, and name all of them."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text(encoding="utf-8")))
    for name, uri in IMAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for uri, content in reference.pages().items():
        files.append(File.generated(config, uri, content=content))
    proofs = [(uri, title_of(ROOT / name)) for name, uri in PAGES.items() if uri.startswith("proofs/")]
    files.append(File.generated(config, "proofs/index.md", content=proofs_index(proofs)))
    config.nav = complete_navigation(list(config.nav or []), files, proofs)
    return files


def proofs_index(proofs: list[tuple[str, str]]) -> str:
    """Write the list of all notes, by the package whose claims they prove."""
    lines = [
        "# Proofs\n",
        "Each note stands beside the code that rests on it.",
        "[What is promised](../promise.md) says which claim has which note.\n",
    ]
    package = ""
    for uri, title in proofs:
        if uri.split("/")[1] != package:
            package = uri.split("/")[1]
            lines.append(f"\n## {package}\n")
        lines.append(f"- [{title}]({uri.removeprefix('proofs/')})")
    return "\n".join(lines) + "\n"


def complete_navigation(nav: list[Any], files: Files, proofs: list[tuple[str, str]]) -> list[Any]:
    """Add every note, and every page that nobody has placed yet."""

    def named(entries: Any) -> set[str]:
        if isinstance(entries, str):
            return {entries}
        values = entries.values() if isinstance(entries, dict) else entries
        return set().union(*(named(value) for value in values)) if values else set()

    nav[-1]["Proofs"] += [{title: uri} for uri, title in proofs]
    pages = [file.src_uri for file in files.documentation_pages()]
    rest = sorted(set(pages) - named(nav))
    packages = [uri for uri in rest if uri.startswith("packages/")]
    sections = {name: entries for each in nav for name, entries in each.items()}
    sections["Explanation"] += packages
    sections["How to"] += [uri for uri in rest if uri not in packages]
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the site's pages; in proof notes, write formulas as mathematics."""
    here = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match.group(0))
        return f"\0{len(kept) - 1}\0"

    text = FENCE.sub(keep, markdown)
    text = LINK.sub(lambda match: site_link(match, here, page.file.src_uri), text)
    text = NOTE_SPAN.sub(lambda match: note_link(match, here, page.file.src_uri), text)
    if page.file.src_uri.startswith("proofs/"):
        text = typeset.with_formulas(text)
        kept = [typeset.fenced_formulas(block) for block in kept]
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match.group(1))], text)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn LaTeX into MathML, which browsers show without a script."""
    return typeset.to_mathml(html)


def site_uri(target: str, here: str) -> str | None:
    """The address on the site of a file of the repository, if it is a page there."""
    name = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return PAGES.get(name) or IMAGES.get(name)


def relative(uri: str, page: str) -> str:
    """Write an address as seen from a page."""
    return posixpath.relpath(uri, posixpath.dirname(page) or ".")


def site_link(match: re.Match[str], here: str, page: str) -> str:
    """Rewrite one link; a file that is no page of the site is named, and not linked."""
    mark, text, target = match.groups()
    path, hash_, anchor = target.partition("#")
    if "://" in target or not path:
        return match.group(0)
    uri = site_uri(path, here)
    if uri is None:
        name = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        # A page of the site that is generated has no file; MkDocs itself checks that it is there.
        return text if (ROOT / name).exists() else match.group(0)
    return f"{mark}[{text}]({relative(uri, page)}{hash_}{anchor})"


def note_link(match: re.Match[str], here: str, page: str) -> str:
    """Link the name of a note, given from its own folder or from the top."""
    name = match.group(1)
    for start in (here, "README.md"):
        uri = site_uri(name, start)
        if uri and uri in SOURCES and uri != page:
            return f"[`{name}`]({relative(uri, page)})"
    return match.group(0)
