"""SASL logins."""
