"""Does the running program keep its promise? Lower bounds on epsilon beside the claims: ``das audit``.

It generates the data that it runs on, and reads no record: of a plan's input nothing is opened. ``README.md`` says what
its bounds prove, and what they cannot see.
"""

from das.evaluation.privacy_audit.mechanism_audit import MECHANISM_NAMES, audit_mechanism, mechanism_named
from das.evaluation.privacy_audit.page import render_audit
from das.evaluation.privacy_audit.plan_audit import audit_plan
from das.evaluation.privacy_audit.result import Audit
from das.evaluation.privacy_audit.text import audit_text

__all__ = [
    "MECHANISM_NAMES",
    "Audit",
    "audit_mechanism",
    "audit_plan",
    "audit_text",
    "mechanism_named",
    "render_audit",
]
