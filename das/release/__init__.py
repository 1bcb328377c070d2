"""Files of a release: measurements, estimates, tables, records, formats, audit, conformance, manifest."""
