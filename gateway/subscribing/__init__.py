"""Subscribe: a member of a consumer group, with credit and acknowledgement."""
