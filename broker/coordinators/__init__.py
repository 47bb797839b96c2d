"""The runtime of group and transaction coordinators, transaction verification, and producer ids."""
