"""Authorization of requests: the ACL guard, and the authorized operations that responses list."""
