"""Commands about users, access rules, quotas and delegation tokens."""
