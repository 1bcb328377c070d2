"""What is counted: attributes and labels, queries, sparse counts and limits on answers."""
