"""The accountant for one small table whose data sets can be enumerated."""
