"""One line about each key of a config, by section; types and defaults come from the settings classes themselves."""

from __future__ import annotations

__all__ = ["KEYS"]

KEYS: dict[str, dict[str, str]] = {
    "release": {
        "name": "What the release is called: letters, digits, spaces, dots and dashes.",
        "product": "The product that it is part of, in words; it stands in the statement.",
        "with": "Configs or presets that are released with it; `das plan` accounts for them together.",
    },
    "privacy": {
        "framework": 'Currency of the budget. `"zcdp"`: rho, discrete Gaussian. `"pure"`: epsilon, discrete Laplace.',
        "rho": 'The whole budget under `"zcdp"`.',
        "epsilon": 'The whole budget under `"pure"`.',
        "delta": 'The delta at which epsilon is stated under `"zcdp"`. Far below one over the number of people.',
        "unit": "Who is protected, in one word, for the statement.",
        "neighbours": '`"replace"`: one record takes other values. `"add-remove"`: one record is there or not.',
    },
    "input": {
        "data": 'What the records are. `"public"` and `"generated"` data may be run with a testing key.',
        "microdata": "Files with one row per record: .csv, .csv.gz or .parquet. Patterns with `*` are allowed.",
        "histograms": "Files with counts instead of records.",
        "geocode": "The column of the geocode, or several columns that are joined.",
        "columns": "Attribute to column, where the names differ.",
        "values": "For an attribute, the file's codes to labels.",
        "count": "The column of the count in `histograms`.",
        "cell": "Columns of a wide count file; see `[[input.cell]]`.",
        "dataset": "Whose budget is spent: the name of the people in the ledger.",
        "ledger": "Where the ledger is. By default beside the first input file.",
        "budget": "What may ever be spent on these people. By default this release alone.",
    },
    "input.cell": {
        "column": "The column that counts a cell.",
        "minus": "A column to subtract first, such as a part of a total.",
        "labels": "The cell: one label for each attribute.",
    },
    "geography": {
        "levels": "The levels from top to bottom; see `[[geography.levels]]`.",
        "units": "A file that lists the fixed-width geocode of every leaf, empty ones too.",
        "column": "The column of the geocode in `units`.",
        "crosswalk": "A file with every leaf and its parents, instead of `units`.",
        "layout": '`"wide"`: a column per level. `"edges"`: columns geocode, parent and level.',
        "nested": "True if a code is unique only within its parent.",
        "areas": "Areas off the spine; see `[[geography.areas]]`.",
    },
    "geography.levels": {
        "name": "Name of the level; in a wide crosswalk, its column.",
        "width": "With `units`: how many characters of the geocode belong to the level.",
        "names": "The column, in the same file, of what the level's places are called. Tables then have `NAME`.",
    },
    "geography.areas": {
        "name": "What kind of area it is, for example `catchment`.",
        "file": "A file with one row per leaf of each area.",
        "area": "The column of the area's code.",
        "geocode": "The column of the leaf's geocode.",
        "names": "The column of what the area is called. Tables then have `NAME`.",
    },
    "schema": {
        "preset": "A preset that has the attributes.",
        "attribute": "The attributes; see `[[schema.attribute]]`.",
        "structural_zero": "Cells in which nobody can be; see `[[schema.structural_zero]]`.",
    },
    "schema.attribute": {
        "name": "Name of the attribute.",
        "labels": "Its labels, in order. Every record has one of them.",
        "recodes": "Groups of labels under a name of their own, which queries can use.",
    },
    "schema.structural_zero": {
        "name": "A name for the rule.",
        "labels": "Attribute to labels: nobody has all of these together.",
    },
    "strategy": {
        "preset": "A preset that has the shares.",
        "geolevels": "Level to share of the budget. The shares add up to one, exactly.",
        "queries": "Level, or `all`, to a table of queries and their shares within the level.",
        "passes": "The order that belongs to the queries of a preset; `estimate.passes` takes precedence.",
    },
    "invariant": {
        "query": "The query that is published exactly.",
        "level": "The level at which it is.",
        "reason": "Why; it stands in the statement.",
    },
    "bound": {
        "query": "The query that is bounded.",
        "level": "The level at which it is.",
        "sense": '`">="`: at least. `"<="`: at most.',
        "source": "A public file with a row per geounit and a column per answer.",
        "geocode": "The column of the geounit in that file.",
        "factor": "Multiplies the numbers of the file.",
        "missing": 'What an upper bound is for a geounit without a row: `"zero"` or `"unlimited"`.',
        "reason": "Why; it stands in the statement.",
    },
    "published": {
        "query": "The query that was released before.",
        "level": "The level at which it was.",
        "source": "A release folder, or a table keyed by geocode.",
        "geocode": "The column of the geounit in that table.",
        "reason": "Why; it stands in the statement.",
    },
    "estimate": {
        "method": '`"nonnegative-l2"`: noise, then least squares. `"congenial"`: the noise itself is drawn to conform.',
        "information": '`"full"` uses the measurements of all levels at once, `"level"` those of each level alone.',
        "solver": '`"fast"`, or `"cvxpy"`, the readable reference.',
        "passes": 'With `information = "level"`: which queries are met first, by level or for `all`.',
        "split": '`"guaranteed"` refuses facts under which some parent might not be split. `"attempted"` tries.',
        "prior": '`"none"` assumes nothing. `"sharing"` distributes small groups as similar people are. Some lose.',
    },
    "output": {
        "tables": "Queries that are written as tables. By default all that are measured, but for the detailed one.",
        "intervals": "Write linear estimates and 95 % intervals beside each table.",
        "microdata": "Write protected records.",
        "csv": "Write .csv beside .parquet.",
        "geoid": 'Codes in the .csv of tables. `"quoted"`: text is in quotes. `"excel"`: as `="01"`, for spreadsheets.',
    },
}
"""Section to key to its line; a test compares the keys with those of the settings classes."""
