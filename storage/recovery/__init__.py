"""What a start does after a crash, and the repair of damaged segments."""
