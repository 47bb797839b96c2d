"""`trioka schemas`: the subjects and schemas of a registry."""
