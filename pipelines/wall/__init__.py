"""The wall that the kernel keeps: after ``measure``, nothing can open a record, a histogram or the key."""
