"""Synthetic records: one-shot releases from noisy marginals; `README.md` here says which method serves which data.

`das.synthesis.curator` and `das.synthesis.gaussian` hold confidential records and stand on the confidential side; all
else reads noisy answers and public facts.
"""
