"""Which tree of counts, and which shares of the budget, suit a congenial plan: ``das plan --compare-trees``."""

from __future__ import annotations

from das.evaluation.trees.comparison import TreeComparison, compare_trees
from das.evaluation.trees.text import comparison_json, comparison_text

__all__ = ["TreeComparison", "compare_trees", "comparison_json", "comparison_text"]
