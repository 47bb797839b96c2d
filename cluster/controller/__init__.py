"""The controller: requests that change the cluster become records."""
