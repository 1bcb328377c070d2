"""The accountant: what a release promises about each record, given what it makes public (Semi-DP).

Events state what was measured, moves state what may change while the public facts stay, policies state which moves are
compared, and conversions turn the cost into an epsilon. The proofs are in the notes beside the modules.
"""
