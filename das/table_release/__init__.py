"""One contingency table, released once under public facts: `das table`."""
