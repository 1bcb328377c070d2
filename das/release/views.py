"""A script of views: a release's files as tables of DuckDB, which reads them where they lie."""

from __future__ import annotations

from pathlib import Path

from das.release.contents import published_files
from das.storage.layout import ReleaseFolder

__all__ = ["view_script"]


def view_script(release: ReleaseFolder, folder: Path | None = None) -> str:
    """Write the script; paths are relative to the release, or in ``folder`` if it is given.

    A view is named for its table (``district_total``, ``records``), or for folder and file (``counts_district``). Files
    of a level have a row for the placeholder of each branch that skips it; views leave these out.
    """
    where = "run in this folder: duckdb -init duckdb.sql" if folder is None else f"files in {folder}"
    lines = [
        f"-- Views of the files of this release; {where}",
        "-- GEOID is text; datapackage.json says what columns mean",
    ]

    def read(path: Path) -> str:
        shown = (path if folder is None else folder / path).as_posix().replace("'", "''")
        return f"read_parquet('{shown}')"

    for file in published_files(release):
        path = Path(file.folder, file.name)
        name = path.stem.replace("-", "_")
        view = name if file.folder in ("tables", "microdata") else f"{file.folder.rpartition('/')[2]}_{name}"
        select = f"SELECT * FROM {read(path / '*.parquet' if file.is_folder else path)}"
        if file.columns[:1] == ("geocode",):
            real = f"SELECT geocode FROM {read(Path('facts', 'spine.parquet'))} WHERE level = '{path.stem}' AND real"
            select += f" WHERE geocode IN ({real})"
        lines.append(f"CREATE OR REPLACE VIEW {view} AS {select};")
    return "\n".join(lines) + "\n"
